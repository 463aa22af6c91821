"""The connection of a client that has receipts: each request is recorded when it is sent and answered."""

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from mcpearl.client.connection import ClientConnection
from mcpearl.protocol.errors import ConnectionLost, McpError, RequestTimeout
from mcpearl.protocol.events import Call, Caller
from mcpearl.protocol.pending import PendingRequest
from mcpearl.transports.transport import Outgoing

if TYPE_CHECKING:
    from mcpearl.receipts.recorder import Recorder


class RecordedConnection(ClientConnection):
    """A connection whose requests are recorded.

    Args:
        recorder: Records the requests.
        *rest: As for `ClientConnection`.
    """

    def __init__(self, recorder: "Recorder", *rest: Any) -> None:
        super().__init__(*rest)
        self._recorder = recorder

    async def _outcome(
        self,
        entry: PendingRequest,
        message: bytes,
        about: Outgoing,
        future: "asyncio.Future[msgspec.Raw]",
    ) -> msgspec.Raw:
        recorder, end = self._recorder, self.end
        place = message.find(b',"params":')
        params = b"{}" if place < 0 else message[place + 10 : -1]
        caller = Caller(end.version, None, end.capabilities)
        call = Call(entry.id, entry.method, about.params, params, caller)
        try:
            recorder.begin(call)
        except McpError:
            end.pending.discard(entry.id)
            raise
        try:
            raw = await super()._outcome(entry, message, about, future)
        except BaseException as error:
            recorder.ended(call, _outcome_of(error))
            if recorder.durable and isinstance(error, McpError):
                await recorder.commit()
            raise
        recorder.ended(call, "result", bytes(raw))
        if recorder.durable:
            await recorder.commit()
        return raw


def _outcome_of(error: BaseException) -> str:
    match error:
        case McpError():
            return "error"
        case RequestTimeout():
            return "timeout"
        case ConnectionLost():
            return "lost"
    return "cancelled" if isinstance(error, asyncio.CancelledError) else "failed"
