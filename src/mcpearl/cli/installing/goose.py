"""Where Goose keeps its servers, and what its file says of them.

The file is YAML. Only the plain part of it is read: mappings, lists of values, and values that end in
their line. An entry that needs more is left out.
"""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mcpearl.cli.exits import CommandFailed
from mcpearl.cli.installing.yaml_text import KEY, entry_lines, unquoted

SECTION = "extensions"
_ITEM = re.compile(r"\s*-(?:\s+|$)")
_COMMENT = re.compile(r"\s+#.*")
_WIRES = ("stdio", "streamable_http", "sse")


def goose_file() -> Path:
    """Return the path of the file; it need not exist."""
    settings = os.environ.get("XDG_CONFIG_HOME")
    return (Path(settings) if settings else Path.home() / ".config") / "goose" / "config.yaml"


def goose_servers(text: str, source: str) -> dict[str, dict[str, Any]]:
    """Return the servers by name, written as other hosts write theirs.

    Args:
        text: the text of the file.
        source: the file, for messages.
    """
    found = {}
    try:
        entries = entry_lines(text, SECTION, source)
    except CommandFailed:
        return {}
    for name, lines in entries.items():
        try:
            entry = _value(lines)
        except (ValueError, RecursionError):
            continue
        if isinstance(entry, dict) and entry.get("type") in _WIRES:
            found[name] = _as_others(entry)
    return found


def _as_others(entry: Mapping[str, Any]) -> dict[str, Any]:
    given = {
        "type": entry["type"],
        "command": entry.get("cmd"),
        "args": entry.get("args"),
        "env": entry.get("envs"),
        "url": entry.get("uri"),
        "headers": entry.get("headers"),
    }
    enabled = entry.get("enabled", True) is not False
    return {"enabled": enabled, **{key: each for key, each in given.items() if each}}


def _value(lines: list[str]) -> Any:
    """Read a mapping or a list that takes whole lines. Raises `ValueError` for what is not plain."""
    lines = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
    if not lines:
        return None
    margin = _margin(lines[0])
    if _ITEM.match(lines[0]):
        return [_item(line, margin) for line in lines]
    found: dict[str, Any] = {}
    number = 0
    while number < len(lines):
        key = KEY.match(lines[number])
        if key is None or len(key[1]) != margin:
            raise ValueError(f"{lines[number]!r} is not understood")
        end = number + 1
        while end < len(lines) and _belongs(lines[end], margin):
            end += 1
        rest = _COMMENT.sub("", f" {lines[number][key.end() :]}").strip()
        below = lines[number + 1 : end]
        if rest and below:
            raise ValueError(f"{lines[number]!r} goes on in the next line")
        found[unquoted(key[2])] = _scalar(rest) if rest else _value(below)
        number = end
    return found


def _belongs(line: str, margin: int) -> bool:
    """Whether a line belongs to the key above it: a list may have the margin of its key."""
    return _margin(line) > margin or (_margin(line) == margin and _ITEM.match(line) is not None)


def _margin(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _item(line: str, margin: int) -> Any:
    item = _ITEM.match(line)
    if item is None or _margin(line) != margin:
        raise ValueError(f"{line!r} is not understood")
    return _scalar(_COMMENT.sub("", f" {line[item.end() :]}").strip())


def _scalar(text: str) -> Any:
    """Return a value that ends in its line."""
    try:
        return json.loads(text)  # JSON is YAML, too
    except ValueError:
        pass
    if len(text) > 1 and text[0] == text[-1] == "'":
        return text[1:-1].replace("''", "'")
    if text.startswith("[") and text.endswith("]") and not re.search(r"[\[\]{}\"']", text[1:-1]):
        return [_scalar(each.strip()) for each in text[1:-1].split(",") if each.strip()]
    if not text or text in ("~", "{}"):
        return None
    if text[0] in "\"'[]{}&*!|>%@`" or KEY.match(text):
        raise ValueError(f"{text!r} is not understood")
    return text
