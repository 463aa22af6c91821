"""Schemas of a stranger: the first line is a schema, the second a value.

Nothing is raised but `SchemaError` and `SchemaMismatch`, both with a short message; what fits a schema
fits it again when it is spelled differently; and no schema makes checking a value take long.
"""

import json
import time

from mcpearl.schema.errors import SchemaError, SchemaMismatch
from mcpearl.schema.given import compile_schema
from mcpearl.types.base import decode_any
from tests.fuzz.target import Target, require

_LONGEST = 10.0  # seconds of processor time for one schema and value, by far


def check(data: bytes) -> None:
    schema_text, _, value_text = data.partition(b"\n")
    try:
        schema = json.loads(schema_text)
    except (ValueError, RecursionError):
        return
    begun = time.thread_time()
    try:
        validator = compile_schema(schema, where="tool `x`")
    except SchemaError as error:
        require(str(error).startswith("tool `x`: "), "an error does not say what it is about")
        return
    try:
        value = decode_any(value_text)
    except Exception:
        value = [schema]
    fits = _fits(validator, value)
    require(_fits(validator, json.loads(json.dumps(value))) is fits, "a copy is judged differently")
    require(time.thread_time() - begun < _LONGEST, "a schema takes too long")


def _fits(validator: object, value: object) -> bool:
    try:
        validator.check(value)  # type: ignore[attr-defined]
    except SchemaMismatch as error:
        require(len(str(error)) < 8192, "an error repeats too much of its cause")
        return False
    return True


WORDS = (
    b'"type":"object"',
    b'"properties":{"a":{}}',
    b'"required":["a"]',
    b'"$ref":"#"',
    b'"$ref":"#/$defs/a"',
    b'"$defs":{"a":{}}',
    b'"allOf":[{}]',
    b'"anyOf":[{},{"type":"null"}]',
    b'"oneOf":[{}]',
    b'"not":{}',
    b'"if":{}',
    b'"pattern":"^a+$"',
    b'"patternProperties":{"a":{}}',
    b'"$schema":"http://json-schema.org/draft-07/schema#"',
    b'"$id":"x"',
    b'"$anchor":"a"',
    b'"$dynamicRef":"#a"',
    b'"enum":[1]',
    b'"multipleOf":0.1',
    b'"format":"date-time"',
    b'"unevaluatedProperties":false',
    b'"items":{}',
    b'"uniqueItems":true',
)
TARGET = Target("given-schemas", check, WORDS)
