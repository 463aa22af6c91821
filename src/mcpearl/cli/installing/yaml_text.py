"""One entry of a block of a YAML file, set or removed in the text.

Only the layout that Goose writes is understood: `extensions:` at the margin, and its entries indented
below it. Everything else is refused, so that no file is broken by a change.
"""

import json
import re
from typing import Any, NamedTuple

from mcpearl.cli.exits import CommandFailed

# The key that a line begins with: its margin, and the key.
KEY = re.compile(
    r"""^( *)("(?:[^"\\]|\\.)*"\s*|'[^']*'\s*|[^\s#"'\[\]{},&*!|>%@`-][^#:]*):(?:\s|$)"""
)

# A value that ends in its line: a text in quotes, a list or mapping in brackets, or plain text.
_VALUE = re.compile(
    r"""("(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|\[[^\[\]{}]*\]|\{[^\[\]{}]*\}|[^"'\[{].*)?(\s+#.*)?"""
)


class _Block(NamedTuple):
    """Where a section and its entries are, in lines."""

    begin: int
    end: int
    indent: int
    entries: dict[str, tuple[int, int]]


def with_entry(
    text: str, section: str, name: str, value: dict[str, Any] | None, source: str
) -> str:
    """Return a file's text with an entry of a section set, or, for None, removed.

    Args:
        text: the text of the file.
        section: the key at the margin that has the entries.
        name: the entry.
        value: what it becomes; None to remove it.
        source: the file, for messages.
    """
    lines = text.splitlines()
    block = _block(lines, section, source)
    if block is None:
        if value is None:
            return text
        ending = [f"{section}:", *_entry(name, value, 2)]
        return "\n".join([*lines, *ending]) + "\n"
    begin, end = block.entries.get(name, (block.end, block.end))
    new = [] if value is None else _entry(name, value, block.indent)
    if value is None and list(block.entries) == [name]:
        lines[block.begin] = f"{section}: {{}}"
    elif value is not None and not block.entries:
        lines[block.begin] = f"{section}:"
    return "\n".join([*lines[:begin], *new, *lines[end:]]) + "\n"


def entry_names(text: str, section: str, source: str) -> list[str]:
    """Return the names of a section's entries."""
    block = _block(text.splitlines(), section, source)
    return list(block.entries) if block else []


def entry_lines(text: str, section: str, source: str) -> dict[str, list[str]]:
    """Return the lines of each entry of a section, without those of its name."""
    lines = text.splitlines()
    block = _block(lines, section, source)
    entries = block.entries if block else {}
    return {name: lines[begin + 1 : end] for name, (begin, end) in entries.items()}


def _entry(name: str, value: dict[str, Any], indent: int) -> list[str]:
    """Return an entry; its values are JSON, which is YAML too."""
    key = name if re.fullmatch(r"[A-Za-z_][\w-]*", name) else json.dumps(name)
    margin = " " * indent
    members = [f"{margin * 2}{each}: {json.dumps(value[each])}" for each in value]
    return [f"{margin}{key}:", *members]


def _refuse_strange(lines: list[str], source: str) -> None:
    """Refuse a file that is not a mapping at the margin, or in which something is not closed there."""
    lists = False  # a list may follow its key at the margin
    for number, line in enumerate(lines, 1):
        if not line.strip() or line[0] in " #" or line in ("---", "..."):
            continue
        if lists and _is_item(line):
            continue
        key = KEY.match(line)
        if key is None or not _VALUE.fullmatch(value := line[key.end() :].strip()):
            raise _not_understood(source, number)
        lists = not value or value.startswith("#")


def _is_item(line: str) -> bool:
    return f"{line} ".startswith("- ")


def _block(lines: list[str], section: str, source: str) -> _Block | None:
    _refuse_strange(lines, source)
    begins = [n for n, line in enumerate(lines) if re.match(rf"{section}\s*:", line)]
    if not begins:
        return None
    begin = begins[0]
    rest = lines[begin].partition(":")[2].partition(" #")[0].strip()
    if (
        len(begins) > 1
        or rest not in ("", "{}", "null", "~")
        or any("\t" in line for line in lines)
    ):
        raise CommandFailed(
            f"{source} is written in a way that cannot be changed safely; it is unchanged",
            hint="add the server by hand: `--print` shows what to add",
        )
    end = begin + 1
    while end < len(lines) and (not lines[end].strip() or lines[end][0] in " #"):
        end += 1
    if end < len(lines) and _is_item(lines[end]):
        raise _not_understood(source, end + 1)
    while end > begin + 1 and (not lines[end - 1].strip() or lines[end - 1].startswith("#")):
        end -= 1
    return _Block(begin, end, *_entries(lines, begin, end, source))


def _entries(
    lines: list[str], begin: int, end: int, source: str
) -> tuple[int, dict[str, tuple[int, int]]]:
    found: dict[str, tuple[int, int]] = {}
    indent = 2
    last: str | None = None
    for number in range(begin + 1, end):
        line = lines[number]
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        margin = len(line) - len(line.lstrip())
        if last is None:
            indent = margin
        if margin < indent:
            raise CommandFailed(
                f"{source}:{number + 1} is indented in a way that is not understood"
            )
        if margin > indent:
            continue
        match = KEY.match(line)
        if match is None:
            raise _not_understood(source, number + 1)
        if last is not None:
            found[last] = (found[last][0], number)
        try:
            last = unquoted(match[2])
        except ValueError:  # an escape that JSON does not have
            raise _not_understood(source, number + 1) from None
        found[last] = (number, end)
    return indent, found


def _not_understood(source: str, number: int) -> CommandFailed:
    return CommandFailed(f"{source}:{number} is not understood; the file is unchanged")


def unquoted(key: str) -> str:
    """Return a key without its quotes. Raises `ValueError` for an escape that JSON does not have."""
    key = key.strip()
    if key.startswith('"'):
        return str(json.loads(key))
    return key.strip("'") if key.startswith("'") else key
