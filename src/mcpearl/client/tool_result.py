"""The result of a tool as a client returns it: with the structured content as Python objects."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Generic, TypeVar

import msgspec

from mcpearl.protocol.errors import InvalidResult
from mcpearl.types.tools import CallToolResult

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

        A value that the server put under `result`, since structured content is an object, is taken
        out. With `returns=`, it is of that type; else objects have attributes as the output schema
        names them.
        """
        members = self.__dict__
        if "data" not in members:
            read: Reader | None = members.get("reader")
            plain = self.structured_content
            members["data"] = plain if read is None or plain is None else read(plain)
        data: T = members["data"]
        return data

    def read_with(self, reader: Reader | None) -> None:
        """Have `data` made by a function, when it is asked for.

        Args:
            reader: called with the structured content; None to leave it as it is.
        """
        self.__dict__["reader"] = reader

    def read_as(self, kind: Any, name: str, *, wrapped: bool) -> None:
        """Make `data` a value of a type; raise `InvalidResult` if it does not fit.

        Args:
            kind: The type.
            name: The tool, for the error.
            wrapped: Whether the server says that the value is under `result`.
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
    """Return where the value of a result may be, the likeliest place last."""
    content = result.structured_content
    if content is None:  # an old server, which has the value as text only
        text = result.text
        try:
            return [text, msgspec.json.decode(text)]
        except msgspec.DecodeError:
            return [text]
    inner = isinstance(content, dict) and content.keys() == {"result"}
    if wrapped and inner:
        return [content["result"]]
    # The official SDK does not say that it puts values under `result`.
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
