"""Extracts descriptions from docstrings in Google, NumPy and Sphinx style.

The text before the first section is the description; parameter sections hold one description per
parameter. Unrecognised text stays part of the description, so a typo in a heading loses nothing.
"""

from __future__ import annotations

import inspect
import re

import msgspec

__all__ = ["Docstring", "parse_docstring"]


class Docstring(msgspec.Struct):
    """The parts of a docstring.

    Args:
        summary: What stands before its sections.
        parameters: The description of each parameter.
        returns: The description of the return value, if there is one.
    """

    summary: str = ""
    parameters: dict[str, str] = {}
    returns: str | None = None


_PARAMETERS = {"args", "arguments", "parameters", "params", "other parameters", "keyword args"}
_PARAMETERS |= {"keyword arguments"}
_RETURNS = {"returns", "return", "yields", "yield"}
_RAISES = {"raises", "raise", "warns"}
# Sections with information for callers: part of the description if they precede the others.
_PROSE = {
    "example",
    "examples",
    "note",
    "notes",
    "see also",
    "references",
    "warnings",
    "attributes",
}
_SECTIONS = _PARAMETERS | _RETURNS | _RAISES | _PROSE

_GOOGLE_HEADING = r"^([A-Za-z][A-Za-z ]*):\s*$"
_GOOGLE_ENTRY = r"^(\*{0,2}\w+)\s*(?:\([^)]*(?:\([^)]*\)[^)]*)*\))?\s*:(?:\s+|$)(.*)$"
_NUMPY_ENTRY = r"^(\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?$"
_SPHINX_FIELD = r"^:(\w+)(?:\s+([^:]*?))?\s*:(?:\s+|$)(.*)$"
_SPHINX_PARAMETERS = {"param", "parameter", "arg", "argument", "key", "keyword"}


def parse_docstring(text: str | None) -> Docstring:
    r"""Split a docstring into its parts.

    Args:
        text: The docstring; None if there is none.

    >>> parse_docstring("Add.\n\nArgs:\n    a: The first.").parameters
    {'a': 'The first.'}
    """
    if not text:
        return Docstring()
    lines = inspect.cleandoc(text).splitlines()
    parsed = Docstring()
    summary: list[str] = []
    at = 0
    described = False
    while at < len(lines):
        heading, body_at = _heading(lines, at)
        if heading is not None and (described or heading not in _PROSE):
            described = True
            end = _section_end(lines, body_at, numpy=body_at == at + 2)
            _section(parsed, heading, lines[body_at:end], numpy=body_at == at + 2)
            at = end
            continue
        sphinx = _sphinx_field(lines[at])
        if sphinx is not None:
            described = True
            at = _sphinx(parsed, sphinx, lines, at)
            continue
        if not described:
            summary.append(lines[at])
        at += 1
    parsed.summary = "\n".join(summary).strip()
    return parsed


def _heading(lines: list[str], at: int) -> tuple[str | None, int]:
    """Return the section heading at this line, in lower case, and where its body starts."""
    line = lines[at]
    following = lines[at + 1] if at + 1 < len(lines) else ""
    underline = following.strip()
    if len(underline) >= 3 and set(underline) == {"-"} and line.strip().lower() in _SECTIONS:
        return line.strip().lower(), at + 2
    google = re.match(_GOOGLE_HEADING, line) if ":" in line else None
    if (
        google is not None
        and google[1].lower() in _SECTIONS
        and (not following.strip() or following[0].isspace())
    ):
        return google[1].lower(), at + 1
    return None, at


def _sphinx_field(line: str) -> re.Match[str] | None:
    """Return a line of the form `:param name: text`, taken apart; None for other lines."""
    return re.match(_SPHINX_FIELD, line) if line.startswith(":") else None


def _section_end(lines: list[str], at: int, *, numpy: bool) -> int:
    """Return where a section ends: at the next section or (Google) where the indent ends."""
    while at < len(lines):
        line = lines[at]
        outdented = bool(line) and not line[0].isspace()
        if outdented and not numpy:
            break
        if outdented and (_heading(lines, at)[0] is not None or _sphinx_field(line)):
            break
        at += 1
    return at


def _section(parsed: Docstring, heading: str, body: list[str], *, numpy: bool) -> None:
    body = inspect.cleandoc("\n".join(["", *body])).splitlines()
    if heading in _PARAMETERS:
        entry = _NUMPY_ENTRY if numpy else _GOOGLE_ENTRY
        for names, text in _entries(body, entry):
            for name in names.split(","):
                parsed.parameters[name.strip().lstrip("*")] = text
    elif heading in _RETURNS:
        if numpy:
            # The unindented line is the type; the description stands below it, indented.
            body = [line for line in body if not line or line[0].isspace()] or body
        parsed.returns = _joined(body) or None


def _entries(body: list[str], entry: str) -> list[tuple[str, str]]:
    """Split a section into `name: text` entries; continuation lines are indented."""
    found: list[tuple[str, list[str]]] = []
    for line in body:
        match = re.match(entry, line) if line and not line[0].isspace() else None
        if match is not None:
            found.append((match[1], list(match.groups()[1:])))
        elif found:
            found[-1][1].append(line)
    return [(names, _joined(text)) for names, text in found]


def _sphinx(parsed: Docstring, match: re.Match[str], lines: list[str], at: int) -> int:
    """Read one `:field:` with its continuation lines. Return the line after it."""
    kind, subject, text = match[1], (match[2] or "").split(), [match[3]]
    at += 1
    while at < len(lines) and (not lines[at].strip() or lines[at][0].isspace()):
        text.append(lines[at])
        at += 1
    if kind in _SPHINX_PARAMETERS and subject:
        parsed.parameters[subject[-1].lstrip("*")] = _joined(text)
    elif kind in ("return", "returns"):
        parsed.returns = _joined(text) or None
    return at


def _joined(lines: list[str]) -> str:
    """Join lines to running text. Empty lines remain paragraph breaks."""
    paragraphs: list[list[str]] = [[]]
    for line in lines:
        if line.strip():
            paragraphs[-1].append(line.strip())
        elif paragraphs[-1]:
            paragraphs.append([])
    return "\n\n".join(" ".join(paragraph) for paragraph in paragraphs if paragraph)
