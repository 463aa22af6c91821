"""The envelopes of JSON-RPC 2.0 messages, one per kind of message.

They leave `params` and `result` undecoded. No end uses them: the protocol layer has its own envelope,
which reads a message of unknown kind.
"""

from typing import Literal

import msgspec

from mcpearl.types.base import RequestId, Wire
from mcpearl.types.jsonrpc import ErrorObject


class JSONRPCRequest(Wire, kw_only=True):
    """A request, answered under the same id."""

    jsonrpc: Literal["2.0"]
    id: RequestId
    method: str
    params: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class JSONRPCNotification(Wire, kw_only=True):
    """A message without an answer."""

    jsonrpc: Literal["2.0"]
    method: str
    params: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class JSONRPCResultResponse(Wire, kw_only=True):
    """The answer to a request that succeeded."""

    jsonrpc: Literal["2.0"]
    id: RequestId
    result: msgspec.Raw


class JSONRPCErrorResponse(Wire, kw_only=True):
    """The answer to a request that failed; without an id if it could not be read."""

    jsonrpc: Literal["2.0"]
    error: ErrorObject
    id: RequestId | None = None
