"""Receipts of a server: calls are recorded when they begin, in front of the dispatcher.

`Calls` records the end of each when it is answered or stopped. If receipts are durable, an answer waits
here until its records are on disk, so the call counts as in flight until then.
"""

from typing import TYPE_CHECKING

from mcpearl.protocol import codec
from mcpearl.protocol.errors import McpError
from mcpearl.protocol.events import Call, Encoded
from mcpearl.protocol.server_end import encoded_result
from mcpearl.receipts.records import split
from mcpearl.server.context import Context
from mcpearl.server.core import ServerCore
from mcpearl.server.dispatch import Dispatch
from mcpearl.server.failures import answer_to
from mcpearl.types.base import Result

if TYPE_CHECKING:
    from mcpearl.receipts.recorder import Recorder


def recorded(core: ServerCore, recorder: "Recorder", dispatch: Dispatch) -> Dispatch:
    """Record the start of a call, then dispatch it; a call that cannot be recorded may be refused."""
    answering = _held_back(core, recorder, dispatch) if recorder.durable else dispatch
    return recorder.beginning(answering)


def _held_back(core: ServerCore, recorder: "Recorder", dispatch: Dispatch) -> Dispatch:
    """Hold back each answer until the records of its call are on disk."""

    async def held(call: Call, ctx: Context) -> Result | Encoded:
        answer: Result | Encoded | McpError
        try:
            answer = await dispatch(call, ctx)
        except Exception as error:
            answer = answer_to(call, error, mask=core.mask_errors)
        message = _message(core, call, answer)
        if message is None:  # it has no JSON form; what is answered instead is recorded then
            assert not isinstance(answer, McpError)
            return answer
        recorder.answered(call, message)
        await recorder.commit()
        if isinstance(answer, McpError):
            raise answer
        return Encoded(split(message)[1], complete=True)

    return held


def _message(core: ServerCore, call: Call, answer: Result | Encoded | McpError) -> bytes | None:
    if isinstance(answer, McpError):
        return codec.encode_error(call.id, answer)
    try:
        members, body = encoded_result(core.stamp, answer, call.caller.version)
        return codec.encode_result(call.id, body, members)
    except Exception:
        return None
