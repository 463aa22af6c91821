"""What every connection of a server does for the calls it runs, whether there is a session or not."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

import msgspec

from mcpearl.protocol import codec
from mcpearl.protocol.events import Call, Event, Many, Opened, Outlet, Reply
from mcpearl.protocol.fields import narrow
from mcpearl.protocol.modern import LISTEN
from mcpearl.protocol.server_end import ServerEnd
from mcpearl.server.core import ServerCore
from mcpearl.types.base import Result, encode

if TYPE_CHECKING:
    from mcpearl.server.calls import Calls
    from mcpearl.server.session import Session

TURN = 0.001  # seconds a handler may keep sending; what it sends meanwhile leaves together


class CallEnd:
    """The server's end of calls, and their handlers' peer."""

    loop: asyncio.AbstractEventLoop
    end: ServerEnd
    session: "Session | None" = None
    _core: ServerCore

    if TYPE_CHECKING:

        @property
        def _calls(self) -> Calls: ...

    async def _listen(self, call: Call) -> None:
        raise NotImplementedError

    def run_at_once(self, calls: list[Call]) -> bool:
        """Run a single call, which has its outlet, if it is known not to wait; return whether it ended.

        What is left after that has to be `run`.
        """
        call = calls[0]
        if call.method != "tools/call" or len(calls) != 1:
            return False
        params = call.params
        if params.name not in self._core.at_once or params.task is not None:
            return False
        self._calls.start_at_once(call)
        return call.work is None

    def run(self, calls: list[Call]) -> Coroutine[Any, Any, None]:
        """Run calls, which have their outlets, to their end; a single one runs in the current task."""
        if len(calls) == 1 and calls[0].method != LISTEN:
            call, outlives = calls[0], self._core.outlives
            if call.work is not None or (outlives is not None and outlives(call)):
                return self._calls.run_until_answered(call)
            return self._calls.run_here(call)
        return self._calls.run_all(calls, self._run)

    def _run(self, call: Call) -> Coroutine[Any, Any, None]:
        return self._listen(call) if call.method == LISTEN else self._calls.run(call)

    def waits_for(self, call: Call) -> bool:
        """Whether the client still waits for this call."""
        return self.end.is_open(call)

    def answer(self, call: Call, result: Result) -> None:
        """Answer a call whose handler continues."""
        self._calls.answer_early(call, result)

    def stop(self, call: Call) -> None:
        """End the handler of a call whose round is over."""
        if call.work is not None:
            call.work.cancel()


def take(event: Event, outlet: Outlet, handle: Callable[[Event], None]) -> list[Call]:
    """Handle a message whose answers have an outlet of their own; return the calls to run."""
    match event:
        case Call():
            event.outlet = outlet
            return [event]
        case Reply(message, refused):
            outlet.finish(message, refused)
        case Opened(message):
            outlet.finish(message)
        case Many(events):
            return [call for each in events for call in take(each, outlet, handle)]
        case _:
            handle(event)
    return []


def send_notification(call: Call, method: str, params: msgspec.Struct) -> None:
    """Send a notification of a call to its outlet, in the form of the caller's version."""
    body = encode(narrow(params, call.caller.version.name))
    call.outlet.send(codec.encode_notification(method, body))
