"""Calls of a server that has receipts: each is recorded when it begins and when it is answered.

Written behind, a call is recorded beside being run. Durable, its answer waits in the dispatcher until its
records are on disk, so that it counts as a call in flight until then.
"""

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from mcpearl.protocol import codec
from mcpearl.protocol.errors import McpError
from mcpearl.protocol.events import Call, Encoded
from mcpearl.protocol.server_end import encoded_result
from mcpearl.receipts.records import split
from mcpearl.server.calls import Calls, SampledCalls
from mcpearl.server.context import Context
from mcpearl.server.core import ServerCore
from mcpearl.server.dispatch import Dispatch
from mcpearl.server.failures import answer_to
from mcpearl.types.base import Result

if TYPE_CHECKING:
    from mcpearl.receipts.recorder import Recorder


class RecordedCalls(Calls):
    """Calls that are recorded."""

    def __init__(self, recorder: "Recorder", *rest: Any) -> None:
        super().__init__(*rest)
        self._recorder = recorder
        self._end.watch_answers(recorder.commit_answer if recorder.durable else recorder.answered)

    def begin(self, call: Call) -> bool:
        """Record that a call begins, or refuse it because it cannot be recorded."""
        try:
            self._recorder.begin(call)
        except McpError as error:
            self.answer(call, error)
            return False
        return super().begin(call)

    def run(self, call: Call) -> Coroutine[Any, Any, None]:
        """Record that a call begins, and run it."""
        try:
            self._recorder.begin(call)
        except McpError as error:
            return self._refuse(call, error)
        return super().run(call)

    def stop(self, call: Call) -> None:
        """Stop a handler, and record that."""
        super().stop(call)
        self._recorder.ended(call, "cancelled")


class RecordedSampledCalls(RecordedCalls, SampledCalls):
    """Calls that are recorded, and of which an observer follows few."""


def durable(core: ServerCore, recorder: "Recorder", dispatch: Dispatch) -> Dispatch:
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
