"""JSON-RPC 2.0: the error object, and MCP's error codes."""

from typing import Any, Final

import msgspec

from mcpearl.types.base import Wire

JSONRPC_VERSION: Final = "2.0"

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
RESOURCE_NOT_FOUND: Final = -32002
RATE_LIMITED: Final = -32010  # ours: the specification leaves the codes up to -32019 to servers
OVERLOADED: Final = -32011  # ours
HEADER_MISMATCH: Final = -32020
MISSING_REQUIRED_CLIENT_CAPABILITY: Final = -32021
UNSUPPORTED_PROTOCOL_VERSION: Final = -32022
URL_ELICITATION_REQUIRED: Final = -32042
ERROR_CODES: Final = frozenset(
    {
        PARSE_ERROR,
        INVALID_REQUEST,
        METHOD_NOT_FOUND,
        INVALID_PARAMS,
        INTERNAL_ERROR,
        RESOURCE_NOT_FOUND,
        RATE_LIMITED,
        OVERLOADED,
        HEADER_MISMATCH,
        MISSING_REQUIRED_CLIENT_CAPABILITY,
        UNSUPPORTED_PROTOCOL_VERSION,
        URL_ELICITATION_REQUIRED,
    }
)
"""The codes above; those of applications can be any number."""


class ErrorObject(Wire, kw_only=True):
    """An error: its code, a message, and optional data."""

    code: int
    message: str
    data: Any = msgspec.UNSET
