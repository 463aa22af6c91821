"""JSON-RPC 2.0: message envelopes, the error object, and the error codes of MCP with their data.

The envelopes leave `params` and `result` undecoded. They name the four message kinds; the protocol
layer reads a message of unknown kind with an envelope of its own.
"""

from typing import Any, Final, Literal

import msgspec

from mcpearl.types.base import Open, RequestId, Wire
from mcpearl.types.capabilities import ClientCapabilities
from mcpearl.types.elicitation import ElicitRequestParams

JSONRPC_VERSION: Final = "2.0"

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
RESOURCE_NOT_FOUND: Final = -32002
HEADER_MISMATCH: Final = -32020
MISSING_REQUIRED_CLIENT_CAPABILITY: Final = -32021
UNSUPPORTED_PROTOCOL_VERSION: Final = -32022
URL_ELICITATION_REQUIRED: Final = -32042


class ErrorObject(Wire, kw_only=True):
    """Why a request failed: a code, a sentence, and whatever else helps the caller."""

    code: int
    message: str
    data: Any = msgspec.UNSET


class UnsupportedProtocolVersionData(Wire, kw_only=True):
    """Goes with UNSUPPORTED_PROTOCOL_VERSION: what was asked for and what is spoken here."""

    supported: list[str]
    requested: str


class MissingRequiredClientCapabilityData(Wire, kw_only=True):
    """Goes with MISSING_REQUIRED_CLIENT_CAPABILITY: what the client would have to declare."""

    required_capabilities: ClientCapabilities


class URLElicitationRequiredData(Open, kw_only=True):
    """Goes with URL_ELICITATION_REQUIRED: the addresses a user must visit before a retry."""

    elicitations: list[ElicitRequestParams]


class JSONRPCRequest(Wire, kw_only=True):
    """A call that wants an answer under the same id."""

    jsonrpc: Literal["2.0"]
    id: RequestId
    method: str
    params: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class JSONRPCNotification(Wire, kw_only=True):
    """A message that gets no answer."""

    jsonrpc: Literal["2.0"]
    method: str
    params: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class JSONRPCResultResponse(Wire, kw_only=True):
    """The answer of a request that worked."""

    jsonrpc: Literal["2.0"]
    id: RequestId
    result: msgspec.Raw


class JSONRPCErrorResponse(Wire, kw_only=True):
    """The answer of a request that failed; without an id when none could be read."""

    jsonrpc: Literal["2.0"]
    error: ErrorObject
    id: RequestId | None = None
