"""A POST between its admission and its answer: its message, and what a call must have to be run."""

from typing import TYPE_CHECKING, Any

from msgspec import UNSET, Struct

from mcpearl.net.http_server.request import Request
from mcpearl.protocol import codec
from mcpearl.protocol.codec import Envelope
from mcpearl.protocol.errors import McpError
from mcpearl.protocol.events import Call
from mcpearl.transports.http_server.gate import Gate, Refused
from mcpearl.transports.http_server.header_check import MessageHeaders
from mcpearl.transports.http_server.post import CallRunner, PostOutlet
from mcpearl.types.jsonrpc import HEADER_MISMATCH

if TYPE_CHECKING:
    from mcpearl.transports.http_server.endpoint import Endpoint


class Post(Struct):
    """One POST that was admitted: its message, and everything its answer depends on."""

    endpoint: "Endpoint"
    request: Request
    outlet: PostOutlet
    headers: MessageHeaders
    message: Envelope | bytes
    """Bytes if it is a batch, or not a message."""
    principal: Any

    def checked(self, conversation: CallRunner, calls: list[Call], modern: bool) -> list[Call]:
        """Return the calls to be run: none if the headers differ. Raises `Refused` for missing scopes."""
        call, endpoint = calls[0], self.endpoint
        if call.batch is not None:
            return calls  # the registry checks the scopes of each call
        try:
            if endpoint.gate is not None:
                self._check_scopes(call, endpoint.gate)
            if modern:
                mismatch = self.headers.mismatch_of_call(call, endpoint.host.mirrored())
            else:
                mismatch = self.headers.mismatch_of_legacy(call)
        except BaseException:  # also one raised by the server's own code
            conversation.give_up(calls)
            raise
        if mismatch is None:
            return calls
        conversation.give_up(calls)
        self.refuse(mismatch)
        return []

    def _check_scopes(self, call: Call, gate: Gate) -> None:
        needed = self.endpoint.host.missing_scopes(call, self.principal)
        if needed:
            raise gate.insufficient(self.request, needed)

    def refuse(self, error: McpError) -> None:
        """Answer with an error of the request itself, and note that it was refused."""
        message = self.message
        self.endpoint.refusals.note(self.request, Refused(400, _logged(error)))
        id = message.id if isinstance(message, Envelope) and message.id is not UNSET else None
        self.outlet.refuse(codec.encode_error(id, error))


def _logged(error: McpError) -> str:
    """Return what logs say of headers that differ from the message: which one, but not its value."""
    if error.code != HEADER_MISMATCH:
        return "Invalid params"
    return error.message.partition(" header ")[0]
