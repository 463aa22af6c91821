"""Signatures: what is offered, what is injected, how it is called, how errors read."""

# ruff: noqa: B006, RUF013 - what people write is what is tested

from __future__ import annotations

import dataclasses
import functools
import sys
from typing import Annotated, Any, Literal, TypedDict

import msgspec
import pydantic
import pytest
from msgspec import Meta

from mcpearl.schema import Arguments, ArgumentsError, SignatureError, compile_signature
from mcpearl.schema.parameters import Parameter


class Context:
    """What a server would inject."""


def is_context(parameter: Parameter) -> bool:
    return parameter.annotation is Context


def call(function, raw=b"{}", injected=None, **options):
    compiled = compile_signature(function, **options)
    return compiled.call(compiled.decode(raw), injected)


def test_everything_at_once():
    def forecast(
        city: str,
        days: Annotated[int, Meta(ge=1, description="From the annotation.")] = 3,
        *,
        ctx: Context,
        units: str = "metric",
    ) -> dict:
        """What the weather will be.

        Args:
            city: The city.
            days: From the docstring.
            ctx: Not shown.
        """
        return city, days, ctx, units

    compiled = compile_signature(forecast, skip=is_context)
    assert compiled.name == "forecast"
    assert compiled.description == "What the weather will be."
    assert compiled.injected == ("ctx",)
    assert compiled.returns is dict
    assert compiled.input_schema == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "The city."},
            "days": {
                "type": "integer",
                "minimum": 1,
                "description": "From the annotation.",
                "default": 3,
            },
            "units": {"type": "string", "default": "metric"},
        },
        "required": ["city"],
        "additionalProperties": False,
    }
    arguments = compiled.decode(msgspec.Raw(b'{"city":"Oslo"}'))
    assert isinstance(arguments, Arguments)
    assert compiled.call(arguments, {"ctx": "the context"}) == ("Oslo", 3, "the context", "metric")


def test_no_parameters():
    def tool(): ...

    compiled = compile_signature(tool)
    assert compiled.input_schema == {
        "type": "object",
        "properties": {},
        "additionalProperties": False,
    }
    assert compiled.description is None
    assert compiled.call(compiled.decode(None), None) is None
    with pytest.raises(ArgumentsError, match=r"^unknown argument `a` \(it takes none\)$"):
        compiled.decode(b'{"a":1}')


def test_kinds_of_parameters():
    def tool(a, /, b, *, c, d=4, **rest):
        return (a, b, c, d, rest)

    compiled = compile_signature(tool)
    assert "additionalProperties" not in compiled.input_schema
    assert call(tool, b'{"a":1,"b":2,"c":3}') == (1, 2, 3, 4, {})
    assert call(tool, b'{"a":1,"b":2,"c":3,"e":5,"rest":6}') == (1, 2, 3, 4, {"e": 5, "rest": 6})


def test_typed_keyword_arguments():
    def tool(a: int = 0, **rest: int):
        return a, rest

    assert compile_signature(tool).input_schema["additionalProperties"] == {"type": "integer"}
    assert call(tool, b'{"b":1}') == (0, {"b": 1})
    with pytest.raises(ArgumentsError, match='argument `b`: expected integer, got string "x"'):
        call(tool, b'{"b":"x"}')


def test_injected_between_positional_only():
    def tool(a: int, ctx: Context, b: int, /):
        return a, ctx, b

    assert call(tool, b'{"a":1,"b":2}', {"ctx": "c"}, skip=is_context) == (1, "c", 2)


def test_star_args_are_refused():
    def tool(*numbers: int): ...

    with pytest.raises(SignatureError, match=r"tool `tool`: parameter `\*numbers`.*`numbers: list"):
        compile_signature(tool)


def test_mutable_defaults_are_not_shared():
    @dataclasses.dataclass
    class Options:
        seen: list[int] = dataclasses.field(default_factory=list)

    def tool(a: list[int] = [1], b: dict[str, list] = {"k": []}, c: Options = Options()):
        a.append(2)
        b["k"].append(1)
        c.seen.append(1)
        return a, b, c

    first, second = call(tool), call(tool)
    assert first == second == ([1, 2], {"k": [1]}, Options([1]))
    compiled = compile_signature(tool)
    for _ in range(3):
        assert compiled.call(compiled.decode(b"{}"), None) == first
    defaults = {k: v["default"] for k, v in compiled.input_schema["properties"].items()}
    assert defaults == {"a": [1], "b": {"k": []}, "c": {"seen": []}}


def test_a_sentinel_default_keeps_its_identity():
    nothing = object()

    def tool(it: str = nothing):
        return it

    assert call(tool) is nothing
    assert compile_signature(tool).input_schema["properties"] == {"it": {"type": "string"}}


def test_a_default_that_json_cannot_carry_is_left_out():
    def tool(it: float = float("nan")):
        return it

    assert compile_signature(tool).input_schema["properties"] == {"it": {"type": "number"}}


def test_none_as_default_makes_it_optional():
    def tool(it: int = None):
        return it

    compiled = compile_signature(tool)
    anyof = [{"type": "integer"}, {"type": "null"}]
    assert compiled.input_schema["properties"] == {"it": {"anyOf": anyof, "default": None}}
    assert call(tool, b'{"it":null}') is None


# --- what may be compiled -----------------------------------------------------------------------


class Service:
    def method(self, a: Local) -> int:
        """Of an instance."""
        return a

    @classmethod
    def of_class(cls, a: Local) -> int:
        return a

    @staticmethod
    def of_none(a: Local) -> int:
        return a

    def __call__(self, a: Local) -> int:
        """The call."""
        return a


Local = int


def decorated(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return ("wrapped", function(*args, **kwargs))

    return wrapper


def test_methods_and_callable_objects():
    service = Service()
    for function in (service.method, Service.of_class, Service.of_none, service):
        assert call(function, b'{"a":1}') == 1
        assert compile_signature(function).input_schema["required"] == ["a"]
    assert compile_signature(service.method).description == "Of an instance."
    assert compile_signature(service).description == "The call."


def test_partial():
    def tool(a: Local, b: Local, c: Local = 3):
        """Partly given."""
        return a, b, c

    compiled = compile_signature(functools.partial(tool, 1, c=5))
    assert compiled.name == "tool"
    assert compiled.description == "Partly given."
    assert list(compiled.input_schema["properties"]) == ["b", "c"]
    assert compiled.call(compiled.decode(b'{"b":2}'), None) == (1, 2, 5)


def test_decorated_function_runs_its_wrapper():
    @decorated
    def tool(a: Local) -> int:
        """Inside."""
        return a

    compiled = compile_signature(tool)
    assert compiled.description == "Inside."
    assert compiled.call(compiled.decode(b'{"a":1}'), None) == ("wrapped", 1)


def test_names_known_only_where_the_function_was_defined():
    class Here(msgspec.Struct):
        x: int

    def tool(a: Here, b: list[Here]) -> Here:
        return a

    compiled = compile_signature(tool)
    assert compiled.returns is Here
    assert compiled.decode(b'{"a":{"x":1},"b":[{"x":2}]}').b == [Here(2)]


def test_names_from_the_closure():
    def make():
        class Here(msgspec.Struct):
            x: int

        def tool(a: Here):
            return Here, a

        return tool

    assert call(make(), b'{"a":{"x":1}}')[1].x == 1


def test_unresolvable_annotation():
    def tool(a: Nowhere): ...  # noqa: F821

    with pytest.raises(SignatureError, match=r"tool `tool`: parameter `a`.*`Nowhere`.*resolved"):
        compile_signature(tool)


def test_async_function():
    async def tool(a: int) -> int:
        return a

    pending = call(tool, b'{"a":1}')
    with pytest.raises(StopIteration) as stopped:
        pending.send(None)
    assert stopped.value.value == 1


def test_name_and_where_in_messages():
    def tool(a: complex): ...

    with pytest.raises(SignatureError, match=r"^prompt `ask`: parameter `a`"):
        compile_signature(tool, name="ask", where="prompt")


# --- how errors read ----------------------------------------------------------------------------


@dataclasses.dataclass
class Stop:
    name: str
    kind: Kind


Kind = Literal["bus", "tram"]


def plan(stops: list[Stop], days: int, names: dict[str, int] = {}, tone: Kind = "bus"): ...


@pytest.mark.parametrize(
    ("raw", "says", "argument"),
    [
        (b"{}", "missing required arguments `stops`, `days`", "stops"),
        (b'{"stops":[]}', "missing required argument `days`", "days"),
        (
            b'{"stops":[],"days":1,"day":2}',
            "unknown argument `day` (allowed: `stops`, `days`, `names`, `tone`)",
            "day",
        ),
        (
            b'{"stops":[],"days":"three"}',
            'argument `days`: expected integer, got string "three"',
            "days",
        ),
        (
            b'{"stops":[{"name":1}],"days":1}',
            "argument `stops[0].name`: expected string, got integer 1",
            "stops",
        ),
        (
            b'{"stops":[{"name":"a","kind":"car"}],"days":1}',
            'argument `stops[0].kind`: expected one of "bus", "tram", got string "car"',
            "stops",
        ),
        (
            b'{"stops":[{"name":"a"}],"days":1}',
            "argument `stops[0]`: object missing required field `kind`",
            "stops",
        ),
        (
            b'{"stops":[],"days":1,"tone":"x"}',
            'argument `tone`: expected one of "bus", "tram", got string "x"',
            "tone",
        ),
        (
            b'{"stops":[],"days":1,"names":{"a":"b"}}',
            "argument `names[...]`: expected integer, got string",
            "names",
        ),
        (
            b'{"stops":5,"town":1}',
            "missing required argument `days`; unknown argument `town` (allowed: `stops`, `days`, "
            "`names`, `tone`); argument `stops`: expected array, got integer 5",
            "days",
        ),
        (b"[]", "the arguments must be an object, got array", None),
        (b"null", "the arguments must be an object, got null", None),
    ],
)
def test_error_text(raw, says, argument):
    with pytest.raises(ArgumentsError) as raised:
        compile_signature(plan).decode(raw)
    assert str(raised.value) == says
    assert raised.value.argument == argument


def test_long_values_are_cut():
    def tool(a: int): ...

    with pytest.raises(ArgumentsError) as raised:
        compile_signature(tool).decode(msgspec.json.encode({"a": "x" * 10_000}))
    assert len(str(raised.value)) < 120


@pytest.mark.parametrize("raw", [b"{", b"", b'{"a":1}x', b"{'a':1}"])
def test_malformed_json(raw):
    def tool(a: int): ...

    with pytest.raises(msgspec.DecodeError) as raised:
        compile_signature(tool).decode(raw)
    assert not isinstance(raised.value, ArgumentsError | msgspec.ValidationError)


def test_nesting_without_end():
    def tool(a: Any): ...

    deep = b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    with pytest.raises(ArgumentsError, match="nested too deeply"):
        compile_signature(tool).decode(deep)


# --- values that are text, values that are parsed ----------------------------------------------


def test_decode_strings():
    def prompt(
        name: str,
        count: int,
        ratio: float = 0.5,
        yes: bool = False,
        maybe: int | None = 1,
        items: list[int] = [],
        stop: Stop | None = None,
        anything: Any = None,
    ):
        return name, count, ratio, yes, maybe, items, stop, anything

    compiled = compile_signature(prompt)
    decoded = compiled.decode_strings(
        {
            "name": "[not json]",
            "count": "3",
            "ratio": "1.5",
            "yes": "true",
            "maybe": "null",
            "items": " [1, 2]",
            "stop": '{"name":"a","kind":"bus"}',
            "anything": "[1]",
        }
    )
    assert compiled.call(decoded, None) == (
        *("[not json]", 3, 1.5, True, None, [1, 2], Stop("a", "bus"), "[1]"),
    )


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"count": "x"}, 'argument `count`: expected integer, got string "x"'),
        ({"count": "1", "items": "[1"}, 'argument `items`: expected array, got string "[1"'),
        ({}, "missing required argument `count`"),
        ({"count": "1", "z": "1"}, "unknown argument `z` (allowed: `count`, `items`)"),
    ],
)
def test_decode_strings_that_do_not_fit(values, says):
    def prompt(count: int, items: list[int] = []): ...

    with pytest.raises(ArgumentsError) as raised:
        compile_signature(prompt).decode_strings(values)
    assert str(raised.value) == says


def test_bind():
    def tool(a: int, when: Stop | None = None):
        return a, when

    compiled = compile_signature(tool)
    bound = compiled.bind({"a": 1, "when": {"name": "n", "kind": "bus"}})
    assert compiled.call(bound, None) == (1, Stop("n", "bus"))
    with pytest.raises(ArgumentsError, match="expected integer, got string"):
        compiled.bind({"a": "1"})


@dataclasses.dataclass
class Trip:
    city: str
    days: int = 3
    legs: list[Leg] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Leg:
    to: str
    seats: int = 1


def test_a_decoded_dataclass_holds_its_defaults():
    def tool(trip: Trip, others: dict[str, list[Leg]]):
        return trip, others

    compiled = compile_signature(tool)
    raw = b'{"trip":{"city":"Oslo","legs":[{"to":"Bergen"}]},"others":{"a":[{"to":"Voss"}]}}'
    trip, others = compiled.call(compiled.decode(raw), None)
    assert msgspec.json.decode(msgspec.json.encode([trip, others])) == [
        {"city": "Oslo", "days": 3, "legs": [{"to": "Bergen", "seats": 1}]},
        {"a": [{"to": "Voss", "seats": 1}]},
    ]
    assert vars(trip.legs[0]) == {"to": "Bergen", "seats": 1}


def test_decoding_without_such_dataclasses_is_msgspec_alone():
    def tool(a: int, stop: Leg | None = None): ...

    def plain(a: int): ...

    assert type(compile_signature(plain)._decode).__name__ == "builtin_function_or_method"
    assert type(compile_signature(tool)._decode).__name__ == "function"


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b'{"n": 3.0}', 3),
        (b'{"n": 3e2}', 300),
        (b'{"n": -0.0}', 0),
        (b'{"n": 1, "deep": {"a": [2.0]}}', 1),
    ],
)
def test_a_whole_number_is_an_integer(raw, value):
    def tool(n: int, deep: dict[str, list[int]] | None = None, x: float = 0.5):
        return n

    def with_pydantic(n: int, deep: dict[str, list[int]] | None = None, m: Small | None = None):
        return n

    for function in (tool, with_pydantic):
        compiled = compile_signature(function)
        found = compiled.call(compiled.decode(raw), None)
        assert (found, type(found)) == (value, int)


class Small(pydantic.BaseModel):
    n: int


def test_a_number_with_a_fraction_is_not_an_integer():
    def tool(n: int, m: int, wide: float = 0.0): ...

    with pytest.raises(ArgumentsError) as raised:
        compile_signature(tool).decode(b'{"n": 3.0, "m": 3.5, "wide": 1.0}')
    assert str(raised.value) == "argument `m`: expected integer, got number 3.5"
    with pytest.raises(ArgumentsError, match="expected integer, got number 1e300"):
        compile_signature(tool).decode(b'{"n": 1e300, "m": 1}')


class Movie(TypedDict, total=False):
    year: int
    genre: Literal["western", "comedy"]
    actors: list[str]


def test_choices_and_fields_are_published_as_written():
    def tool(size: Literal["small", "large", "huge"], movies: list[Movie] | None = None): ...

    schema = compile_signature(tool).input_schema
    assert schema["properties"]["size"]["enum"] == ["small", "large", "huge"]
    movie = schema["$defs"]["Movie"]["properties"]
    assert list(movie) == ["year", "genre", "actors"]
    assert movie["genre"]["enum"] == ["western", "comedy"]


@pytest.mark.parametrize(
    "note", ["A word.", Meta(description="A word."), pydantic.Field(description="A word.")]
)
def test_none_is_published_once_and_the_description_stays_outside(note: Any):
    def tool(word):
        return word

    tool.__annotations__["word"] = Annotated[str | None, note]
    tool.__defaults__ = (None,)
    compiled = compile_signature(tool)
    assert compiled.input_schema["properties"]["word"] == {
        "anyOf": [{"type": "string"}, {"type": "null"}],
        "default": None,
        "description": "A word.",
    }
    assert compiled.call(compiled.decode(b'{"word": null}'), None) is None
    assert compiled.call(compiled.decode(b'{"word": "a"}'), None) == "a"


def test_loading_is_lazy():
    import subprocess

    code = (
        "import sys, mcpearl.schema as s; "
        "assert not [m for m in sys.modules if m.startswith('mcpearl.schema.')]; "
        "s.compile_signature(lambda a: a); s.compile_output(int, where='t', name='n'); "
        "assert 'pydantic' not in sys.modules and 'jsonschema_rs' not in sys.modules; "
        "assert sorted(s.__all__) == dir(s)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    import mcpearl.schema

    with pytest.raises(AttributeError):
        mcpearl.schema.nothing  # noqa: B018
