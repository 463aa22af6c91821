"""A client's calls: sent in rounds while the server has questions, and again after a lost connection.

A request that certainly did not reach the server is sent when the connection is back. A request that
may have run is sent again only if that does no harm; otherwise the caller gets the error, which says
that it may have run. All of this happens within the call's timeout.
"""

import asyncio
from collections.abc import Awaitable, Callable
from math import inf
from typing import Any, Generic, TypeVar, cast

import msgspec
from msgspec.structs import replace

from mcpearl.client.callbacks import Callbacks
from mcpearl.client.connection import ClientConnection
from mcpearl.client.extensions import ExtensionResult
from mcpearl.client.known_tools import KnownTools
from mcpearl.client.link import Link
from mcpearl.client.progress import ProgressCallback
from mcpearl.protocol.capabilities import SERVER_NEEDS
from mcpearl.protocol.errors import (
    CapabilityMissing,
    ConnectionLost,
    InvalidResult,
    RequestTimeout,
)
from mcpearl.protocol.pending import PendingRequest
from mcpearl.runtime.backoff import Backoff, doubling
from mcpearl.runtime.breaker import Breaker, BreakerOpen
from mcpearl.types.base import (
    InputResponseRequestParams,
    RequestParams,
    Result,
    convert,
    to_builtins,
)
from mcpearl.types.input_required import InputRequiredResult
from mcpearl.types.tool_calls import CallToolRequestParams

R = TypeVar("R", bound=Result)

# Sending these twice has the effect of sending them once. For tools, the server's hints say so.
REPEATABLE = frozenset(
    {
        "completion/complete",
        "logging/setLevel",
        "ping",
        "prompts/get",
        "prompts/list",
        "resources/list",
        "resources/read",
        "resources/subscribe",
        "resources/templates/list",
        "resources/unsubscribe",
        "server/discover",
        "tasks/cancel",
        "tasks/get",
        "tasks/list",
        "tasks/result",
        "tasks/update",
        "tools/list",
    }
)
# What `Client.ping` sends: a server that keeps failing may be asked whether it is there.
_PINGS = frozenset({"ping", "server/discover"})
# Delays before a round for which the server asked without having a question.
BETWEEN_ROUNDS = Backoff(delays=doubling(0.05, 5.0))


class ClientCall(msgspec.Struct, Generic[R], eq=False):
    """One call of the application: its request, and the time for everything that is done for it.

    The time starts with the first request. Progress moves its end, up to the maximum. The time stops
    while a request waits for authorization, and while the application answers a question.
    """

    method: str
    params: msgspec.Struct
    kind: type[R]
    timeout: float
    max_timeout: float
    on_progress: ProgressCallback | None = None
    meta: dict[str, Any] | None = None
    in_rounds: bool = False
    """Whether the server may have questions before it answers."""
    rounds: int = 0
    """How often the server asked for another round."""
    sent: list[PendingRequest] = []
    """The requests sent; the deadline of the last one is the call's."""
    expires: tuple[float, float] | None = None
    """The deadlines while no request is sent: at first, and after the time was stopped."""
    may_have_run: bool = False
    """Whether the server may have worked on this round before its connection was lost."""
    repeats: int = 0
    """How often this round was sent again on a connection that is still open."""
    resolves: bool = True
    """Whether a result of an extension's type is resolved; otherwise the call returns it as it is."""

    def deadlines(self, now: float) -> tuple[float, float]:
        """Return when the call expires without progress, and when in any case; start its time if needed.

        Both are times of the event loop.
        """
        if self.sent:
            entry = self.sent[-1]
            del self.sent[:-1]
            if entry.deadline != inf or self.timeout == inf:
                return entry.deadline, entry.hard_deadline
            self.sent.clear()  # it was held when its connection was lost
            self.expires = None
        if self.expires is None:
            self.expires = now + self.timeout, now + self.max_timeout
        return self.expires

    def time_left(self, now: float) -> tuple[float, float]:
        """Return the seconds until the call expires without progress, and until it does in any case."""
        deadline, latest = self.deadlines(now)
        return deadline - now, latest - now

    def resume(self, now: float, left: tuple[float, float]) -> None:
        """Start the time again, with what was left of it when the application was asked."""
        self.sent.clear()
        self.expires = now + left[0], now + left[1]

    def timed_out(self, last: RequestTimeout | None = None) -> RequestTimeout:
        """Return the error of this call, after its last request had this one."""
        subject: str = getattr(self.params, "name", "") or getattr(self.params, "uri", "")
        if last is None or last.seconds < self.timeout:  # only the time left for the last attempt
            return RequestTimeout(self.method, self.timeout, subject=subject)
        return RequestTimeout(self.method, last.seconds, hard=last.hard, subject=subject)


class Requests:
    """Runs the calls of one client."""

    def __init__(
        self,
        link: Link,
        callbacks: Callbacks,
        tools: KnownTools,
        learn: Callable[[str, float], Awaitable[None]],
        claimed: Callable[[ExtensionResult, Result], Awaitable[Result]],
        *,
        timeout: float,
        max_timeout: float,
        max_rounds: int,
        on_progress: ProgressCallback | None,
    ) -> None:
        self._link = link
        self._callbacks = callbacks
        self._tools = tools
        self._learn = learn  # lists the tools until a deadline, so that one of them is known
        self._claimed = claimed  # resolves a result that an extension claims
        self._timeout = timeout
        self._max_timeout = max_timeout
        self._max_rounds = max_rounds
        self._on_progress = on_progress
        self.breaker: Breaker | None = None
        """Refuses calls while the server keeps failing; None for a client without one."""

    def ask(
        self, method: str, params: msgspec.Struct, kind: type[R], timeout: float | None = None
    ) -> Awaitable[R]:
        """Make a call that is answered in one round."""
        timeout = self._timeout if timeout is None else timeout
        return self.run(ClientCall(method, params, kind, timeout, max(timeout, self._max_timeout)))

    def call(
        self,
        method: str,
        params: InputResponseRequestParams,
        kind: type[R],
        timeout: float | None,
        max_timeout: float | None,
        on_progress: ProgressCallback | None,
        meta: dict[str, Any] | None,
    ) -> ClientCall[R]:
        """Return a call that may take several rounds, for `run`.

        Without a `timeout` the client's defaults apply, and progress extends the call up to the
        maximum. A `timeout` alone is final; with a `max_timeout`, progress extends it up to that.
        """
        if timeout is None:
            timeout = self._timeout
            max_timeout = self._max_timeout if max_timeout is None else max_timeout
        if max_timeout is None or max_timeout < timeout:
            max_timeout = timeout
        on_progress = on_progress or self._on_progress
        return ClientCall(method, params, kind, timeout, max_timeout, on_progress, meta, True)

    def run(self, call: ClientCall[R]) -> Awaitable[R]:
        """Send a call, answer the server's questions, and return its result."""
        if self.breaker is None or call.method in _PINGS:
            return self._send(call)
        return self._try(call, self.breaker)

    async def _try(self, call: ClientCall[R], breaker: Breaker) -> R:
        """Send a call if the breaker lets it pass; a lost connection and a timeout count as failures."""
        try:
            async with breaker:
                return await self._send(call)
        except BreakerOpen as refusal:
            raise ConnectionLost(str(refusal)) from None

    async def _send(self, call: ClientCall[R]) -> R:
        connection = self._link.connection
        if connection is None:
            connection = await self._ready(call)
        while True:
            self.need(call.method)
            timeout, max_timeout = call.timeout, call.max_timeout
            if call.sent or call.expires is not None:
                timeout, max_timeout = call.time_left(connection.loop.time())
            try:
                result = await connection.request(
                    call.method,
                    call.params,
                    call.kind,
                    timeout=timeout,
                    max_timeout=max_timeout,
                    on_progress=call.on_progress,
                    meta=call.meta,
                    on_sent=call.sent.append,
                )
            except ConnectionLost as lost:
                connection = await self._recover(call, connection, lost)
                continue
            except RequestTimeout as error:
                raise call.timed_out(error) from None
            if type(result) is call.kind:
                return result
            if not isinstance(result, InputRequiredResult):
                return await self._resolve(call, result)
            await self._prepare_round(call, result)
            connection = self._link.connection or await self._ready(call)

    async def _resolve(self, call: ClientCall[R], result: R) -> R:
        """Have an extension turn a result of its own type into the result of the call."""
        if not call.resolves:
            return result
        deadline = call.deadlines(asyncio.get_running_loop().time())[1]
        asked = ExtensionResult(method=call.method, params=call.params, deadline=deadline)
        resolved = await self._claimed(asked, result)
        if type(resolved) in call.kind.__bases__ and type(resolved) is not Result:
            # The specification's type, while the call wants the client's subclass of it.
            resolved = convert(call.kind, to_builtins(resolved))
        if not isinstance(resolved, call.kind):
            raise InvalidResult(
                f"an extension resolved the result of `{call.method}` to a "
                f"{type(resolved).__name__} in place of a {call.kind.__name__}"
            )
        return resolved

    async def _prepare_round(self, call: ClientCall[R], asked: InputRequiredResult) -> None:
        """Answer the server's questions for the next round, or wait a while if it has none."""
        if not call.in_rounds:
            raise InvalidResult(
                f"`{call.method}` was answered `input_required`, which it may not be"
            )
        if call.rounds == self._max_rounds:
            raise InvalidResult(
                f"`{call.method}` wanted input {call.rounds + 1} times; the limit is `max_rounds`"
            )
        answers: dict[str, dict[str, Any]] | None
        if asked.input_requests:
            time = asyncio.get_running_loop().time
            left = call.time_left(time())
            answers = await self._answers(asked)
            call.resume(time(), left)
        else:
            answers = None if asked.input_requests is None else {}
            await self._pause_between_rounds(call)
        call.rounds += 1
        call.may_have_run, call.repeats = False, 0
        params = cast("InputResponseRequestParams", call.params)
        call.params = replace(params, input_responses=answers, request_state=asked.request_state)

    async def _pause_between_rounds(self, call: ClientCall[R]) -> None:
        """Wait before the next round, for which the server asked without having a question."""
        now = asyncio.get_running_loop().time()
        delay = BETWEEN_ROUNDS.delay(call.rounds)
        if now + delay >= call.deadlines(now)[0]:
            raise call.timed_out()
        await asyncio.sleep(delay)

    async def _answers(self, asked: InputRequiredResult) -> dict[str, dict[str, Any]]:
        requests = asked.input_requests or {}
        work = {
            key: asyncio.ensure_future(
                self._callbacks.answer(
                    str(request.__struct_config__.tag), request.params or RequestParams()
                )
            )
            for key, request in requests.items()
        }
        try:
            await asyncio.gather(*work.values())
        finally:
            for task in work.values():
                task.cancel()  # when one fails, the others need not be answered any more
        return {key: to_builtins(task.result()) for key, task in work.items()}

    def need(self, method: str) -> None:
        """Raise if a method needs a capability that the server did not announce."""
        needed = SERVER_NEEDS.get(method)
        if needed is None or needed in self._link.offered:
            return
        self._link.check_open()
        version = self._link.introduced().version
        if needed == "completions" and not version.announces_completions:
            return
        raise CapabilityMissing(
            f"the server did not announce the capability `{needed}`, which `{method}` needs"
        )

    # Calls that outlive a connection

    async def _recover(
        self, call: ClientCall[R], connection: ClientConnection, lost: ConnectionLost
    ) -> ClientConnection:
        """Return the connection to send a call on again; raise `lost` if it must not be sent again."""
        if self._link.reconnect is None:
            raise lost
        now = asyncio.get_running_loop().time
        deadline, _ = call.deadlines(now())
        was_sent = lost.maybe_executed
        call.may_have_run = lost.maybe_executed = call.may_have_run or was_sent
        if call.may_have_run and self._may_repeat(call) is False:
            raise lost
        if not was_sent:
            self._link.doubt(connection, lost)
        elif connection is self._link.connection:
            await self._pause(call, deadline, lost)
        try:
            connection = await self._link.ready(deadline)
        except ConnectionLost:
            if call.may_have_run:
                raise lost from None
            raise
        if call.may_have_run:
            await self._justify(call, deadline, lost)
        if deadline <= now():
            raise lost
        return connection

    async def _ready(self, call: ClientCall[R]) -> ClientConnection:
        """Wait for a connection to send a call on for the first time."""
        deadline, _ = call.deadlines(asyncio.get_running_loop().time())
        return await self._link.ready(deadline)

    async def _pause(self, call: ClientCall[R], deadline: float, lost: ConnectionLost) -> None:
        """Wait before a call whose exchange broke is sent again on a connection that is still open."""
        assert self._link.reconnect is not None
        delay = self._link.reconnect.delay(call.repeats)
        call.repeats += 1
        if asyncio.get_running_loop().time() + delay >= deadline:
            raise lost
        await asyncio.sleep(delay)

    def _may_repeat(self, call: ClientCall[R]) -> bool | None:
        """Whether a call that may have run may run again; None when it is not known yet."""
        if isinstance(call.params, CallToolRequestParams):
            return self._tools.may_repeat(call.params.name)
        return call.method in REPEATABLE

    async def _justify(self, call: ClientCall[R], deadline: float, lost: ConnectionLost) -> None:
        """Raise `lost` unless the call may be repeated; list the tools if that is not known yet."""
        if self._may_repeat(call) is None and isinstance(call.params, CallToolRequestParams):
            await self._learn(call.params.name, deadline)
        if not self._may_repeat(call):
            raise lost
