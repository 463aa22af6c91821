"""The outcome of a tool that ran as a task, in the form in which it is stored."""

import msgspec

from mcpearl.protocol.errors import McpError
from mcpearl.protocol.events import Call, Encoded, EncodedToolResult
from mcpearl.protocol.fields import narrow
from mcpearl.types.base import Result, encode
from mcpearl.types.content import TextContent
from mcpearl.types.input_required import InputRequiredResult
from mcpearl.types.jsonrpc import ErrorObject
from mcpearl.types.tool_calls import CallToolResult


def encoded_result(call: Call, value: Result | Encoded) -> tuple[bytes, bool]:
    """Return a tool's result as it is stored, and whether it reports a failure."""
    if type(value) is EncodedToolResult:
        return value.body, False
    if isinstance(value, Encoded):
        return value.body, _reads_as_error(value.body)
    if isinstance(value, InputRequiredResult):
        raise TypeError("a task asks with `ctx`, not with an input-required result")
    body = encode(narrow(value, call.caller.version.name))
    return body, isinstance(value, CallToolResult) and bool(value.is_error)


class _IsError(msgspec.Struct, rename="camel"):
    is_error: bool | None = None


def _reads_as_error(body: bytes) -> bool:
    return bool(msgspec.json.decode(body, type=_IsError).is_error)


def encoded_error(error: McpError) -> bytes:
    """Return an error as it is stored; without its data, if that has no JSON form."""
    try:
        return msgspec.json.encode(
            ErrorObject(code=error.code, message=error.message, data=error.data)
        )
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
        return msgspec.json.encode(ErrorObject(code=error.code, message=error.message))


def failure_text(value: Result | Encoded) -> str:
    """Return the text of a tool's failure."""
    if isinstance(value, CallToolResult):
        texts = [block.text for block in value.content if isinstance(block, TextContent)]
        return " ".join(text for text in texts if text) or "The tool failed"
    return "The tool failed"
