"""Schemas given by hand: dialects, bounds, and nothing fetched."""

from __future__ import annotations

import http.server
import threading
import time

import msgspec
import pytest

from mcpearl.schema import ArgumentsError, SchemaError, SchemaMismatch, compile_schema

WHERE = "tool `t`"


def compiled(schema):
    return compile_schema(schema, where=WHERE)


@pytest.mark.parametrize(
    ("uri", "dialect"),
    [
        (None, "2020-12"),
        ("https://json-schema.org/draft/2020-12/schema", "2020-12"),
        ("https://json-schema.org/draft/2020-12/schema#", "2020-12"),
        ("https://json-schema.org/draft/2019-09/schema", "2019-09"),
        ("http://json-schema.org/draft-07/schema#", "draft-07"),
        ("http://json-schema.org/draft-07/schema", "draft-07"),
        ("https://json-schema.org/draft-07/schema#", "draft-07"),
        ("http://json-schema.org/draft-06/schema#", "draft-06"),
        ("http://json-schema.org/draft-04/schema#", "draft-04"),
    ],
)
def test_dialects(uri, dialect):
    schema = {"type": "integer"} if uri is None else {"$schema": uri, "type": "integer"}
    validator = compiled(schema)
    assert validator.dialect == dialect
    validator.check(3)
    with pytest.raises(SchemaMismatch):
        validator.check("3")


def test_the_dialect_decides_what_keywords_mean():
    tuple_form = {"items": [{"type": "string"}]}
    old = compiled({"$schema": "http://json-schema.org/draft-07/schema#", **tuple_form})
    with pytest.raises(SchemaMismatch):
        old.check([1])
    with pytest.raises(SchemaError, match="the schema is not valid"):
        compiled(tuple_form)
    exclusive = {"minimum": 3, "exclusiveMinimum": True}
    with pytest.raises(SchemaMismatch):
        compiled({"$schema": "http://json-schema.org/draft-04/schema#", **exclusive}).check(3)
    with pytest.raises(SchemaError):
        compiled(exclusive)


@pytest.mark.parametrize("uri", ["http://json-schema.org/draft-03/schema#", "https://x/y", "", 7])
def test_unknown_dialect(uri):
    with pytest.raises(SchemaError) as raised:
        compiled({"$schema": uri})
    assert str(raised.value) == (
        f"tool `t`: unknown dialect `{uri}`; "
        "accepted are 2020-12, 2019-09, draft-07, draft-06, draft-04"
    )


def test_unknown_dialect_inside():
    with pytest.raises(SchemaError, match="unknown dialect `https://x/y`"):
        compiled({"$defs": {"a": {"$id": "a", "$schema": "https://x/y"}}})


def test_a_property_or_a_value_named_like_the_keyword():
    compiled({"properties": {"$schema": {"type": "string"}}}).check({"$schema": "any"})
    compiled({"enum": [{"$schema": "any"}]}).check({"$schema": "any"})


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "whole"},
        {"properties": {"a": {"minimum": "1"}}},
        {"required": "a"},
        {"pattern": "("},
        {"$ref": "#/$defs/missing"},
        {"properties": {"a": {"$ref": "#nowhere"}}},
        {"enum": [object]},
        {1: 2},
        [],
        "x",
    ],
    ids=str,
)
def test_not_a_schema(schema):
    with pytest.raises(SchemaError, match=r"^tool `t`: "):
        compiled(schema)


def test_fault_is_located():
    with pytest.raises(SchemaError, match=r'`properties\.a\.minimum`: "1" is not of type "number"'):
        compiled({"properties": {"a": {"minimum": "1"}}})


def test_boolean_schemas():
    compiled(True).check(1)
    with pytest.raises(SchemaMismatch):
        compiled(False).check(1)


# --- nothing is fetched ------------------------------------------------------------------------


@pytest.fixture
def server():
    """A web server that counts who comes."""
    visits = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            visits.append(self.path)
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.end_headers()
            self.wfile.write(b'{"type":"string"}')

        def log_message(self, *args): ...

    listening = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=listening.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{listening.server_port}", visits
    listening.shutdown()
    thread.join()
    listening.server_close()


@pytest.mark.parametrize(
    "make",
    [
        lambda url: {"$ref": url},
        lambda url: {"properties": {"a": {"$ref": url}}},
        lambda url: {"$defs": {"unused": {"$ref": url}}},
        lambda url: {"anyOf": [{"type": "null"}, {"$ref": f"{url}#/definitions/a"}]},
        lambda url: {"$id": url, "$ref": "other.json"},
        lambda url: {"$dynamicRef": url},
        lambda url: {"$schema": "http://json-schema.org/draft-07/schema#", "$ref": url},
        lambda url: {"$schema": "http://json-schema.org/draft-04/schema#", "$ref": url},
        lambda url: {"$schema": "https://json-schema.org/draft/2019-09/schema", "$ref": url},
    ],
)
def test_no_network(server, make):
    url, visits = server
    with pytest.raises(SchemaError, match=f"reference to `{url}.*nothing is fetched"):
        compiled(make(f"{url}/schema.json"))
    assert visits == []


def test_no_network_for_dialects_and_identifiers(server):
    url, visits = server
    with pytest.raises(SchemaError, match="unknown dialect"):
        compiled({"$schema": f"{url}/schema.json"})
    compiled({"$id": f"{url}/schema.json", "type": "string"}).check("a")
    assert visits == []


def test_no_files(tmp_path):
    file = tmp_path / "schema.json"
    file.write_text('{"type":"string"}')
    for reference in (file.as_uri(), "schema.json", "./schema.json", "../schema.json"):
        with pytest.raises(SchemaError, match="nothing is fetched"):
            compiled({"$ref": reference})


def test_references_that_stay_inside():
    schema = {
        "$id": "https://example.org/root",
        "$defs": {
            "a": {"$anchor": "here", "type": "integer"},
            "b": {"$id": "inner", "type": "string"},
        },
        "properties": {
            "x": {"$ref": "#/$defs/a"},
            "y": {"$ref": "#here"},
            "z": {"$ref": "inner"},
        },
    }
    validator = compiled(schema)
    validator.check({"x": 1, "y": 2, "z": "3"})
    for wrong in ({"x": "1"}, {"y": "2"}, {"z": 3}):
        with pytest.raises(SchemaMismatch):
            validator.check(wrong)


def test_the_meta_schema_itself_may_be_referred_to():
    validator = compiled({"$ref": "https://json-schema.org/draft/2020-12/schema"})
    validator.check({"type": "string"})
    with pytest.raises(SchemaMismatch):
        validator.check({"type": "whole"})


# --- bounds ------------------------------------------------------------------------------------


def nested(depth):
    schema = {}
    for _ in range(depth - 1):
        schema = {"not": schema}
    return schema


def test_depth():
    compiled(nested(64))
    with pytest.raises(SchemaError, match="nested deeper than 64"):
        compiled(nested(65))
    with pytest.raises(SchemaError, match="nested deeper than 64"):
        compiled(nested(100_000))


def test_a_schema_that_contains_itself():
    schema = {}
    schema["not"] = schema
    with pytest.raises(SchemaError, match="nested deeper"):
        compiled(schema)


def test_nodes():
    compiled({"enum": list(range(9_000))})
    with pytest.raises(SchemaError, match="more than 10000 nodes"):
        compiled({"enum": list(range(10_000))})


def test_size():
    compiled({"description": "x" * 1_000_000})
    with pytest.raises(SchemaError, match="larger than 1048576 bytes"):
        compiled({"description": "x" * 1_100_000})


@pytest.mark.parametrize("keyword", ["allOf", "anyOf", "oneOf"])
def test_references_that_multiply(keyword):
    def doubling(times):
        defs = {
            f"d{i}": {keyword: [{"$ref": f"#/$defs/d{i + 1}"}, {"$ref": f"#/$defs/d{i + 1}"}]}
            for i in range(times)
        }
        return {"$defs": {**defs, f"d{times}": {"type": "string"}}, "$ref": "#/$defs/d0"}

    begun = time.thread_time()
    with pytest.raises(SchemaMismatch):
        compiled(doubling(8)).check(1)
    with pytest.raises(SchemaError, match="multiply to more than 10000 checks"):
        compiled(doubling(30))
    assert time.thread_time() - begun < 20


@pytest.mark.parametrize("keyword", ["allOf", "anyOf"])
def test_recursion_that_multiplies(keyword):
    again = {"type": ["array", "string"], "items": {"$ref": "#/$defs/n"}}
    schema = {"$defs": {"n": {keyword: [again, dict(again)]}}, "$ref": "#/$defs/n"}
    schema["$defs"]["n"][keyword][1]["items"] = {"$ref": "#/$defs/n"}
    validator = compiled(schema)
    value = 1
    for _ in range(200):
        value = [value]
    begun = time.thread_time()
    with pytest.raises(SchemaMismatch, match="nested too deeply to say where"):
        validator.check(value)
    with pytest.raises(SchemaMismatch, match="is not"):
        validator.check([[1]])
    validator.check([["a"]])
    assert time.thread_time() - begun < 20


def test_simple_recursion_is_explained_at_any_depth():
    tree = {"properties": {"child": {"$ref": "#"}, "n": {"type": "integer"}}}
    value = {"n": "x"}
    for _ in range(30):
        value = {"child": value}
    with pytest.raises(SchemaMismatch) as raised:
        compiled(tree).check(value)
    assert raised.value.path == ("child",) * 30 + ("n",)


def test_long_chains_of_references():
    defs = {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(3_000)}
    with pytest.raises(SchemaMismatch):
        compiled({"$defs": {**defs, "d3000": {"type": "string"}}, "$ref": "#/$defs/d0"}).check(1)


def test_patterns_cannot_backtrack():
    validator = compiled({"pattern": "^(a+)+$", "patternProperties": {"^(b|b?)+$": {}}})
    begun = time.thread_time()
    with pytest.raises(SchemaMismatch):
        validator.check("a" * 200_000 + "!")
    validator.check({"b" * 200_000 + "!": 1})
    assert time.thread_time() - begun < 20


@pytest.mark.parametrize("pattern", [r"(a)\1", "(?=a)b", "(?<!a)b"])
def test_patterns_that_need_backtracking_are_refused(pattern):
    with pytest.raises(SchemaError, match="linear time"):
        compiled({"pattern": pattern})


# --- mismatches --------------------------------------------------------------------------------

SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "array", "items": {"enum": [1, 2]}},
    },
    "required": ["city"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("value", "says", "path"),
    [
        ({"city": 1}, '`city`: 1 is not of type "string"', ("city",)),
        ({}, '"city" is a required property', ("city",)),
        ({"city": "a", "days": [1, 3]}, "`days[1]`: 3 is not one of 1 or 2", ("days", 1)),
        ([], '[] is not of type "object"', ()),
    ],
)
def test_mismatch(value, says, path):
    with pytest.raises(SchemaMismatch) as raised:
        compiled(SCHEMA).check(value)
    assert str(raised.value) == says
    assert raised.value.path == path
    assert isinstance(raised.value, ArgumentsError)
    assert raised.value.argument == (path[0] if path else None)


def test_unknown_members_are_named():
    with pytest.raises(SchemaMismatch) as raised:
        compiled(SCHEMA).check({"city": "a", "town": 1})
    assert "town" in str(raised.value)
    assert raised.value.argument == "town"


def test_up_to_five_errors():
    with pytest.raises(SchemaMismatch) as raised:
        compiled(SCHEMA).check({"city": "a", "days": list(range(10, 30))})
    assert str(raised.value).count("is not one of") == 5
    assert str(raised.value).endswith("and more")


def test_long_values_are_cut():
    with pytest.raises(SchemaMismatch) as raised:
        compiled({"type": "integer"}).check("x" * 100_000)
    assert len(str(raised.value)) <= 200


def test_check_json():
    validator = compiled(SCHEMA)
    assert validator.check_json(b'{"city":"Oslo"}') == {"city": "Oslo"}
    assert validator.check_json(msgspec.Raw(b'{"city":"Oslo"}')) == {"city": "Oslo"}
    with pytest.raises(SchemaMismatch):
        validator.check_json(b"{}")
    with pytest.raises(msgspec.DecodeError):
        validator.check_json(b"{")
    with pytest.raises(SchemaMismatch, match="nested too deeply"):
        validator.check_json(b"[" * 100_000 + b"]" * 100_000)


def test_not_a_json_value():
    with pytest.raises(SchemaMismatch, match="not a JSON value"):
        compiled({"properties": {"a": {"type": "string"}}}).check({"a": object()})


@pytest.mark.parametrize(
    "pattern", ["^([a-z]{1,50}){1,50}$", "((a{100}){100}){100}", r"\p{L}{1,1000}"]
)
def test_a_pattern_that_is_small_to_write_and_large_to_compile_is_refused(pattern):
    with pytest.raises(SchemaError, match="more than 256 KiB"):
        compiled({"type": "string", "pattern": pattern})


@pytest.mark.parametrize("pattern", ["^[A-Za-z0-9_-]{1,64}$", "^[a-z]{1,1000}$", r"^\\w+@\\w+$"])
def test_usual_patterns_are_small_enough(pattern):
    compiled({"type": "string", "pattern": pattern})


def test_there_may_be_so_many_patterns():
    def patterns(count):
        half = count // 2
        return {
            "properties": {f"p{n}": {"pattern": f"^{n}$"} for n in range(count - half)},
            "patternProperties": {f"^x{n}$": {"type": "string"} for n in range(half)},
        }

    compiled(patterns(100))
    with pytest.raises(SchemaError, match="101 patterns"):
        compiled(patterns(101))
