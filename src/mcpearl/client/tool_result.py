"""The result of a tool as a client returns it: with the structured content as Python objects."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Generic, TypeVar

import msgspec

from mcpearl.protocol.errors import InvalidResult
from mcpearl.types.tool_calls import CallToolResult

T = TypeVar("T")
Reader = Callable[[Any], Any]


class TypedToolResult(CallToolResult, Generic[T], kw_only=True, dict=True):
    """The result of a tool as a client returns it, with `data`.

    Args:
        content: the content blocks.
        structured_content: the same as JSON, if the tool has an output schema; otherwise None.
        is_error: whether the tool failed; the content then says why.
        meta: the `_meta` of the result.
        result_type: `complete` in the modern era.
        extra: further members that the server sent.

    >>> result = await client.call_tool("forecast", {"city": "Oslo"}, returns=Forecast)
    >>> result.data.temperature
    """

    @property
    def data(self) -> T:
        """The structured content as Python objects; None if there is none.

        A server puts a value that is not an object under `result`; here it is taken out again. With
        `returns=`, `data` is of that type; otherwise objects have the attributes that the output
        schema names.
        """
        members = self.__dict__
        if "data" not in members:
            read: Reader | None = members.get("reader")
            plain = self.structured_content
            members["data"] = plain if read is None or plain is None else read(plain)
        data: T = members["data"]
        return data

    def read_with(self, reader: Reader | None) -> None:
        """Set the function that makes `data` when it is first read.

        Args:
            reader: called with the structured content; None to return that as it is.
        """
        self.__dict__["reader"] = reader

    def read_as(self, kind: Any, name: str, *, wrapped: bool) -> None:
        """Make `data` a value of a type; raise `InvalidResult` if it does not fit.

        Args:
            kind: The type.
            name: The tool, for the error.
            wrapped: Whether the output schema says that the value is under `result`.
        """
        read = _reader_of(kind)
        for value in _candidates(self, wrapped):
            try:
                self.__dict__["data"] = read(value)
                return
            except ValueError as error:
                mismatch = error
        shown = getattr(kind, "__name__", None) or str(kind)
        raise InvalidResult(f"the result of tool `{name}` is not a `{shown}`: {mismatch}")


def _candidates(result: CallToolResult, wrapped: bool) -> list[Any]:
    """Return what may be the value of a result, in the order of trying."""
    content = result.structured_content
    if content is None:  # an old server, which sends the value as text only
        text = result.text
        try:
            return [text, msgspec.json.decode(text)]
        except msgspec.DecodeError:
            return [text]
    inner = isinstance(content, dict) and content.keys() == {"result"}
    if wrapped and inner:
        return [content["result"]]
    # The official SDK puts values under `result` without saying so in the schema.
    return [content["result"], content] if inner else [content]


@lru_cache(256)
def _cached_reader(kind: Any) -> Reader:
    from mcpearl.schema.reader import compile_reader

    return compile_reader(kind)


def _reader_of(kind: Any) -> Reader:
    try:
        return _cached_reader(kind)
    except TypeError as error:
        raise TypeError(f"`returns` cannot be {kind!r}: {error}") from None
