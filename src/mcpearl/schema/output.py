"""Turns a return annotation into an output schema and an encoder that checks what it encodes.

Structured content is always an object. A value of any other type is put under the member `result`.
The encoder checks every value against the annotation, so a result never contradicts the published
schema.
"""

from __future__ import annotations

import collections.abc
import inspect
import types
from collections.abc import Callable
from typing import Annotated, Any, Never, NoReturn, Union, get_args, get_origin

import msgspec

from mcpearl.schema.errors import OutputError
from mcpearl.schema.inside import uses_pydantic
from mcpearl.schema.parameters import MISSING
from mcpearl.schema.publish import Publisher
from mcpearl.schema.stand_ins import NoEncoding, decode_hook, encode_hook
from mcpearl.schema.with_msgspec import no_json_form
from mcpearl.types.base import WRAPPED_RESULT_KEY

__all__ = ["Output", "compile_output"]

_NOTHING = (MISSING, inspect.Signature.empty, None, type(None), Any, object, Never, NoReturn)
_AWAITABLE = (collections.abc.Awaitable, collections.abc.Coroutine)
_GROUPS = (
    *(Union, types.UnionType, Annotated, list, tuple, set, frozenset),
    *(collections.abc.Sequence, collections.abc.Iterable),
)


class Output:
    """A compiled return type, its schema and its encoder; made by `compile_output`.

    Args:
        schema: The output schema; its type is always `object`.
        wrapped: Whether the value is put under `result`.
        encode: Encodes a value as structured content, already wrapped. Raises `OutputError`.
    """

    __slots__ = ("encode", "schema", "wrapped")

    def __init__(
        self, schema: dict[str, Any], wrapped: bool, encode: Callable[[Any], bytes]
    ) -> None:
        self.schema = schema
        self.wrapped = wrapped
        self.encode = encode


def compile_output(
    annotation: Any,
    *,
    where: str,
    name: str,
    is_content: Callable[[Any], bool] = lambda annotation: False,
) -> Output | None:
    """Compile a resolved return annotation. Returns None if there is nothing to publish.

    Args:
        annotation: The return annotation, already resolved.
        where: What kind of thing returns the value, for error messages.
        name: Its name, for error messages.
        is_content: Recognises types that are content already (text, images, whole results) and
            therefore not structured.

    >>> output = compile_output(int, where="tool", name="add")
    >>> output.encode(3)
    b'{"result":3}'
    """
    annotation = _awaited(annotation)
    if any(annotation is nothing for nothing in _NOTHING) or _has_content(annotation, is_content):
        return None
    subject = f"{where} `{name}`"
    if uses_pydantic(annotation):
        from mcpearl.schema.output_pydantic import compile_pydantic

        schema, encode = compile_pydantic(annotation, subject)
    else:
        schema, encode = _compile(annotation, subject)
    rooted = object_schema(schema)
    if rooted is not None:
        return Output(rooted, False, encode)
    return Output(_wrapped_schema(schema), True, _wrapping(annotation, encode))


def object_schema(schema: dict[str, Any]) -> dict[str, Any] | None:
    """Return the schema with an object at its root, or None if it describes something else."""
    defs = schema.get("$defs", {})
    if "$ref" not in schema:
        return schema if schema.get("type") == "object" else None
    name = schema["$ref"].rpartition("/")[2]
    target = defs[name]
    if target.get("type") != "object":
        return None
    said = {key: value for key, value in schema.items() if key not in ("$ref", "$defs")}
    rooted = {**target, **said}
    # The definition is kept only if something still refers to it, as in a recursive type.
    others = {key: value for key, value in defs.items() if key != name}
    pointer = f'"{schema["$ref"]}"'.encode()
    kept = defs if pointer in msgspec.json.encode([target, others]) else others
    return {**rooted, "$defs": kept} if kept else rooted


def _wrapped_schema(schema: dict[str, Any]) -> dict[str, Any]:
    inner = {key: value for key, value in schema.items() if key != "$defs"}
    outer = {
        "type": "object",
        "properties": {"result": inner},
        "required": ["result"],
        WRAPPED_RESULT_KEY: True,
    }
    return {**outer, "$defs": schema["$defs"]} if "$defs" in schema else outer


def _awaited(annotation: Any) -> Any:
    """Return the result type of an awaitable annotation."""
    return get_args(annotation)[-1] if get_origin(annotation) in _AWAITABLE else annotation


def _has_content(annotation: Any, is_content: Callable[[Any], bool]) -> bool:
    if is_content(annotation):
        return True
    if get_origin(annotation) not in _GROUPS:
        return False
    return any(_has_content(part, is_content) for part in get_args(annotation))


def _compile(annotation: Any, subject: str) -> tuple[dict[str, Any], Callable[[Any], bytes]]:
    publisher = Publisher(output=True)
    try:
        kind = publisher.adapt(annotation)
        decode = msgspec.json.Decoder(kind, dec_hook=decode_hook).decode
        schema = publisher.schema(kind)
    except (TypeError, ValueError, NameError, RecursionError) as error:
        raise no_json_form(f"{subject}: return value", annotation, error) from error
    if publisher.defs:
        schema = {**schema, "$defs": publisher.defs}
    to_json = msgspec.json.Encoder(enc_hook=encode_hook).encode

    def encode(value: Any) -> bytes:
        """Encode, then check by decoding, so that exactly the bytes to be sent are checked."""
        try:
            raw = to_json(value)
        except NoEncoding as error:
            raise OutputError(
                f"{subject}: the result is or contains an instance of "
                f"`{error.kind.__qualname__}`, {error}"
            ) from None
        except (TypeError, ValueError, RecursionError, OverflowError) as error:
            raise OutputError(f"{subject}: the result has no JSON form: {error}") from error
        try:
            decode(raw)
        except msgspec.ValidationError as error:
            from mcpearl.schema.wording import describe, not_finite

            said = not_finite(value) or describe(error, "result", msgspec.json.decode(raw), schema)
            raise OutputError(f"{subject}: the result does not fit: {said}") from None
        return raw

    return schema, encode


def _wrapping(annotation: Any, encode: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    """Put the value under `result`. Values that are exactly a builtin type need no check."""

    def encode_any(value: Any) -> bytes:
        return b'{"result":' + encode(value) + b"}"

    def encode_int(value: Any) -> bytes:
        return b'{"result":%d}' % value if type(value) is int else encode_any(value)

    def encode_bool(value: Any) -> bytes:
        if value is True:
            return b'{"result":true}'
        return b'{"result":false}' if value is False else encode_any(value)

    return {int: encode_int, bool: encode_bool}.get(annotation, encode_any)
