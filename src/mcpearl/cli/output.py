"""What a command writes: its result to stdout, everything else to stderr.

Colour and anything that moves appear only on a terminal. Text that a server sent is cleaned here, so that
it cannot move the cursor, change the title or hide what was written before.
"""

import os
import re
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TextIO

import click

_NARROW = 24  # columns that the last column of a table has at least
# Control characters without line feed and tab, and those that change the direction of text.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_CODE = re.compile("`[^`\n]*`")
_KEPT = "\0"  # stands for a space at which no line is broken; text that was cleaned has none


def clean(text: object) -> str:
    """Return text without characters that act on a terminal; they are shown as escapes."""
    return _CONTROL.sub(lambda found: repr(found[0])[1:-1], str(text).replace("\r\n", "\n"))


def counted(number: int, thing: str) -> str:
    """Return how many there are of a thing: `1 tool`, `2 tools`."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def width(text: str) -> int:
    """Return how many columns a text takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(each) else 2 if unicodedata.east_asian_width(each) in "WF" else 1
        for each in text
    )


def colours(stream: TextIO) -> bool:
    """Return whether a stream is written in colour."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"


class CommandOutput:
    """Where one run of a command writes.

    Args:
        as_json: whether the result is written as JSON.
    """

    def __init__(self, as_json: bool = False) -> None:
        self.as_json = as_json
        self.tty = sys.stdout.isatty()
        self.live = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        """Whether progress may be drawn on stderr."""
        self.colour = colours(sys.stdout)
        self._note_colour = colours(sys.stderr)

    @property
    def columns(self) -> int:
        """The width to lay text out for; without a terminal, there is no limit."""
        return shutil.get_terminal_size().columns if self.tty else 100_000

    # Results

    def show(self, value: Any, text: Callable[[], None]) -> None:
        """Write the result: `value` with `--json`, otherwise what `text` writes.

        Args:
            value: what can be written as JSON: plain values, or records of `mcpearl.types`.
            text: writes the same for people.
        """
        if self.as_json:
            self.document(value)
        else:
            text()

    def document(self, value: Any) -> None:
        """Write a value as JSON, over several lines; it is UTF-8 whatever the locale says."""
        import msgspec

        click.echo(msgspec.json.format(_encoded(value), indent=2))

    def event(self, value: Any) -> None:
        """Write a value as one line of JSON, at once."""
        click.echo(_encoded(value))

    def prose(self, text: str, hang: int = 0, **style: Any) -> None:
        """Write words of the command's own, with breaks between them where the terminal ends.

        Args:
            text: the words; it may have several lines, each with an indent.
            hang: columns by which what continues a line is indented further.
            style: as of `click.style`.
        """
        self._write(self.styled(folded(clean(text), self.columns, hang), **style))

    def line(self, text: str = "", **style: Any) -> None:
        """Write a line of the result.

        Args:
            text: the line; it may have several.
            style: as of `click.style`.
        """
        self._write(self.styled(clean(text), **style))

    def styled(self, text: str, **style: Any) -> str:
        """Return text with a style, if there is colour."""
        return click.style(text, **style) if style and self.colour else text

    def heading(self, text: str) -> None:
        """Write a heading."""
        self.line(text, bold=True, fg="cyan")

    def table(
        self, headings: Sequence[str], rows: Iterable[Sequence[object]], indent: int = 0
    ) -> None:
        """Write a table; its last column is wrapped to the width of the terminal.

        Args:
            headings: of the columns; none at all leaves the row of headings out.
            rows: the cells, as text.
            indent: columns to leave free at the left.
        """
        cells = [[clean(cell).replace("\t", " ") for cell in row] for row in rows]
        if not cells:
            return
        if not headings:  # a column without a cell says nothing
            kept = [at for at in range(len(cells[0])) if any(row[at] for row in cells)]
            cells = [[row[at] for at in kept] for row in cells]
        firsts = [
            max(width(line) for row in (headings, *cells) if row for line in _lines(row[at]))
            for at in range(len(cells[0]) - 1)
        ]
        left = indent + sum(firsts) + 2 * len(firsts)
        last = self.columns - left
        if last < _NARROW and firsts:
            self._stacked(cells, indent)
            return
        if headings:
            self._row(headings, firsts, last, indent, dim=True)
        for row in cells:
            self._row(row, firsts, last, indent)

    def _stacked(self, cells: list[list[str]], indent: int) -> None:
        """Write each row over several lines, for a terminal that is too narrow for a table."""
        room = max(_NARROW, self.columns - indent - 4)
        for *firsts, last in cells:
            head = " " * indent + "  ".join(filter(None, firsts))
            self._write(self.styled(folded(head, self.columns, 6), bold=True))
            for line in (part for each in last.splitlines() for part in _wrapped(each, room)):
                self._write(" " * (indent + 4) + line)

    def _row(
        self, row: Sequence[str], firsts: list[int], last: int, indent: int, *, dim: bool = False
    ) -> None:
        columns = [_lines(cell) for cell in row[:-1]]
        columns.append([part for line in _lines(row[-1]) for part in _wrapped(line, last)])
        for at in range(max(map(len, columns))):
            cells = [column[at] if at < len(column) else "" for column in columns]
            padded = [
                self.styled(cell, dim=True) if dim else self._first(n, cell)
                for n, cell in enumerate(cells)
            ]
            gaps = [" " * (firsts[n] - width(cell) + 2) for n, cell in enumerate(cells[:-1])]
            text = "".join(a + b for a, b in zip(padded, [*gaps, ""], strict=True))
            self._write(" " * indent + text.rstrip())

    def _first(self, column: int, cell: str) -> str:
        return self.styled(cell, bold=True) if column == 0 else cell

    def _write(self, text: str) -> None:
        click.echo(text, color=self.colour)

    # Beside the result

    def note(self, text: str, **style: Any) -> None:
        """Write a line to stderr, with breaks between words where the terminal ends."""
        shown = for_stderr(text)
        if style and self._note_colour:
            shown = click.style(shown, **style)
        click.echo(shown, err=True, color=self._note_colour)

    def warning(self, text: str) -> None:
        """Write a line to stderr that something may be wrong."""
        self.note(text, fg="yellow")


def folded(text: str, columns: int, hang: int = 0) -> str:
    """Return text with lines of at most so many columns, broken between words only.

    What people copy stays whole: addresses, paths, and what stands between backticks.

    Args:
        text: the text; what continues a line has its indent.
        columns: of the terminal.
        hang: columns by which it is indented further.
    """
    lines = []
    text = _CODE.sub(lambda found: found[0].replace(" ", _KEPT), text)
    for line in text.split("\n"):
        indent = " " * (len(line) - len(line.lstrip(" ")) + hang)
        if width(line) <= columns or len(indent) + _NARROW > columns:
            lines.append(line)
        else:
            lines += textwrap.wrap(
                line,
                columns,
                subsequent_indent=indent,
                break_long_words=False,
                break_on_hyphens=False,
            )
    return "\n".join(lines).replace(_KEPT, " ")


def for_stderr(text: object, hang: int = 0) -> str:
    """Return text as it is written to stderr: clean, and folded to a terminal.

    Args:
        text: the text.
        hang: columns by which what continues a line is indented.
    """
    if not sys.stderr.isatty():
        return clean(text)
    return folded(clean(text), shutil.get_terminal_size().columns, hang)


def _encoded(value: Any) -> bytes:
    import msgspec

    return msgspec.json.encode(value, enc_hook=str)


def _lines(cell: str) -> list[str]:
    return cell.splitlines() or [""]


def _wrapped(line: str, columns: int) -> list[str]:
    if width(line) <= columns:
        return [line]
    return textwrap.wrap(line, columns, break_on_hyphens=False) or [""]
