"""The text of a file that is changed in places, and the list of what is left to do by hand."""

import ast
from typing import NamedTuple


class Leftover(NamedTuple):
    """Something that has to be changed by hand."""

    line: int
    text: str


class _Edit(NamedTuple):
    begin: int
    end: int
    text: str


class SourceFile:
    """The source of one file, its edits, and what no edit was found for."""

    def __init__(self, text: str) -> None:
        self._bytes = text.encode()
        self._lines = [0]
        for line in self._bytes.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))
        self._edits: list[_Edit] = []
        self._dropped: set[int] = set()  # keyword arguments, by identity
        self.leftovers: list[Leftover] = []

    def text(self) -> str:
        """Return the source with all edits; edits inside of others do not happen."""
        result, at = bytearray(), 0
        for edit in sorted(
            self._edits, key=lambda edit: (edit.begin, edit.end != edit.begin, -edit.end)
        ):
            if edit.begin < at:
                continue
            result += self._bytes[at : edit.begin] + edit.text.encode()
            at = edit.end
        return (bytes(result) + self._bytes[at:]).decode()

    def span(self, node: ast.AST) -> tuple[int, int]:
        """Return where a node begins and ends."""
        begin = self._lines[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined]
        end = self._lines[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined]
        return begin, end

    def of(self, node: ast.AST) -> str:
        """Return the source of a node."""
        begin, end = self.span(node)
        return self._bytes[begin:end].decode()

    def find(self, text: str, begin: int) -> int:
        """Return where a text is next."""
        return self._bytes.index(text.encode(), begin)

    def line_begin(self, line: int) -> int:
        """Return where a line begins; past the last one, the end."""
        return self._lines[min(line - 1, len(self._lines) - 1)]

    def edit(self, begin: int, end: int, text: str) -> None:
        """Replace what is between two places."""
        self._edits.append(_Edit(begin, end, text))

    def replace(self, node: ast.AST, text: str) -> None:
        """Replace a node."""
        self.edit(*self.span(node), text)

    def remove_lines(self, first: int, last: int) -> None:
        """Remove lines, the last included."""
        self.edit(self.line_begin(first), self.line_begin(last + 1), "")

    def rename_member(self, node: ast.Attribute, name: str) -> None:
        """Replace the name after the dot."""
        _, end = self.span(node)
        self.edit(end - len(node.attr.encode()), end, name)

    def rename_keyword(self, keyword: ast.keyword, name: str) -> None:
        """Replace the name of a keyword argument."""
        begin, _ = self.span(keyword)
        self.edit(begin, begin + len((keyword.arg or "").encode()), name)

    def drop_keyword(self, node: ast.Call, keyword: ast.keyword) -> None:
        """Remove a keyword argument, with the comma before it or, of the first argument, after it.

        Of several arguments, the first in the source is removed first.
        """
        self._dropped.add(id(keyword))
        begin, end = self.span(keyword)
        number = node.keywords.index(keyword)
        earlier = [each for each in node.keywords[:number] if id(each) not in self._dropped]
        before = [self.span(each)[1] for each in (*node.args, *earlier)]
        if before:
            begin = max(before)
        elif number + 1 < len(node.keywords):
            end = self.span(node.keywords[number + 1])[0]
        self.edit(begin, end, "")

    def add_arguments(self, node: ast.Call, text: str) -> None:
        """Add arguments behind those that a call has."""
        given = [*node.args, *node.keywords]
        if given:
            last = max(self.span(each)[1] for each in given)
            self.edit(last, last, f", {text}")
        else:
            at = self.find("(", self.span(node.func)[1]) + 1
            self.edit(at, at, text)

    def leave(self, node: ast.AST, what: str, advice: str | None) -> None:
        """List something to be done by hand, if there is something to say about it."""
        if advice is not None:
            self.leftovers.append(Leftover(node.lineno, f"{what}: {advice}"))  # type: ignore[attr-defined]
