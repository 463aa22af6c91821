"""Templates as tables: what RFC 6570 says they expand to, and what a URI gives back.

The expansions are those of section 3.2 of the RFC, section by section.
"""

import re
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcpearl.server.registry import uri_expression, uri_template
from mcpearl.server.registry.uri_template import MAX_URI, TemplateError, UriTemplate

VARIABLES: dict[str, Any] = {
    "count": ["one", "two", "three"],
    "dom": ["example", "com"],
    "dub": "me/too",
    "hello": "Hello World!",
    "half": "50%",
    "var": "value",
    "who": "fred",
    "base": "http://example.com/home/",
    "path": "/foo/bar",
    "list": ["red", "green", "blue"],
    "keys": {"semi": ";", "dot": ".", "comma": ","},
    "v": "6",
    "x": "1024",
    "y": "768",
    "empty": "",
    "empty_keys": {},
    "undef": None,
}

EXPANSIONS = {
    # 3.2.1 Variable expansion
    "{count}": "one,two,three",
    "{count*}": "one,two,three",
    "{/count}": "/one,two,three",
    "{/count*}": "/one/two/three",
    "{;count}": ";count=one,two,three",
    "{;count*}": ";count=one;count=two;count=three",
    "{?count}": "?count=one,two,three",
    "{?count*}": "?count=one&count=two&count=three",
    "{&count*}": "&count=one&count=two&count=three",
    # 3.2.2 Simple string expansion
    "{var}": "value",
    "{hello}": "Hello%20World%21",
    "{half}": "50%25",
    "O{empty}X": "OX",
    "O{undef}X": "OX",
    "{x,y}": "1024,768",
    "{x,hello,y}": "1024,Hello%20World%21,768",
    "?{x,empty}": "?1024,",
    "?{x,undef}": "?1024",
    "?{undef,y}": "?768",
    "{var:3}": "val",
    "{var:30}": "value",
    "{list}": "red,green,blue",
    "{list*}": "red,green,blue",
    "{keys}": "semi,%3B,dot,.,comma,%2C",
    "{keys*}": "semi=%3B,dot=.,comma=%2C",
    # 3.2.3 Reserved expansion
    "{+var}": "value",
    "{+hello}": "Hello%20World!",
    "{+half}": "50%25",
    "{base}index": "http%3A%2F%2Fexample.com%2Fhome%2Findex",
    "{+base}index": "http://example.com/home/index",
    "O{+empty}X": "OX",
    "O{+undef}X": "OX",
    "{+path}/here": "/foo/bar/here",
    "here?ref={+path}": "here?ref=/foo/bar",
    "up{+path}{var}/here": "up/foo/barvalue/here",
    "{+x,hello,y}": "1024,Hello%20World!,768",
    "{+path,x}/here": "/foo/bar,1024/here",
    "{+path:6}/here": "/foo/b/here",
    "{+list}": "red,green,blue",
    "{+list*}": "red,green,blue",
    "{+keys}": "semi,;,dot,.,comma,,",
    "{+keys*}": "semi=;,dot=.,comma=,",
    # 3.2.4 Fragment expansion
    "{#var}": "#value",
    "{#hello}": "#Hello%20World!",
    "{#half}": "#50%25",
    "foo{#empty}": "foo#",
    "foo{#undef}": "foo",
    "{#x,hello,y}": "#1024,Hello%20World!,768",
    "{#path,x}/here": "#/foo/bar,1024/here",
    "{#path:6}/here": "#/foo/b/here",
    "{#list}": "#red,green,blue",
    "{#list*}": "#red,green,blue",
    "{#keys}": "#semi,;,dot,.,comma,,",
    "{#keys*}": "#semi=;,dot=.,comma=,",
    # 3.2.5 Label expansion with dot-prefix
    "{.who}": ".fred",
    "{.who,who}": ".fred.fred",
    "{.half,who}": ".50%25.fred",
    "www{.dom*}": "www.example.com",
    "X{.var}": "X.value",
    "X{.empty}": "X.",
    "X{.undef}": "X",
    "X{.var:3}": "X.val",
    "X{.list}": "X.red,green,blue",
    "X{.list*}": "X.red.green.blue",
    "X{.keys}": "X.semi,%3B,dot,.,comma,%2C",
    "X{.keys*}": "X.semi=%3B.dot=..comma=%2C",
    "X{.empty_keys}": "X",
    "X{.empty_keys*}": "X",
    # 3.2.6 Path segment expansion
    "{/who}": "/fred",
    "{/who,who}": "/fred/fred",
    "{/half,who}": "/50%25/fred",
    "{/who,dub}": "/fred/me%2Ftoo",
    "{/var}": "/value",
    "{/var,empty}": "/value/",
    "{/var,undef}": "/value",
    "{/var,x}/here": "/value/1024/here",
    "{/var:1,var}": "/v/value",
    "{/list}": "/red,green,blue",
    "{/list*}": "/red/green/blue",
    "{/list*,path:4}": "/red/green/blue/%2Ffoo",
    "{/keys}": "/semi,%3B,dot,.,comma,%2C",
    "{/keys*}": "/semi=%3B/dot=./comma=%2C",
    # 3.2.7 Path-style parameter expansion
    "{;who}": ";who=fred",
    "{;half}": ";half=50%25",
    "{;empty}": ";empty",
    "{;v,empty,who}": ";v=6;empty;who=fred",
    "{;v,bar,who}": ";v=6;who=fred",
    "{;x,y}": ";x=1024;y=768",
    "{;x,y,empty}": ";x=1024;y=768;empty",
    "{;x,y,undef}": ";x=1024;y=768",
    "{;hello:5}": ";hello=Hello",
    "{;list}": ";list=red,green,blue",
    "{;list*}": ";list=red;list=green;list=blue",
    "{;keys}": ";keys=semi,%3B,dot,.,comma,%2C",
    "{;keys*}": ";semi=%3B;dot=.;comma=%2C",
    # 3.2.8 Form-style query expansion
    "{?who}": "?who=fred",
    "{?half}": "?half=50%25",
    "{?x,y}": "?x=1024&y=768",
    "{?x,y,empty}": "?x=1024&y=768&empty=",
    "{?x,y,undef}": "?x=1024&y=768",
    "{?var:3}": "?var=val",
    "{?list}": "?list=red,green,blue",
    "{?list*}": "?list=red&list=green&list=blue",
    "{?keys}": "?keys=semi,%3B,dot,.,comma,%2C",
    "{?keys*}": "?semi=%3B&dot=.&comma=%2C",
    # 3.2.9 Form-style query continuation
    "{&who}": "&who=fred",
    "{&half}": "&half=50%25",
    "?fixed=yes{&x}": "?fixed=yes&x=1024",
    "{&x,y,empty}": "&x=1024&y=768&empty=",
    "{&x,y,undef}": "&x=1024&y=768",
    "{&var:3}": "&var=val",
    "{&list}": "&list=red,green,blue",
    "{&list*}": "&list=red&list=green&list=blue",
    "{&keys}": "&keys=semi,%3B,dot,.,comma,%2C",
    "{&keys*}": "&semi=%3B&dot=.&comma=%2C",
}


@pytest.mark.parametrize(("template", "uri"), EXPANSIONS.items())
def test_expands_as_the_rfc_says(template: str, uri: str) -> None:
    assert UriTemplate(template).expand(VARIABLES) == uri


@pytest.mark.parametrize(
    ("template", "value", "uri"),
    [
        ("{?a}", 3, "?a=3"),
        ("{?a}", 2.5, "?a=2.5"),
        ("{?a}", True, "?a=true"),
        ("{?a}", False, "?a=false"),
        ("{?a}", 0, "?a=0"),
        ("{?a*}", [], ""),
        ("{?a*}", ["", "x"], "?a=&a=x"),
        ("{;a*}", {"k": ""}, ";k"),
        ("{a:2}", "åäö", "%C3%A5%C3%A4"),
        ("{+a}", "%41%4", "%41%254"),
        ("høy/%20/{a}", "x", "h%C3%B8y/%20/x"),
    ],
)
def test_expands_other_values(template: str, value: Any, uri: str) -> None:
    assert UriTemplate(template).expand({"a": value}) == uri


@pytest.mark.parametrize("value", [["x"], {"k": "v"}])
def test_a_prefix_of_a_composite_value_is_a_type_error(value: Any) -> None:
    with pytest.raises(TypeError, match="'a'"):
        UriTemplate("{a:3}").expand({"a": value})


@pytest.mark.parametrize(
    ("template", "offset"),
    [
        ("x{a", 1),
        ("xa}", 2),
        ("x{a{b}}", 1),
        ("{}", 1),
        ("{?}", 2),
        ("{a,}", 3),
        ("{a, b}", 3),
        ("{=a}", 1),
        ("{|a}", 1),
        ("{!a}", 1),
        ("{/?a}", 2),
        ("{a-b}", 1),
        ("{x..y}", 1),
        ("{x.}", 1),
        ("{%2x}", 1),
        ("{ok,a:0}", 4),
        ("{a:01}", 1),
        ("{a:10000}", 1),
        ("{a:}", 1),
        ("{a:2*}", 1),
        ("a b{c}", 1),
        ("a%2{c}", 1),
        ("a\\{c}", 1),
        ("{a}|", 3),
        ("a\ud800", 1),
    ],
)
def test_a_malformed_template_is_refused_with_the_place(template: str, offset: int) -> None:
    with pytest.raises(TemplateError, match=f"at offset {offset} of the URI template"):
        UriTemplate(template)


def test_variables_come_in_order_and_once() -> None:
    template = UriTemplate("weather://{city}/{city:1}/now{?units,days}{&last.day,%41}")
    assert template.variables == ("city", "units", "days", "last.day", "%41")
    assert "weather://{city}" in repr(template)


MATCHES: list[tuple[str, str, dict[str, Any] | None]] = [
    # Literals
    ("config://app", "config://app", {}),
    ("config://app", "config://app2", None),
    ("config://app", "config://app\n", None),
    ("config://a.p", "config://aXp", None),
    ("høy/{a}", "h%C3%B8y/1", {"a": "1"}),
    ("høy/{a}", "høy/1", {"a": "1"}),
    # Simple
    ("weather://{city}/now", "weather://Oslo/now", {"city": "Oslo"}),
    ("weather://{city}/now", "weather://S%C3%A3o%20Paulo/now", {"city": "São Paulo"}),
    ("weather://{city}/now", "weather://São Paulo/now", {"city": "São Paulo"}),
    ("weather://{city}/now", "weather:///now", None),
    ("weather://{city}/now", "weather://a/b/now", None),
    ("weather://{city}/now", "weather://a?b/now", None),
    ("weather://{city}/now", "weather://a#b/now", None),
    ("weather://{city}/now", "weather://Oslo/now?units=metric", None),
    ("weather://{city}/now", "weather://Oslo/now#top", None),
    ("x/{a}", "x/1,2", {"a": "1,2"}),
    ("x/{a,b}", "x/1,2", {"a": "1", "b": "2"}),
    ("x/{a,b}", "x/1", None),
    ("x/{a*}", "x/1,2", {"a": ["1", "2"]}),
    ("x/{a*}", "x/1", {"a": ["1"]}),
    ("x/{a*}", "x/k=1,l=2", {"a": {"k": "1", "l": "2"}}),
    ("x/{a*}", "x/k=1,k=2", None),
    ("x/{a*}", "x/1,,2", None),
    ("x/{a:3}", "x/abc", {"a": "abc"}),
    ("x/{a:3}", "x/%C3%A5%C3%A4%C3%B6", {"a": "åäö"}),
    ("x/{a:3}", "x/abcd", None),
    # A literal query: it is there as written, and nothing beside it
    ("x?q={a}", "x?q=1", {"a": "1"}),
    ("x?q={a}", "x?q=1&r=2", None),
    ("x?u={+a}", "x?u=/a&b", {"a": "/a&b"}),
    # Reserved
    ("file:///{+path}", "file:///a/b.txt", {"path": "a/b.txt"}),
    ("file:///{+path}", "file:////etc", {"path": "/etc"}),
    ("file:///{+path}", "file:///", None),
    ("file:///{+path}", "file:///a?b", None),
    ("file:///{+path}", "file:///a#b", None),
    ("file:///{+path}", "file:///a%3Fb/c", {"path": "a?b/c"}),
    ("file:///{+path}", "file:///a%2Fc", None),
    ("file:///{+path}", "file:///a%2fc", None),
    ("file:///{+path}", "file:///a%252Fc", {"path": "a%2Fc"}),
    ("note%3A%7ea/{x}", "note%3a~%61/1", {"x": "1"}),
    ("file:///{+path}.md", "file:///a.md/b.md.md", {"path": "a.md/b.md"}),
    ("x/{+a,b}", "x//1,/2", {"a": "/1", "b": "/2"}),
    ("x/{+a*}", "x/1/2,3", {"a": ["1/2", "3"]}),
    # Fragment
    ("x{#a}", "x#s/1?b", {"a": "s/1?b"}),
    ("x{#a}", "x", {}),
    ("x{#a,b}", "x#1,2", {"a": "1", "b": "2"}),
    ("x{#a,b}", "x#1", {"a": "1"}),
    # Label
    ("x{.a}", "x.tar.gz", {"a": "tar.gz"}),
    ("x{.a}", "x", {}),
    ("x{.a}", "x.", None),
    ("x{.a,b}", "x.tar.gz", {"a": "tar", "b": "gz"}),
    ("x{.a,b}", "x.tar", {"a": "tar"}),
    ("x{.a*}", "x.tar.gz", {"a": ["tar", "gz"]}),
    # Path
    ("x{/a}", "x/1", {"a": "1"}),
    ("x{/a}", "x", {}),
    ("x{/a}", "x/", None),
    ("x{/a}", "x/1/2", None),
    ("x{/a,b}", "x/1/2", {"a": "1", "b": "2"}),
    ("x{/a,b}", "x/1", {"a": "1"}),
    ("x{/a*}", "x/1/2/3", {"a": ["1", "2", "3"]}),
    ("x{/a*}", "x/k=1/l=2", {"a": {"k": "1", "l": "2"}}),
    ("x{/a*}", "x/k=1/2", {"a": ["k=1", "2"]}),
    ("x{/a*}", "x//etc", None),
    ("x{/a*}", "x/1/", None),
    ("x{/a}/end", "x/end", {}),
    ("x{/a}/end", "x/1/end", {"a": "1"}),
    ("x{/a*}/end", "x/end/end", {"a": ["end"]}),
    # Parameters
    ("x{;a,b}", "x;a=1;b=2", {"a": "1", "b": "2"}),
    ("x{;a,b}", "x;b=2;a", {"a": "", "b": "2"}),
    ("x{;a}", "x", {}),
    ("x{;a}", "x;c=1", None),
    ("x{;a}", "x;a=1;a=2", None),
    ("x{;a*}", "x;a=1;a=2", {"a": ["1", "2"]}),
    ("x{;a*}", "x;k=1;l=2", {"a": {"k": "1", "l": "2"}}),
    # Query
    ("x{?a,b}", "x?a=1&b=2", {"a": "1", "b": "2"}),
    ("x{?a,b}", "x?b=2&a=1", {"a": "1", "b": "2"}),
    ("x{?a,b}", "x?b=2", {"b": "2"}),
    ("x{?a,b}", "x", {}),
    ("x{?a,b}", "x?a=", {"a": ""}),
    ("x{?a,b}", "x?other=%2F&&a=1&", {"a": "1"}),
    ("x{?a}", "x?a=1&a=2", None),
    ("x{?a}", "x?a=1+2%2B3", {"a": "1+2+3"}),
    ("x{?a}", "x?a=k=v", {"a": "k=v"}),
    ("x{?a}", "x?a=1#top", None),
    ("x{?a}", "x/y?a=1", None),
    ("x{?a:2}", "x?a=123", None),
    ("x{?a*}", "x?a=1&b=0&a=2", {"a": ["1", "2"]}),
    ("x{?a*}", "x?k=1&l=2", {"a": {"k": "1", "l": "2"}}),
    ("x{?a,b*}", "x?k=1&a=0&l=2", {"a": "0", "b": {"k": "1", "l": "2"}}),
    ("x{?a*}", "x?k=1&k=2", None),
    ("x{?a}{&b}", "x?b=2&a=1", {"a": "1", "b": "2"}),
    ("x{?a}{#b}", "x?a=1#s", {"a": "1", "b": "s"}),
    ("{+a}{?b}", "p/q?b=1", {"a": "p/q", "b": "1"}),
    # Continuation
    ("x?fixed=yes{&a}", "x?fixed=yes&a=1&b=2", {"a": "1"}),
    ("x?fixed=yes{&a}", "x?fixed=yes", {}),
    ("x?fixed=yes{&a}", "x?fixed=no&a=1", None),
    ("x?fixed=yes{&a}", "x?fixed=yesterday", None),
    # A variable in several places has one value
    ("{/a:1,a}", "/v/value", {"a": "value"}),
    ("{/a,a:1}", "/value/v", {"a": "value"}),
    ("{/a:1,a}", "/w/value", None),
    ("x/{a}/{a}", "x/1/1", {"a": "1"}),
    ("x/{a}/{a}", "x/1/2", None),
]


@pytest.mark.parametrize(("template", "uri", "values"), MATCHES)
def test_match(template: str, uri: str, values: dict[str, Any] | None) -> None:
    assert UriTemplate(template).match(uri) == values


@pytest.mark.parametrize(
    ("template", "uri", "values"),
    [
        ("{a}-{b}", "1-2-3", {"a": "1-2", "b": "3"}),
        ("{a}{b}{c}", "12345", {"a": "123", "b": "4", "c": "5"}),
        ("{a}{b}", "1%41", {"a": "1", "b": "A"}),
        ("{a}{b}", "1", None),
        ("{name}.{ext}", "x.tar.gz", {"name": "x.tar", "ext": "gz"}),
        ("{name}{.ext}", "x.tar.gz", {"name": "x.tar", "ext": "gz"}),
        ("{name}{.ext}", "x", {"name": "x"}),
        ("{name}{;v}", "x;v=1", {"name": "x", "v": "1"}),
        ("{+dir}/{name}", "a/b/c", {"dir": "a/b", "name": "c"}),
        ("{+dir}{/name}", "a/b/c", {"dir": "a/b", "name": "c"}),
        ("{+a}-{b}", "1-2/3-4", {"a": "1-2/3", "b": "4"}),
        ("{+a}/{+b}/{+c}", "1/2/3/4", {"a": "1/2", "b": "3", "c": "4"}),
        ("{a}b{c}", "bbb", {"a": "b", "c": "b"}),
    ],
)
def test_of_several_readings_the_earlier_variable_takes_the_most(
    template: str, uri: str, values: dict[str, Any] | None
) -> None:
    assert UriTemplate(template).match(uri) == values


NOWHERE = [
    ".",
    "..",
    "%2e",
    "%2E%2e",
    ".%2e",
    "a\\b",
    "a%5Cb",
    "%00",
    "a%0Ab",
    "a\x00",
    "%7F",
    "%C2%85",
]
NOT_TEXT = ["%", "%4", "%zz", "%ff", "%C3", "%c0%ae", "%ED%A0%80", "\ud800"]
OTHER_SEGMENT = ["a%2Fb", "%2f", "..%2F..", "%2e%2e%2fetc"]
PLAIN = [
    "{a}",
    "{a*}",
    "{a:9}",
    "y{.a}",
    "y{.a*}",
    "{/a}",
    "{/a*}",
    "y{;a}",
    "y{;a*}",
    "y{?a}",
    "y{?a*}",
]
LEAD = {".": "y.", "/": "/", ";": "y;a=", "?": "y?a=", "#": "y#"}


def place(expression: str, value: str) -> str:
    """Put a value, as it is, where the expression has its variable."""
    symbol = expression[expression.index("{") + 1]
    return "x://h/" + LEAD.get(symbol, "") + value


@pytest.mark.parametrize("value", NOWHERE + NOT_TEXT + OTHER_SEGMENT)
@pytest.mark.parametrize("expression", PLAIN)
def test_a_value_does_not_leave_its_segment(expression: str, value: str) -> None:
    template = UriTemplate("x://h/" + expression)
    assert template.match(place(expression, "fine")) is not None
    assert template.match(place(expression, value)) is None


@pytest.mark.parametrize(
    "value", [*NOWHERE, *NOT_TEXT, "a/../b", "../a", "a/..", "a%2F..%2Fb", "a/./b", "./a"]
)
@pytest.mark.parametrize("expression", ["{+a}", "{+a*}", "{+a:99}", "y{#a}", "y{#a*}"])
def test_a_reserved_value_does_not_climb(expression: str, value: str) -> None:
    template = UriTemplate("x://h/" + expression)
    assert template.match(place(expression, "f/.i/n..e/...")) is not None
    assert template.match(place(expression, value)) is None


def test_keys_are_held_to_the_same_rules() -> None:
    assert UriTemplate("x{?a*}").match("x?%2Fk=1") is None
    assert UriTemplate("x{/a*}").match("x/..=1") is None


def test_values_are_decoded_once() -> None:
    assert UriTemplate("x/{a}").match("x/%252e%252e") == {"a": "%2e%2e"}
    assert UriTemplate("x/{+a}").match("x/%252e%252e/b") == {"a": "%2e%2e/b"}


def test_a_uri_over_the_limit_does_not_match() -> None:
    template = UriTemplate("x{a}")
    assert template.match("x" + "a" * (MAX_URI - 1)) == {"a": "a" * (MAX_URI - 1)}
    assert template.match("x" + "a" * MAX_URI) is None
    assert template.match("x" + "å" * (MAX_URI // 2)) is None


HARD = [
    "{a}{b}{c}",
    "{+a}/{+b}/{+c}",
    "{+a}/{+b}/{+c}/!",
    "{+a}-{b}-{+c}!",
    "{a*}{b*}{c*}{d*}!",
    "{+a}.md",
    "{/a*}{/b*}{/c*}/!",
    "".join(f"{{/v{i}}}" for i in range(30)) + "/!",
    "{+a}{/b}{.c}{;d}{?e}{#f}",
    "x{?a,b*}",
]


@pytest.mark.parametrize("template", HARD)
def test_time_is_bounded_by_the_length_of_the_uri(template: str) -> None:
    ready = UriTemplate(template)
    for part in ["a", "/", "a/", "/a", "-", ".", "%41", "?a=", "x?", "&", "=,", ".md", ";d="]:
        for size in (MAX_URI, 100_000):
            started = time.thread_time()
            ready.match((part * size)[:size])
            assert time.thread_time() - started < 10


def test_specificity_orders_templates_from_the_most_specific() -> None:
    ordered = [
        "file:///docs/{name}.md",
        "file:///docs/{name}",
        "file:///docs/{+name}",
        "file:///{+path}",
        "file:///{dir}{/name}",
        "{+any}",
    ]
    templates = [UriTemplate(text) for text in reversed(ordered)]
    assert [t.text for t in sorted(templates, key=lambda t: t.specificity)] == ordered


# A generator of templates that can be read in one way only: every part starts with a literal that
# holds a tilde, and no value does.

QUICK = settings(max_examples=300, deadline=None, derandomize=True, database=None)


def text(without: str = "") -> st.SearchStrategy[str]:
    characters = st.characters(exclude_categories=["Cc", "Cs"], exclude_characters="/\\~" + without)
    return st.text(characters, min_size=1, max_size=6).filter(lambda t: t not in (".", ".."))


def several(item: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    keys = item.filter(lambda key: not key.startswith("v"))
    return st.lists(item, min_size=1, max_size=3) | st.dictionaries(
        keys, item, min_size=1, max_size=3
    )


RESERVED_TEXT = st.lists(text("?#%,="), min_size=1, max_size=3).map("/".join)
UNDEFINED = st.none()
PATH_PARTS: dict[str, st.SearchStrategy[Any]] = {
    "/{%s}": text(),
    "/{%s}/end~": text(),
    "/{%s:6}": text(),
    "/{%s*}": several(text()),
    "/{+%s}": RESERVED_TEXT,
    "/{+%s*}": st.lists(RESERVED_TEXT, min_size=1, max_size=3),
    "{.%s}": text() | UNDEFINED,
    "{.%s*}": several(text(".")) | UNDEFINED,
    "{/%s}": text() | UNDEFINED,
    "{/%s*}": several(text()) | UNDEFINED,
    "{;%s}": text() | UNDEFINED,
    "{;%s*}": several(text()) | UNDEFINED,
}
TAILS: dict[str, st.SearchStrategy[Any]] = {
    "": UNDEFINED,
    "{?%s}": text() | UNDEFINED,
    "{?%s*}": several(text()) | UNDEFINED,
    "?fixed=~{&%s}": text() | UNDEFINED,
    "{#%s}": RESERVED_TEXT | UNDEFINED,
}


@st.composite
def templates_with_values(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    chosen = draw(st.lists(st.sampled_from(sorted(PATH_PARTS)), max_size=4))
    template = "x://~"
    values: dict[str, Any] = {}
    for index, part in enumerate(chosen):
        template += f"/~{index}" + part % f"v{index}"
        values[f"v{index}"] = draw(PATH_PARTS[part])
    tail = draw(st.sampled_from(sorted(TAILS)))
    values["v"] = draw(TAILS[tail])
    return template + "/~" + (tail % "v" if tail else ""), values


@given(templates_with_values())
@QUICK
def test_what_was_expanded_matches_again(case: tuple[str, dict[str, Any]]) -> None:
    template, values = case
    defined = {name: value for name, value in values.items() if value is not None}
    ready = UriTemplate(template)
    assert ready.match(ready.expand(values)) == defined


EXPRESSIONS = ["{a}", "{+b}", "{.c}", "{/d}", "{/e*}", "{;f}", "{?g}", "{#h}", "{i,j}", "{.k,l}"]


def backtracking(pieces: list[Any]) -> str:
    """Give the obvious pattern, which on short texts is a fair judge of the careful ones."""
    pattern = ""
    ends: list[int] = []
    for index, piece in enumerate(pieces):
        pattern += ")?" * ends.count(index)
        if isinstance(piece, str):
            pattern += re.escape(piece)
        elif isinstance(piece, uri_template._Optional):
            ends.append(piece.end)
            pattern += "(?:"
        else:
            pattern += f"({piece.characters()}+)"
    return pattern + ")?" * ends.count(len(pieces))


@given(
    st.lists(st.sampled_from([*EXPRESSIONS, "/", "-", "a", "x/"]), max_size=5).map("".join),
    st.text("a-/.;?#,=x", max_size=12),
)
@QUICK
def test_all_ways_to_read_agree(template: str, uri: str) -> None:
    pieces = uri_template._pieces(uri_expression.parse(template))
    judge = re.fullmatch(backtracking(pieces), uri)
    aligned = uri_template._align(pieces, uri)
    assert (aligned is None) == (judge is None)
    pattern = uri_template._pattern(pieces)
    if pattern is not None:
        found = re.fullmatch(pattern, uri)
        assert aligned == (found and list(found.groups()))
