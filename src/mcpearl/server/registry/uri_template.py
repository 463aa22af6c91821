"""URI templates: `expand` as in RFC 6570, all four levels, and `match` as its inverse.

The RFC does not define matching. Here it routes `resources/read`, so safety decides what a variable may
contain. This module does not read resources and does not know servers.

A template becomes a flat list of pieces. If the next character always decides which piece follows, the
list becomes one regular expression that never backtracks; otherwise `_align` does the same in one pass
per piece. In both cases the time is linear in the length of the URI.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import NamedTuple
from urllib.parse import unquote

from mcpearl.server.registry.normal_uri import MAX_URI, normal_uri
from mcpearl.server.registry.uri_expression import (
    BARE_PERCENT,
    Expression,
    Operator,
    Part,
    TemplateError,
    Value,
    Variable,
    expand,
    parse,
)

__all__ = ["MAX_URI", "Matched", "TemplateError", "UriTemplate", "Value"]

Matched = str | list[str] | dict[str, str]

# Not allowed in decoded values: they could leave a path segment, or forge a line in a log.
_UNSAFE = re.compile(r"[/\\\x00-\x1f\x7f-\x9f]|\A\.\.?\Z")
_UNSAFE_PATH = re.compile(r"[\\\x00-\x1f\x7f-\x9f]|(?:\A|/)\.\.?(?:/|\Z)")


class _RefusedValue(ValueError):
    """The URI has the shape of the template, but one of its values is not allowed."""


class _Capture(NamedTuple):
    """At least one character, none of them in `ends`: one value, or all of a named expression."""

    operator: Operator
    variables: tuple[Variable, ...]
    ends: str

    def characters(self) -> str:
        """Return a regular expression class of these characters."""
        return rf"[^{re.escape(self.ends)}\\\x00-\x1f\x7f]"


class _Optional(NamedTuple):
    """The pieces up to `end` may be absent. The first of them is the literal `lead`."""

    lead: str
    end: int


_Piece = str | _Capture | _Optional
_Found = list[tuple[Variable, Matched]]


class UriTemplate:
    """A parsed template, to expand and to match.

        template = UriTemplate("weather://{city}/now{?units,days}")
        template.expand({"city": "Oslo", "units": "metric"})  # "weather://Oslo/now?units=metric"
        template.match("weather://Oslo/now?units=metric")  # {"city": "Oslo", "units": "metric"}

    In a match, `{a}` and `{+a}` contain at least one character. Other expressions may be absent, and
    their variables are then missing in the result. An exploded variable is a list, or a dict if every
    part has the form `key=value`. If several readings are possible, earlier variables are as long as
    possible without leaving out the expression right after them. A value of `{+a}` may begin with
    `/`: code that uses it as a relative path must check that.
    """

    __slots__ = ("_captures", "_groups", "_parts", "specificity", "text", "variables")

    def __init__(self, text: str) -> None:
        self.text = text
        self._parts = parse(text)
        every = [v.name for e in self._parts if isinstance(e, Expression) for v in e.variables]
        self.variables = tuple(dict.fromkeys(every))
        # Smaller is more specific: more literal text, fewer variables, fewer `{+a}`, then by text.
        self.specificity = (
            -sum(len(part) for part in self._parts if isinstance(part, str)),
            len(self.variables),
            sum(e.operator.reserved for e in self._parts if isinstance(e, Expression)),
            text,
        )
        pieces = _pieces(
            [normal_uri(part) if isinstance(part, str) else part for part in self._parts]
        )
        self._captures = tuple(piece for piece in pieces if isinstance(piece, _Capture))
        self._groups = _matcher(pieces)

    def __repr__(self) -> str:
        return f"UriTemplate({self.text!r})"

    def expand(self, values: Mapping[str, Value]) -> str:
        """Return the URI for these values. None, a missing name, `[]` and `{}` are undefined."""
        return "".join(
            part if isinstance(part, str) else expand(part, values) for part in self._parts
        )

    def match(self, uri: str) -> dict[str, Matched] | None:
        """Return the decoded values in `uri`, or None if it does not match."""
        if len(uri) > MAX_URI:
            return None
        try:
            uri = normal_uri(uri)
            if len(uri) > MAX_URI:
                return None
            if "%" in uri and BARE_PERCENT.search(uri):
                return None
            groups = self._groups(uri)
            if groups is None:
                return None
            found: _Found = []
            for capture, group in zip(self._captures, groups, strict=True):
                if group is not None:
                    found += _read(capture, group)
        except (_RefusedValue, UnicodeError):
            return None
        values = {variable.name: value for variable, value in found}
        return values if len(values) == len(found) else _agreed(found)


def _pieces(parts: list[Part]) -> list[_Piece]:
    """Return the pieces that a matching URI consists of, from left to right."""
    pieces: list[_Piece] = []
    in_query = False
    for part in parts:
        last = pieces[-1] if pieces else None
        if isinstance(part, str):
            in_query = in_query or "?" in part
            pieces.append(part)
        elif not part.operator.named:
            pieces += _values(part, len(pieces), in_query)
        elif isinstance(last, _Capture) and last.operator.separator == part.operator.first == "&":
            # One query, so that its parameters may be in any order.
            pieces[-1] = last._replace(variables=last.variables + part.variables)
        else:
            lead, ends = part.operator.first, part.operator.ends
            pieces += [_Optional(lead, len(pieces) + 3), lead, _Capture(*part, ends)]
    return pieces


def _values(expression: Expression, start: int, in_query: bool) -> Iterator[_Piece]:
    """Yield the pieces, from index `start` on, of an expression with unnamed values."""
    operator, variables = expression
    lead, ends = operator.first, operator.ends
    if in_query and not operator.reserved:
        ends += "&"
    for variable in variables:
        if operator.first:
            yield _Optional(lead, start + 3 * len(variables))
        if lead:
            yield lead
        lead = operator.separator
        one = variable.explode or (len(variables) == 1 and lead != "/")
        yield _Capture(operator, (variable,), ends if one else ends + lead)


def _matcher(pieces: list[_Piece]) -> Callable[[str], Sequence[str | None] | None]:
    """Return a function from a URI to the text of each capture, or to None."""
    pattern = _pattern(pieces)
    if pattern is None:
        return lambda uri: _align(pieces, uri)
    fullmatch = re.compile(pattern).fullmatch
    return lambda uri: found.groups() if (found := fullmatch(uri)) else None


def _pattern(pieces: list[_Piece]) -> str | None:
    """Return the pieces as a regular expression, or None if it would have to backtrack."""
    pattern = ""
    ends: list[int] = []
    for index, piece in enumerate(pieces):
        pattern += ")?" * ends.count(index)
        if isinstance(piece, str):
            pattern += re.escape(piece)
        elif isinstance(piece, _Optional):
            following = _following(pieces, piece.end)
            if following is None or piece.lead in following:
                return None
            pattern += "(?:"
            ends.append(piece.end)
        else:
            following = _following(pieces, index + 1)
            if following is not None and set(following) <= set(piece.ends):
                pattern += f"({piece.characters()}++)"
            elif index == len(pieces) - 2 and isinstance(pieces[-1], str):
                pattern += f"({piece.characters()}+)"  # backtracks no further than the last literal
            else:
                return None
    return pattern + ")?" * ends.count(len(pieces))


def _following(pieces: list[_Piece], index: int) -> str | None:
    """Return the characters that may follow at this piece, or None if any may."""
    characters = ""
    while index < len(pieces):
        piece = pieces[index]
        if isinstance(piece, _Capture):
            return None
        if isinstance(piece, str):
            return characters + piece[0]
        characters += piece.lead
        index = piece.end
    return characters


def _align(pieces: list[_Piece], uri: str) -> list[str | None] | None:
    """Match a URI that could be split in several ways: mark from the end, walk from the start."""
    marks = _marks(pieces, uri)
    return _walk(pieces, uri, marks) if marks[0] >> len(uri) else None


def _marks(pieces: list[_Piece], uri: str) -> list[int]:
    """Return for each piece the positions from which it and all after it can be read.

    A set of positions is one integer. Its lowest bit is the end of the URI, so a left shift moves
    all positions one step towards the start.
    """
    octets = uri.encode()
    percent = _places(octets, "%")
    cuts = ~(percent >> 1 | percent >> 2)  # no variable ends inside a percent triplet
    marks = [0] * len(pieces) + [1]
    for index in reversed(range(len(pieces))):
        piece, mark = pieces[index], marks[index + 1]
        if isinstance(piece, str):
            for character in reversed(piece):
                mark = mark << 1 & _places(octets, re.escape(character))
        elif isinstance(piece, _Capture):
            inside = _places(octets, piece.characters())
            last = mark << 1 & inside
            # The carry of the addition runs from each last character to the start of its run.
            mark = ((last + inside) ^ inside | last) & inside
        else:
            mark |= marks[piece.end]
        marks[index] = mark & cuts
    return marks


def _places(octets: bytes, pattern: str) -> int:
    return int(octets.translate(_digits(pattern)) + b"0", 2)


@cache
def _digits(pattern: str) -> bytes:
    """Return a table that maps characters of the pattern to 1 and all others to 0."""
    return bytes(b"01"[re.match(pattern, chr(code)) is not None] for code in range(256))


def _walk(pieces: list[_Piece], uri: str, marks: list[int]) -> list[str | None]:
    """Go from mark to mark. All of them lead to the end, so there is no backtracking."""
    taken: dict[int, str] = {}
    at = index = 0
    while index < len(pieces):
        piece = pieces[index]
        index += 1
        if isinstance(piece, str):
            at += len(piece)
        elif isinstance(piece, _Capture):
            run = re.compile(piece.characters() + "+").match(uri, at)
            reach = (len(uri), at, run.end() if run else at)
            end = at
            if index < len(pieces) and isinstance(pieces[index], _Optional):
                # Prefer a shorter value if the expression after it then has one too.
                end = _farthest(marks[index + 1], *reach)
            if end == at:
                end = _farthest(marks[index], *reach)
            taken[index - 1] = uri[at:end]
            at = end
        elif not marks[index] >> (len(uri) - at) & 1:
            index = piece.end
    return [taken.get(i) for i, piece in enumerate(pieces) if isinstance(piece, _Capture)]


def _farthest(places: int, size: int, start: int, stop: int) -> int:
    """Return the last position after `start` and up to `stop`, or `start` if there is none."""
    within = places >> (size - stop) & ((1 << (stop - start)) - 1)
    return stop + 1 - (within & -within).bit_length() if within else start


def _read(capture: _Capture, text: str) -> _Found:
    """Return the decoded values in the text of a capture. Raises `_RefusedValue`."""
    operator, variables, _ = capture
    if operator.named:
        return _parameters(operator, variables, text)
    variable = variables[0]
    if not variable.explode:
        return [(variable, _scalar(operator, variable, text))]
    items = text.split(operator.separator)
    if "" in items:
        raise _RefusedValue
    if all("=" in item for item in items):
        return [(variable, _pairs(operator, [item.partition("=") for item in items]))]
    return [(variable, [_decoded(operator, item) for item in items])]


def _parameters(operator: Operator, variables: tuple[Variable, ...], text: str) -> _Found:
    given: dict[str, list[str]] = {variable.name: [] for variable in variables}
    others: list[tuple[str, str, str]] = []
    for parameter in text.split(operator.separator):
        name, equals, value = parameter.partition("=")
        if name in given:
            given[name].append(value)
        elif parameter:
            others.append((name, equals, value))
    found: _Found = []
    for variable in variables:
        values = given[variable.name]
        if variable.explode and values:
            found.append((variable, [_decoded(operator, value) for value in values]))
        elif variable.explode and others:
            found.append((variable, _pairs(operator, others)))
            others = []
        elif len(values) == 1:
            found.append((variable, _scalar(operator, variable, values[0])))
        elif values:
            raise _RefusedValue  # a parameter is repeated
    if others and operator.first == ";":
        raise _RefusedValue
    return found


def _scalar(operator: Operator, variable: Variable, text: str) -> str:
    value = _decoded(operator, text)
    if variable.prefix and len(value) > variable.prefix:
        raise _RefusedValue
    return value


def _pairs(operator: Operator, items: list[tuple[str, str, str]]) -> dict[str, str]:
    pairs = {_decoded(operator, key): _decoded(operator, value) for key, _, value in items}
    if len(pairs) < len(items):
        raise _RefusedValue
    return pairs


def _decoded(operator: Operator, text: str) -> str:
    """Decode once, strictly; a value that was encoded twice stays encoded once.

    An escaped `/` does not separate segments; in the decoded value the two could not be distinguished.
    """
    if operator.reserved and "%2F" in text:
        raise _RefusedValue
    value = unquote(text, errors="strict") if "%" in text else text
    if (_UNSAFE_PATH if operator.reserved else _UNSAFE).search(value):
        raise _RefusedValue
    return value


def _agreed(found: _Found) -> dict[str, Matched] | None:
    """Return the values of repeated variables if all their occurrences agree, or None."""
    found = sorted(found, key=lambda pair: pair[0].prefix or MAX_URI + 1)
    values = {variable.name: value for variable, value in found}
    for variable, value in found:
        whole = values[variable.name]
        shown = whole[: variable.prefix] if variable.prefix and isinstance(whole, str) else whole
        if shown != value:
            return None
    return values
