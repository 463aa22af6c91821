"""URI templates: the first line is a template, the second a URI.

What matches expands again, to a URI that matches; with the same values, unless the template can be read
in several ways. Values are safe to use in a path; equal spellings of a URI match alike.
"""

import re

from mcpearl.server.registry import uri_template
from mcpearl.server.registry.normal_uri import MAX_URI, normal_uri
from mcpearl.server.registry.uri_expression import Expression, parse
from mcpearl.server.registry.uri_template import Matched, TemplateError, UriTemplate
from tests.fuzz.target import Target, require

_CONTROL = re.compile(r"[\\\x00-\x1f\x7f-\x9f]")


def check(data: bytes) -> None:
    template_text, _, uri = data.decode("utf-8", "replace").partition("\n")
    normal = normal_uri(uri)
    if len(normal) <= MAX_URI:
        require(normal_uri(normal) == normal, "a normal URI has another normal form")
        require(len(uri) > MAX_URI or normal.isascii(), "a normal URI is not ASCII")
    try:
        template = UriTemplate(template_text)
    except TemplateError:
        return
    found = template.match(uri)
    require(template.match(normal) == found or len(normal) > MAX_URI, "the spelling matters")
    if found is None:
        return
    require(set(found) <= set(template.variables), "a variable that the template does not have")
    for value in found.values():
        flat = [value] if isinstance(value, str) else [*value]
        flat += value.values() if isinstance(value, dict) else []
        for text in flat:
            require(not _CONTROL.search(text), "a control character in a value")
            segments = text.split("/")
            require(".." not in segments and "." not in segments, "a value leaves its folder")
    expanded = template.expand(dict(found))
    if len(expanded) <= MAX_URI:
        _agree(template, found, template.match(expanded))


def _agree(template: UriTemplate, found: dict[str, Matched], again: object) -> None:
    """Compare the values of a URI with those of what they expand to."""
    parts = parse(template.text)
    names = [v.name for part in parts if isinstance(part, Expression) for v in part.variables]
    if len(names) > len(set(names)):
        return  # a variable that was found in one place expands in all of its places
    operators = [part.operator for part in parts if isinstance(part, Expression)]
    # `{+a}` and `{#a}` expand without escaping, so they cannot write these as parts of a value.
    if any(each.reserved for each in operators) and set(repr([*found.values()])) & set("%?#=&"):
        return
    if any(each.first == "&" for each in operators):
        return  # `{?a}{&b}` matches `?b=1`, and expands to `&b=1` without a value for `a`
    require(again is not None, "what was expanded does not match")
    one_way = uri_template._pattern(uri_template._pieces(parts)) is not None
    require(again == found or not one_way, "expand and match differ")


def read(data: bytes) -> None:
    template, _, uri = data.decode("utf-8", "replace").partition("\n")
    try:
        UriTemplate(template[:1000]).match(uri[:MAX_URI])
    except TemplateError:
        pass


WORDS = (
    *(b"{%c%s}" % (each, name) for each in b"+#./;?&" for name in (b"a", b"b*", b"c:3", b"d,e")),
    b"{a}",
    b"%2F",
    b"%2E",
    b"%25",
    b"a=b",
    b"note://",
    b"..",
)
TARGET = Target("uri-templates", check, WORDS, read)
