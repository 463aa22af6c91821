"""Receipts of a server: calls are recorded when they begin, in front of the dispatcher.

`Calls` records the end of each when it is answered or stopped. If receipts are durable, an answer waits
here until its records are on disk, so the call counts as in flight until then. Calls of a mounted server
are answered by the `Calls` of another one; so they are recorded here from their begin to their end.
"""

from typing import TYPE_CHECKING

from mcpearl.protocol import codec
from mcpearl.protocol.errors import McpError
from mcpearl.protocol.events import Call, Encoded, as_sent
from mcpearl.protocol.server_end import encoded_result
from mcpearl.receipts.records import split
from mcpearl.server.context import Context
from mcpearl.server.core import ServerCore
from mcpearl.server.dispatch import Dispatch
from mcpearl.server.failures import answer_to, answer_unlogged
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
        recorder.answered(call, as_sent(call, message, core.limits.max_outgoing))
        await recorder.commit()
        if isinstance(answer, McpError):
            raise answer
        return Encoded(split(message)[1], complete=True)

    return held


def recorded_as_part(core: ServerCore, recorder: "Recorder", dispatch: Dispatch) -> Dispatch:
    """Record calls that reach the server through another one that it is mounted in."""

    async def held(call: Call, ctx: Context) -> Result | Encoded:
        # The other server may record the same call, and notes on the call that it did.
        own = Call(call.id, call.method, call.params, call.raw, call.caller)
        recorder.begin(own)
        try:
            answer = await dispatch(call, ctx)
        except BaseException as error:
            _note_failure(core, recorder, call, own, error)
            if recorder.durable and isinstance(error, Exception):
                await recorder.commit()
            raise
        _note_answer(core, recorder, own, answer)
        if recorder.durable:
            await recorder.commit()
        return answer

    return held


def _note_failure(
    core: ServerCore, recorder: "Recorder", call: Call, own: Call, error: BaseException
) -> None:
    if call.rounds is not None and call.rounds.suspended:
        recorder.ended(own, "input_required")
    elif isinstance(error, Exception):
        # The server around it answers the call, and logs the error then.
        answer = answer_unlogged(call, error, mask=core.mask_errors)
        _note_answer(core, recorder, own, answer)
    else:
        recorder.ended(own, "cancelled")


def _note_answer(
    core: ServerCore, recorder: "Recorder", own: Call, answer: Result | Encoded | McpError
) -> None:
    message = _message(core, own, answer)
    if message is None:
        recorder.ended(own, "error")
    else:
        recorder.answered(own, message)


def _message(core: ServerCore, call: Call, answer: Result | Encoded | McpError) -> bytes | None:
    if isinstance(answer, McpError):
        return codec.encode_error(call.id, answer)
    try:
        members, body = encoded_result(core.stamp, answer, call.caller.version)
        return codec.encode_result(call.id, body, members)
    except Exception:
        return None
