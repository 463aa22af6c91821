"""The requests a server sends to one legacy client, each with its deadline."""

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from mcpearl.protocol.errors import ConnectionLost, InvalidResult, McpError, RequestTimeout
from mcpearl.protocol.events import Answer, Call
from mcpearl.protocol.server_end import ServerEnd
from mcpearl.types.base import RequestParams, Result, decode

if TYPE_CHECKING:
    from mcpearl.runtime.observers import Guarded, ObservedQuestion
    from mcpearl.runtime.timers import DeadlineTimer
    from mcpearl.transports.transport import Transport


class Questions:
    """Asks the client of one end, and waits for its answers."""

    __slots__ = ("_end", "_loop", "_observer", "_timeout", "_timer", "_transport")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        end: ServerEnd,
        transport: "Transport",
        timeout: float,
        observer: "Guarded | None" = None,
    ) -> None:
        self._observer = observer
        self._loop = loop
        self._end = end
        self._transport = transport
        self._timeout = timeout
        self._timer: DeadlineTimer | None = None  # most clients are never asked

    async def ask(self, call: Call, method: str, params: msgspec.Struct, kind: type[Result]) -> Any:
        """Send a request on behalf of a call, and wait for its answer."""
        observer = self._observer
        if observer is None:
            return await self._ask(call, method, params, kind)
        from mcpearl.runtime.observers import ObservedQuestion, watched

        caller = self._end.caller
        version = "" if caller is None else caller.version.name
        question = ObservedQuestion(method, params, self._transport.medium, version)
        with watched(observer, question) as began:
            added = observer.question_meta(began)
            if added:  # it replaces what an upstream has written there, whose question this may be
                params = replace(params, meta={**(getattr(params, "meta", None) or {}), **added})
            question.answer = await self._ask(call, method, params, kind, question)
        return question.answer

    async def _ask(
        self,
        call: Call,
        method: str,
        params: msgspec.Struct,
        kind: type[Result],
        question: "ObservedQuestion | None" = None,
    ) -> Any:
        future: asyncio.Future[msgspec.Raw] = self._loop.create_future()
        entry, message = self._end.ask(method, params, future, self._loop.time(), self._timeout)
        if question is not None:
            question.id = entry.id
        self._timed().at_latest(entry.deadline)
        call.outlet.send(message)
        try:
            raw = await future
        except asyncio.CancelledError:
            if entry.id in self._end.pending:
                call.outlet.send(self._end.abandon(entry, "the call it belongs to has ended"))
            raise
        try:
            return decode(kind, raw)
        except (msgspec.DecodeError, RecursionError) as error:
            raise InvalidResult(
                f"the client's answer to `{method}` is not valid: {error}"
            ) from None

    def settle(self, answer: Answer) -> None:
        """Hand the client's answer to the handler that waits for it."""
        waiter = answer.entry.waiter
        if waiter.done():
            return
        if answer.error is not None:
            waiter.set_exception(McpError.of(answer.error))
        else:
            waiter.set_result(answer.result)

    def ping(self, patience: float) -> bool:
        """Ping the client, unless another request waits, which has a timeout of its own."""
        if self._end.pending:
            return False
        answered = self._loop.create_future()
        answered.set_result(None)  # any sign of life counts, so the answer itself is not awaited
        now = self._loop.time()
        entry, message = self._end.ask("ping", RequestParams(), answered, now, patience)
        self._timed().at_latest(entry.deadline)
        self._transport.send(message)
        return True

    def _timed(self) -> "DeadlineTimer":
        if self._timer is None:
            from mcpearl.runtime.timers import DeadlineTimer

            self._timer = DeadlineTimer(self._loop, self._expire)
        return self._timer

    def _expire(self, now: float) -> float | None:
        for entry in self._end.pending.expire(now):
            message = self._end.abandon(entry, f"no answer within {entry.timeout:g} s")
            self._transport.send(message)
            if not entry.waiter.done():
                entry.waiter.set_exception(RequestTimeout(entry.method, entry.timeout))
        return self._end.pending.next_deadline()

    def close(self) -> None:
        """Fail everything that waits: the client is gone."""
        if self._timer is not None:
            self._timer.cancel()
        for entry in self._end.pending.clear():
            if not entry.waiter.done():
                entry.waiter.set_exception(
                    ConnectionLost("the client is gone", maybe_executed=True)
                )
