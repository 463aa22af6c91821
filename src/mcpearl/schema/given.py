"""Validators for schemas written by hand, which may come from an untrusted source.

A schema is data from someone else: it is bounded in depth, size and in the work its references can
multiply; its patterns are few and small, and run on an engine that cannot backtrack; a reference
that leads out of it is refused. Nothing is ever fetched.
"""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from mcpearl.schema.bounds import (
    MAX_PATTERN_SIZE,
    check_bounds,
    check_patterns,
    check_work,
    explained_depth,
    subschemas,
    too_deep,
)
from mcpearl.schema.errors import SchemaError, SchemaMismatch
from mcpearl.schema.wording import path_text
from mcpearl.types.base import decode_any

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError
    from jsonschema_rs import Validator as RustValidator
else:
    RustValidator = Any  # loaded when a schema is compiled

__all__ = ["Validator", "compile_schema"]

_MOST_ERRORS = 5
_LONGEST_ERROR = 200

_OUTSIDE = re.compile("Resource '([^']*)' is not present")

_DEFAULT = "2020-12"
_DIALECTS = {
    "json-schema.org/draft/2020-12/schema": _DEFAULT,
    "json-schema.org/draft/2019-09/schema": "2019-09",
    "json-schema.org/draft-07/schema": "draft-07",
    "json-schema.org/draft-06/schema": "draft-06",
    "json-schema.org/draft-04/schema": "draft-04",
}


class Validator:
    """A compiled schema with its validator; made by `compile_schema`.

    Args:
        schema: The JSON schema.
        dialect: The version of JSON Schema it is read by, such as `2020-12`.
        validator: Checks values against it.
    """

    __slots__ = ("_deepest", "_is_valid", "_validator", "dialect", "schema")

    def __init__(
        self, schema: dict[str, Any] | bool, dialect: str, validator: RustValidator
    ) -> None:
        self.schema = schema
        self.dialect = dialect
        self._validator = validator
        self._is_valid = validator.is_valid
        self._deepest = explained_depth(schema)

    def check(self, value: Any) -> None:
        """Check a value made of JSON types. Raises `SchemaMismatch` if it does not fit.

        Args:
            value: The value.
        """
        try:
            if self._is_valid(value):
                return
        except ValueError as error:
            raise SchemaMismatch(f"not a JSON value: {error}") from None
        if too_deep(value, self._deepest):
            raise SchemaMismatch(
                "the value does not fit its schema; it is nested too deeply to say where"
            )
        errors = list(islice(self._validator.iter_errors(value), _MOST_ERRORS + 1))
        said = [_described(error) for error in errors[:_MOST_ERRORS]]
        if len(errors) > _MOST_ERRORS:
            said.append("and more")
        path = tuple(errors[0].instance_path) if errors else ()
        raise SchemaMismatch("; ".join(said), path or _named(errors))

    def check_json(self, raw: bytes | msgspec.Raw) -> Any:
        """Decode and check JSON. Raises `msgspec.DecodeError` if the text is not JSON.

        Args:
            raw: The JSON text.
        """
        try:
            value = decode_any(raw)
        except RecursionError:
            raise SchemaMismatch("the value is nested too deeply") from None
        self.check(value)
        return value


def compile_schema(schema: dict[str, Any] | bool, *, where: str) -> Validator:
    """Compile a schema. Raises `SchemaError`, whose message begins with `where`.

    Args:
        schema: The schema, an object or a boolean.
        where: How error messages refer to the schema's owner.

    >>> validator = compile_schema({"type": "integer"}, where="tool `add`")
    >>> validator.check_json(b"3")
    3
    """
    if not isinstance(schema, dict | bool):
        raise SchemaError(f"{where}: a schema is an object or a boolean, not {schema!r}")
    check_bounds(schema, where)
    dialect = _dialect(schema, where)
    for inner in subschemas(schema):
        _dialect(inner, where)
    check_work(schema, where)
    check_patterns(schema, where)
    return Validator(schema, dialect, _compiled(schema, dialect, where))


def _compiled(schema: dict[str, Any] | bool, dialect: str, where: str) -> RustValidator:
    import jsonschema_rs

    classes = {
        "2020-12": jsonschema_rs.Draft202012Validator,
        "2019-09": jsonschema_rs.Draft201909Validator,
        "draft-07": jsonschema_rs.Draft7Validator,
        "draft-06": jsonschema_rs.Draft6Validator,
        "draft-04": jsonschema_rs.Draft4Validator,
    }

    def refuse(uri: str) -> NoReturn:
        raise LookupError(f"nothing is fetched, and {uri} is not in the schema")

    try:
        return classes[dialect](
            schema,
            retriever=refuse,
            # The engine without backtracking: linear in the text, whatever the pattern.
            pattern_options=jsonschema_rs.RegexOptions(
                size_limit=MAX_PATTERN_SIZE, dfa_size_limit=MAX_PATTERN_SIZE
            ),
        )
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError) as error:
        if outside := _OUTSIDE.match(error.message):
            raise SchemaError(
                f"{where}: reference to `{outside[1]}`, which is not in the schema; nothing is "
                "fetched, so put it under `$defs`"
            ) from None
        raise SchemaError(f"{where}: the schema is not valid: {_fault(error)}") from None
    except ValueError as error:
        raise SchemaError(f"{where}: the schema is not valid: {error}") from None


def _fault(error: Any) -> str:
    place = path_text(getattr(error, "instance_path", ()))
    message = _cut(error.message)
    if message.endswith('is not a "regex"'):
        message += (
            " that can be matched in linear time (no lookaround, no back-references), or has "
            f"repetitions that take more than {MAX_PATTERN_SIZE // 1024} KiB"
        )
    return f"`{place}`: {message}" if place else message


def _described(error: ValidationError) -> str:
    place = path_text(error.instance_path)
    return f"`{place}`: {_cut(error.message)}" if place else _cut(error.message)


def _named(errors: list[ValidationError]) -> tuple[str, ...]:
    """Return the member that a mismatch of the whole object is about."""
    for error in errors[:1]:
        if error.kind.name == "required":
            return (str(error.kind.value),)
        if error.kind.name == "additionalProperties":
            return (str(error.kind.value[0]),)
    return ()


def _cut(message: str) -> str:
    return message if len(message) <= _LONGEST_ERROR else message[: _LONGEST_ERROR - 1] + "…"


# --- dialects ----------------------------------------------------------------------------------


def _dialect(schema: dict[str, Any] | bool, where: str) -> str:
    named = schema.get("$schema") if isinstance(schema, dict) else None
    if named is None:
        return _DEFAULT
    bare = str(named).removesuffix("#").removeprefix("https://").removeprefix("http://")
    if bare not in _DIALECTS:
        raise SchemaError(
            f"{where}: unknown dialect `{named}`; accepted are {', '.join(_DIALECTS.values())}"
        )
    return _DIALECTS[bare]
