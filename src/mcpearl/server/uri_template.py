"""URI templates of RFC 6570, all four levels: `expand` as the RFC has it, `match` as its inverse.

The RFC leaves matching open; here it serves to route `resources/read`, so what a variable may hold
is decided by safety first. Nothing here reads a resource or knows of a server.

A template becomes a flat row of pieces. Where the next character always says which piece goes on,
the row is one regular expression that never backtracks; otherwise `_align` does the same work in
one pass per piece. Either way the time grows with the length of the URI and no faster.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import quote, unquote

MAX_URI = 8192

Value = str | int | float | bool | list[str] | dict[str, str] | None
Matched = str | list[str] | dict[str, str]

_RESERVED = ":/?#[]@!$&'()*+,;="
_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")
_BARE_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
_TOKEN = re.compile(r"\{([^{}]*)\}|([^{}]+)|[{}]")
_NO_LITERAL = re.compile(r'[\x00-\x20"<>\\^`|\x7f-\x9f\ud800-\udfff]|%(?![0-9A-Fa-f]{2})')
_NAME_CHARACTER = r"(?:[A-Za-z0-9_]|%[0-9A-Fa-f]{2})"
_VARIABLE = re.compile(
    rf"({_NAME_CHARACTER}(?:\.?{_NAME_CHARACTER})*)(?:(\*)|:([1-9][0-9]{{0,3}}))?"
)

# What no decoded value may hold: it could leave its segment, or its line in somebody's log.
_UNSAFE = re.compile(r"[/\\\x00-\x1f\x7f-\x9f]|\A\.\.?\Z")
_UNSAFE_PATH = re.compile(r"[\\\x00-\x1f\x7f-\x9f]|(?:\A|/)\.\.?(?:/|\Z)")


class TemplateError(ValueError):
    """A template that breaks the grammar of RFC 6570: what is wrong, and where."""


class _Refused(ValueError):
    """The URI has the shape of the template, but a value in it is not acceptable."""


class _Operator(NamedTuple):
    first: str
    separator: str
    named: bool
    if_empty: str
    reserved: bool
    ends: str  # the raw characters that no match goes past


# Appendix A of the RFC, and the last column ours.
_OPERATORS = {
    "": _Operator("", ",", False, "", False, "/?#"),
    "+": _Operator("", ",", False, "", True, "?#"),
    "#": _Operator("#", ",", False, "", True, ""),
    ".": _Operator(".", ".", False, "", False, "/?#"),
    "/": _Operator("/", "/", False, "", False, "?#"),
    ";": _Operator(";", ";", True, "", False, "/?#"),
    "?": _Operator("?", "&", True, "=", False, "#"),
    "&": _Operator("&", "&", True, "=", False, "#"),
}


class _Variable(NamedTuple):
    name: str
    explode: bool
    prefix: int  # the most characters it shows, or 0 for all


class _Expression(NamedTuple):
    operator: _Operator
    variables: tuple[_Variable, ...]


class _Capture(NamedTuple):
    """At least one character, none of them in `ends`: a value, or all of a named expression."""

    operator: _Operator
    variables: tuple[_Variable, ...]
    ends: str

    def characters(self) -> str:
        return rf"[^{re.escape(self.ends)}\\\x00-\x1f\x7f]"


class _Optional(NamedTuple):
    """The pieces up to `end` are there or not. The first of them is the literal `lead`."""

    lead: str
    end: int


_Piece = str | _Capture | _Optional
_Found = list[tuple[_Variable, Matched]]


class UriTemplate:
    """One template, parsed once, to expand and to match.

        template = UriTemplate("weather://{city}/now{?units,days}")
        template.expand({"city": "Oslo", "units": "metric"})  # "weather://Oslo/now?units=metric"
        template.match("weather://Oslo/now?units=metric")  # {"city": "Oslo", "units": "metric"}

    In a match, `{a}` and `{+a}` hold at least one character. The other expressions may be absent,
    and then so are their variables in the result. An exploded variable is a list, or a dict where
    every part reads `key=value`. Where several readings fit, an earlier variable takes the most.
    A value of `{+a}` may begin with `/`: it stays below a directory only if joined as a string.
    """

    __slots__ = ("_captures", "_groups", "_parts", "specificity", "text", "variables")

    def __init__(self, text: str) -> None:
        self.text = text
        self._parts = _parse(text)
        every = [v.name for e in self._parts if isinstance(e, _Expression) for v in e.variables]
        self.variables = tuple(dict.fromkeys(every))
        # The least is the most specific: of equals the one with fewer `{+a}`, then by its text.
        self.specificity = (
            -sum(len(part) for part in self._parts if isinstance(part, str)),
            len(self.variables),
            sum(e.operator.reserved for e in self._parts if isinstance(e, _Expression)),
            text,
        )
        pieces = _pieces(self._parts)
        self._captures = tuple(piece for piece in pieces if isinstance(piece, _Capture))
        self._groups = _matcher(pieces)

    def __repr__(self) -> str:
        return f"UriTemplate({self.text!r})"

    def expand(self, values: Mapping[str, Value]) -> str:
        """Give the URI for these values. None, an absent name, `[]` and `{}` are undefined."""
        return "".join(
            part if isinstance(part, str) else _expand(part, values) for part in self._parts
        )

    def match(self, uri: str) -> dict[str, Matched] | None:
        """Give the decoded values that `uri` holds, or None where it is not of this template."""
        if len(uri) > MAX_URI:
            return None
        try:
            if not uri.isascii():
                uri = _NOT_ASCII.sub(lambda found: quote(found[0]), uri)
            if "%" in uri and _BARE_PERCENT.search(uri):
                return None
            groups = self._groups(uri)
            if groups is None:
                return None
            found: _Found = []
            for capture, group in zip(self._captures, groups, strict=True):
                if group is not None:
                    found += _read(capture, group)
        except (_Refused, UnicodeError):
            return None
        values = {variable.name: value for variable, value in found}
        return values if len(values) == len(found) else _agreed(found)


def _parse(text: str) -> list[str | _Expression]:
    """Cut a template into literals, encoded as the RFC asks, and expressions."""
    parts: list[str | _Expression] = []
    for token in _TOKEN.finditer(text):
        inside, literal = token.groups()
        if inside is not None:
            parts.append(_expression(text, token.start(1), inside))
        elif literal is None:
            raise _error(text, token.start(), f"a {token[0]!r} without its pair")
        else:
            wrong = _NO_LITERAL.search(literal)
            if wrong:
                at = token.start() + wrong.start()
                raise _error(text, at, f"{wrong[0]!r} cannot stand in a URI; percent-encode it")
            parts.append(quote(literal, safe=_RESERVED + "%"))
    return parts


def _expression(text: str, at: int, inside: str) -> _Expression:
    symbol = inside[:1] if inside[:1] in _OPERATORS else ""
    at += len(symbol)
    variables = []
    for spec in inside[len(symbol) :].split(","):
        read = _VARIABLE.fullmatch(spec)
        if read is None:
            raise _error(text, at, f"{spec!r} is not a variable" if spec else "no variable")
        variables.append(_Variable(read[1], read[2] is not None, int(read[3] or 0)))
        at += len(spec) + 1
    return _Expression(_OPERATORS[symbol], tuple(variables))


def _error(text: str, at: int, reason: str) -> TemplateError:
    return TemplateError(f"{reason}, at offset {at} of the URI template {text!r}")


def _expand(expression: _Expression, values: Mapping[str, Value]) -> str:
    operator, variables = expression
    shown = [text for v in variables for text in _shown(operator, v, values.get(v.name))]
    return operator.first + operator.separator.join(shown) if shown else ""


def _shown(operator: _Operator, variable: _Variable, value: Value) -> list[str]:
    """Give what one variable adds to its expression: the terms to be joined, or none."""
    if value is None or value == [] or value == {}:
        return []
    name, explode, prefix = variable
    if not isinstance(value, list | dict):
        text = _encoded(operator, _text(value)[: prefix or None])
    elif prefix:
        raise TypeError(f"{name!r} is shown by its prefix, so it cannot be a list or a dict")
    elif isinstance(value, dict):
        pairs = [(_encoded(operator, k), _encoded(operator, v)) for k, v in value.items()]
        if explode and operator.named:
            return [_named(operator, *pair) for pair in pairs]
        if explode:
            return ["=".join(pair) for pair in pairs]
        text = ",".join(",".join(pair) for pair in pairs)
    else:
        items = [_encoded(operator, item) for item in value]
        if explode:
            return [_named(operator, name, item) for item in items] if operator.named else items
        text = ",".join(items)
    return [_named(operator, name, text) if operator.named else text]


def _text(value: str | float) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _named(operator: _Operator, name: str, text: str) -> str:
    return f"{name}={text}" if text else name + operator.if_empty


def _encoded(operator: _Operator, text: str) -> str:
    if operator.reserved:
        return quote(_BARE_PERCENT.sub("%25", text), safe=_RESERVED + "%")
    return quote(text, safe="")


def _pieces(parts: list[str | _Expression]) -> list[_Piece]:
    """Lay the template out as what a URI of it holds, from left to right."""
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
            # One query, so that its parameters come in any order.
            pieces[-1] = last._replace(variables=last.variables + part.variables)
        else:
            lead, ends = part.operator.first, part.operator.ends
            pieces += [_Optional(lead, len(pieces) + 3), lead, _Capture(*part, ends)]
    return pieces


def _values(expression: _Expression, start: int, in_query: bool) -> Iterator[_Piece]:
    """Give the pieces, from index `start` on, of an expression whose values stand without names."""
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
    """Give the function from a URI to the text of each capture, or to None."""
    pattern = _pattern(pieces)
    if pattern is None:
        return lambda uri: _align(pieces, uri)
    fullmatch = re.compile(pattern).fullmatch
    return lambda uri: found.groups() if (found := fullmatch(uri)) else None


def _pattern(pieces: list[_Piece]) -> str | None:
    """Give the pattern of the pieces, or None where it would have to try one end after another."""
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
                pattern += f"({piece.characters()}+)"  # gives back no more than the last literal
            else:
                return None
    return pattern + ")?" * ends.count(len(pieces))


def _following(pieces: list[_Piece], index: int) -> str | None:
    """Give the characters that may come next at this piece; None where that is any."""
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
    """Read a URI that could be cut in several ways.

    From the last piece to the first, mark each place from which the rest can be read. Then walk
    forward from mark to mark: no step is ever taken back.
    """
    marks = [bytearray(len(uri) + 1) for _ in range(len(pieces) + 1)]
    marks[-1][-1] = 1
    triplets = [triplet.start() for triplet in re.finditer("%", uri)]
    for index in reversed(range(len(pieces))):
        _mark(pieces[index], uri, marks, index)
        for at in triplets:
            marks[index][at + 1 : at + 3] = b"\0\0"
    return _walk(pieces, uri, marks) if marks[0][0] else None


def _mark(piece: _Piece, uri: str, marks: list[bytearray], index: int) -> None:
    here, after = marks[index], marks[index + 1]
    if isinstance(piece, str):
        at = uri.find(piece)
        while at >= 0:
            here[at] = after[at + len(piece)]
            at = uri.find(piece, at + 1)
    elif isinstance(piece, _Capture):
        for run in re.finditer(piece.characters() + "+", uri):
            start = run.start()
            last = after.rfind(1, start + 1, run.end() + 1)
            if last > 0:
                here[start:last] = b"\1" * (last - start)
    else:
        here[:] = bytes(map(max, after, marks[piece.end]))


def _walk(pieces: list[_Piece], uri: str, marks: list[bytearray]) -> list[str | None]:
    taken: dict[int, str] = {}
    at = index = 0
    while index < len(pieces):
        piece = pieces[index]
        index += 1
        if isinstance(piece, str):
            at += len(piece)
        elif isinstance(piece, _Capture):
            run = re.compile(piece.characters() + "+").match(uri, at)
            bounds = (at + 1, run.end() + 1 if run else at)
            end = marks[index].rfind(1, *bounds)
            if isinstance(pieces[index], _Optional):
                # Rather less of this and something of the expression after it.
                end = max(marks[index + 1].rfind(1, *bounds), 0) or end
            taken[index - 1] = uri[at:end]
            at = end
        elif not marks[index][at]:
            index = piece.end
    return [taken.get(i) for i, piece in enumerate(pieces) if isinstance(piece, _Capture)]


def _read(capture: _Capture, text: str) -> _Found:
    """Give the values in the text of a capture, decoded; raise where one is refused."""
    operator, variables, _ = capture
    if operator.named:
        return _parameters(operator, variables, text)
    variable = variables[0]
    if not variable.explode:
        return [(variable, _scalar(operator, variable, text))]
    items = text.split(operator.separator)
    if "" in items:
        raise _Refused
    if all("=" in item for item in items):
        return [(variable, _pairs(operator, [item.partition("=") for item in items]))]
    return [(variable, [_decoded(operator, item) for item in items])]


def _parameters(operator: _Operator, variables: tuple[_Variable, ...], text: str) -> _Found:
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
            raise _Refused  # two answers to one question
    if others and operator.first == ";":
        raise _Refused
    return found


def _scalar(operator: _Operator, variable: _Variable, text: str) -> str:
    value = _decoded(operator, text)
    if variable.prefix and len(value) > variable.prefix:
        raise _Refused
    return value


def _pairs(operator: _Operator, items: list[tuple[str, str, str]]) -> dict[str, str]:
    pairs = {_decoded(operator, key): _decoded(operator, value) for key, _, value in items}
    if len(pairs) < len(items):
        raise _Refused
    return pairs


def _decoded(operator: _Operator, text: str) -> str:
    """Decode once, strictly; what is encoded twice stays encoded once."""
    value = unquote(text, errors="strict") if "%" in text else text
    if (_UNSAFE_PATH if operator.reserved else _UNSAFE).search(value):
        raise _Refused
    return value


def _agreed(found: _Found) -> dict[str, Matched] | None:
    """Give the values of variables that stand more than once, if all their places agree."""
    found = sorted(found, key=lambda pair: pair[0].prefix or MAX_URI)
    values = {variable.name: value for variable, value in found}
    for variable, value in found:
        whole = values[variable.name]
        if (
            whole[: variable.prefix] if isinstance(whole, str) and variable.prefix else whole
        ) != value:
            return None
    return values
