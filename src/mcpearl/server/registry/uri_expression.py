"""The syntax of RFC 6570: parses URI templates and expands their expressions.

A template is parsed into literals and expressions; each expression expands by one row of a table.
Matching, which the RFC does not define, is in `uri_template`.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import quote

Value = str | int | float | bool | list[str] | dict[str, str] | None

BARE_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")

_RESERVED = ":/?#[]@!$&'()*+,;="
_TOKEN = re.compile(r"\{([^{}]*)\}|([^{}]+)|[{}]")
_NOT_LITERAL = re.compile(r'[\x00-\x20"<>\\^`|\x7f-\x9f\ud800-\udfff]|%(?![0-9A-Fa-f]{2})')
_NAME_CHARACTER = r"(?:[A-Za-z0-9_]|%[0-9A-Fa-f]{2})"
_VARIABLE = re.compile(
    rf"({_NAME_CHARACTER}(?:\.?{_NAME_CHARACTER})*)(?:(\*)|:([1-9][0-9]{{0,3}}))?"
)


class TemplateError(ValueError):
    """A template violates the grammar of RFC 6570. The message says what is wrong, and where."""


class Operator(NamedTuple):
    """How expressions with this operator are written, and what their values may contain."""

    first: str
    separator: str
    named: bool
    if_empty: str
    reserved: bool
    ends: str  # the raw characters at which a match ends


# Appendix A of the RFC; the last column is our own.
_OPERATORS = {
    "": Operator("", ",", False, "", False, "/?#"),
    "+": Operator("", ",", False, "", True, "?#"),
    "#": Operator("#", ",", False, "", True, ""),
    ".": Operator(".", ".", False, "", False, "/?#"),
    "/": Operator("/", "/", False, "", False, "?#"),
    ";": Operator(";", ";", True, "", False, "/?#"),
    "?": Operator("?", "&", True, "=", False, "#"),
    "&": Operator("&", "&", True, "=", False, "#"),
}


class Variable(NamedTuple):
    """A variable name with its modifier."""

    name: str
    explode: bool
    prefix: int  # the maximum number of characters to show, or 0 for all


class Expression(NamedTuple):
    """The text between braces."""

    operator: Operator
    variables: tuple[Variable, ...]


Part = str | Expression


def parse(text: str) -> list[Part]:
    """Split a template into literals, encoded as the RFC demands, and expressions."""
    parts: list[Part] = []
    for token in _TOKEN.finditer(text):
        inside, literal = token.groups()
        if inside is not None:
            parts.append(_expression(text, token.start(1), inside))
        elif literal is None:
            raise _error(text, token.start(), f"unmatched {token[0]!r}")
        else:
            wrong = _NOT_LITERAL.search(literal)
            if wrong:
                at = token.start() + wrong.start()
                raise _error(text, at, f"{wrong[0]!r} is not allowed in a URI; percent-encode it")
            parts.append(quote(literal, safe=_RESERVED + "%"))
    return parts


def _expression(text: str, at: int, inside: str) -> Expression:
    symbol = inside[:1] if inside[:1] in _OPERATORS else ""
    at += len(symbol)
    variables: list[Variable] = []
    for spec in inside[len(symbol) :].split(","):
        read = _VARIABLE.fullmatch(spec)
        if read is None:
            raise _error(text, at, f"{spec!r} is not a variable" if spec else "no variable")
        variables.append(Variable(read[1], read[2] is not None, int(read[3] or 0)))
        at += len(spec) + 1
    return Expression(_OPERATORS[symbol], tuple(variables))


def _error(text: str, at: int, reason: str) -> TemplateError:
    return TemplateError(f"{reason}, at offset {at} of the URI template {text!r}")


def expand(expression: Expression, values: Mapping[str, Value]) -> str:
    """Return the expansion of an expression; empty if all its variables are undefined."""
    operator, variables = expression
    shown = [text for v in variables for text in _shown(operator, v, values.get(v.name))]
    return operator.first + operator.separator.join(shown) if shown else ""


def _shown(operator: Operator, variable: Variable, value: Value) -> list[str]:
    """Return the terms that one variable adds to its expression."""
    if value is None or value == [] or value == {}:
        return []
    name, explode, prefix = variable
    if not isinstance(value, list | dict):
        text = _encoded(operator, _text(value)[: prefix or None])
    elif prefix:
        raise TypeError(f"{name!r} has a prefix modifier, so it cannot be a list or a dict")
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


def _named(operator: Operator, name: str, text: str) -> str:
    return f"{name}={text}" if text else name + operator.if_empty


def _encoded(operator: Operator, text: str) -> str:
    if operator.reserved:
        return quote(BARE_PERCENT.sub("%25", text), safe=_RESERVED + "%")
    return quote(text, safe="")
