"""Converts the exceptions of handlers to answers, as the caller's version defines them.

This is the only place where an exception becomes an answer. Tracebacks are logged in this process and
never sent to the peer.
"""

import logging

from mcpearl import types
from mcpearl.protocol.errors import (
    LimitReached,
    McpError,
    MissingClientCapability,
    ResourceNotFound,
    ToolError,
    UrlElicitationRequired,
    brief,
)
from mcpearl.protocol.events import Call
from mcpearl.schema.errors import ArgumentsError, OutputError
from mcpearl.stores.errors import RETRY_AFTER, TOLD, StoreUnavailable
from mcpearl.types.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS

logger = logging.getLogger("mcpearl.server")
_LONGEST = 4096  # characters of an exception's text that are sent


def only_error(error: BaseException) -> BaseException:
    """Return what a task group raised for a single failed task; any other error as it is."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def answer_to(call: Call, error: BaseException, *, mask: bool) -> "types.CallToolResult | McpError":
    """Return the answer to a call whose handler raised `error`; log what no caller is to blame for."""
    error = only_error(error)
    if isinstance(error, LimitReached):
        logger.warning("%s: %s", _logged(call), error)
    elif isinstance(error, OutputError):  # its text repeats the result, which logs do not have
        logger.warning("%s: the result does not fit; the answer says where", _logged(call))
    elif isinstance(error, StoreUnavailable):
        logger.error("%s: %s", _logged(call), error)
    elif not isinstance(error, (McpError, ArgumentsError, ToolError)):
        logger.error("%s raised", _logged(call), exc_info=error)
    return answer_unlogged(call, error, mask=mask)


def answer_unlogged(
    call: Call, error: BaseException, *, mask: bool
) -> "types.CallToolResult | McpError":
    """Return the answer to a call whose handler raised `error`, which is logged elsewhere."""
    error = only_error(error)
    version = call.caller.version
    is_tool = call.method == "tools/call"
    if isinstance(error, ResourceNotFound):
        return McpError(version.resource_not_found, error.message, error.data)
    if isinstance(error, MissingClientCapability) and not version.modern:
        return _failed(error.message) if is_tool else McpError(INTERNAL_ERROR, error.message)
    if isinstance(error, UrlElicitationRequired) and not version.url_elicitation_error:
        return _failed(error.message) if is_tool else McpError(INTERNAL_ERROR, error.message)
    if isinstance(error, McpError):
        return error
    if isinstance(error, ArgumentsError):
        if is_tool and version.arguments_as_result:
            return _failed(f"Invalid arguments for tool `{call.params.name}`: {error}")
        return McpError(INVALID_PARAMS, f"Invalid arguments: {error}", _named(call))
    if isinstance(error, (ToolError, LimitReached, OutputError)):
        return _failed(str(error)) if is_tool else McpError(INTERNAL_ERROR, str(error))
    if isinstance(error, StoreUnavailable):
        if is_tool:
            return _failed(TOLD)
        return McpError(INTERNAL_ERROR, TOLD, {"retryAfter": RETRY_AFTER})
    if is_tool:
        return _failed(f"Tool `{call.params.name}` failed{_said(error, mask)}")
    return McpError(INTERNAL_ERROR, f"{_subject(call)} failed{_said(error, mask)}", _named(call))


def _said(error: BaseException, mask: bool) -> str:
    if mask:
        return ""
    kind = type(error).__name__
    try:
        text = brief(str(error), _LONGEST)
    except Exception:  # raised by the exception's own `__str__`
        return f": {kind}"
    return f": {kind}: {text}" if text else f": {kind}"


def _failed(text: str) -> "types.CallToolResult":
    text = text.encode(errors="replace").decode()  # a lone surrogate has no JSON form
    return types.CallToolResult(content=[types.TextContent(text=text)], is_error=True)


def _named(call: Call) -> dict[str, str]:
    name = getattr(call.params, "name", None)
    uri = getattr(call.params, "uri", None)
    return {"name": name} if name else {"uri": uri} if uri else {"method": call.method}


def _logged(call: Call) -> str:
    """Return what logs call a call: URIs are arguments, which logs do not have."""
    return _subject(call) if call.method in ("tools/call", "prompts/get") else call.method


def _subject(call: Call) -> str:
    (name,) = _named(call).values()
    return f"{call.method} {name}" if name != call.method else name
