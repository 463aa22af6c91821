"""Calls of a client: sent in rounds while the server has questions, and again after a lost connection.

A request that certainly did not reach the server is sent when the connection is back. A request that
may have run is sent again only where that does no harm; otherwise the caller gets the error, which
says that it may have run. All of it happens within the time of the call.
"""

import asyncio
from collections.abc import Awaitable, Callable
from math import inf
from typing import Any, Generic, TypeVar, cast

import msgspec
from msgspec.structs import replace

from mcpearl.client.callbacks import Callbacks
from mcpearl.client.connection import ClientConnection, ProgressCallback
from mcpearl.client.known_tools import KnownTools
from mcpearl.client.link import Link
from mcpearl.protocol.capabilities import SERVER_NEEDS
from mcpearl.protocol.errors import (
    CapabilityMissing,
    ConnectionLost,
    InvalidResult,
    RequestTimeout,
)
from mcpearl.protocol.pending import Entry
from mcpearl.runtime.backoff import Backoff, doubling
from mcpearl.types.base import InputResponseRequestParams, RequestParams, Result, to_builtins
from mcpearl.types.input_required import InputRequiredResult
from mcpearl.types.tools import CallToolRequestParams

R = TypeVar("R", bound=Result)

# Asking these twice is the same as asking once. Of tools, the server says so itself.
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
        "tools/list",
    }
)
# Before a round in which the server only asked to be called again.
_BETWEEN_ROUNDS = Backoff(delays=doubling(0.05, 5.0))


class Call(msgspec.Struct, Generic[R], eq=False):
    """One call of the application: what is asked, and the time for everything that is done for it.

    The time runs from the first request on. Progress moves its end, up to the maximum. It stands
    still while a request waits for authorization, and starts anew after a person was asked.
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
    was_asked: bool = False
    """Whether the server asked for another round."""
    sent: list[Entry] = []
    """Entries of the requests sent; the deadline of the last one is the call's."""
    expires: tuple[float, float] | None = None
    """The deadlines before anything is sent, and after a request was held."""

    def deadlines(self, now: float) -> tuple[float, float]:
        """Return when the call expires, and when at the latest; the time starts if it does not run."""
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

    def restart(self) -> None:
        """Let the time start anew with the next request."""
        self.sent.clear()
        self.expires = None

    def send(self, connection: ClientConnection) -> Awaitable[R | InputRequiredResult]:
        """Send the request on this connection, in what is left of the call's time."""
        timeout, max_timeout = self.timeout, self.max_timeout
        if self.sent or self.expires is not None:
            now = connection.loop.time()
            deadline, latest = self.deadlines(now)
            timeout, max_timeout = deadline - now, latest - now
        return connection.request(
            self.method,
            self.params,
            self.kind,
            timeout=timeout,
            max_timeout=max_timeout,
            on_progress=self.on_progress,
            meta=self.meta,
            on_sent=self.sent.append,
        )


class Requests:
    """How one client's calls become results."""

    def __init__(
        self,
        link: Link,
        callbacks: Callbacks,
        tools: KnownTools,
        learn: Callable[[str, float], Awaitable[None]],
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
        self._timeout = timeout
        self._max_timeout = max_timeout
        self._max_rounds = max_rounds
        self._on_progress = on_progress

    def ask(
        self, method: str, params: msgspec.Struct, kind: type[R], timeout: float | None = None
    ) -> Awaitable[R]:
        """Make a call that is answered in one round."""
        timeout = self._timeout if timeout is None else timeout
        return self.run(Call(method, params, kind, timeout, max(timeout, self._max_timeout)))

    def call(
        self,
        method: str,
        params: InputResponseRequestParams,
        kind: type[R],
        timeout: float | None,
        on_progress: ProgressCallback | None,
        meta: dict[str, Any] | None,
    ) -> Call[R]:
        """Return a call that may take several rounds, for `run`."""
        if timeout is None:
            timeout = self._timeout
        max_timeout = self._max_timeout if timeout <= self._max_timeout else timeout
        on_progress = on_progress or self._on_progress
        return Call(method, params, kind, timeout, max_timeout, on_progress, meta, True)

    async def run(self, call: Call[R]) -> R:
        """Send a call, answer the server's questions, and return its result."""
        for number in range(self._max_rounds + 1):
            connection = self._link.connection
            try:
                if connection is None:
                    result = await self._persist(call, None, None)
                else:
                    self.need(call.method)
                    try:
                        result = await call.send(connection)
                    except ConnectionLost as lost:
                        if self._link.reconnect is None:
                            raise
                        result = await self._persist(call, connection, lost)
            except RequestTimeout as error:
                if error.seconds < call.timeout:  # what was left for the last attempt
                    raise RequestTimeout(call.method, call.timeout) from None
                raise
            if not isinstance(result, InputRequiredResult):
                return result
            if not call.in_rounds:
                raise InvalidResult(
                    f"`{call.method}` was answered `input_required`, which it may not be"
                )
            if number < self._max_rounds:  # else nobody is asked what would never be sent
                await self._prepare_round(call, result, number)
        raise InvalidResult(
            f"`{call.method}` wanted input {self._max_rounds + 1} times; the limit is `max_rounds`"
        )

    async def _prepare_round(self, call: Call[R], asked: InputRequiredResult, number: int) -> None:
        """Answer the server's questions, or wait a while if it has none."""
        call.was_asked = True
        answers: dict[str, dict[str, Any]] | None
        if asked.input_requests:
            answers = await self._answers(asked)
            call.restart()
        else:
            answers = None if asked.input_requests is None else {}
            now = asyncio.get_running_loop().time()
            delay = _BETWEEN_ROUNDS.delay(number)
            if now + delay >= call.deadlines(now)[0]:
                raise RequestTimeout(call.method, call.timeout)
            await asyncio.sleep(delay)
        params = cast("InputResponseRequestParams", call.params)
        call.params = replace(params, input_responses=answers, request_state=asked.request_state)

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
        """Refuse a method the server did not announce, before anything is sent."""
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

    async def _persist(
        self, call: Call[R], connection: ClientConnection | None, lost: ConnectionLost | None
    ) -> R | InputRequiredResult:
        """See a call through that lost its connection, or had none to begin with."""
        now = asyncio.get_running_loop().time
        may_have_run = False
        repeats = 0
        while True:
            deadline, _ = call.deadlines(now())
            if lost is not None and connection is not None:
                may_have_run = may_have_run or lost.maybe_executed
                lost.maybe_executed, was_sent = may_have_run, lost.maybe_executed
                if may_have_run and self._may_repeat(call) is False:
                    raise lost
                if not was_sent:
                    self._link.doubt(connection, lost)
                elif connection is self._link.connection:
                    await self._pause(repeats, deadline, lost)
                    repeats += 1
            connection = await self._ready(deadline, lost if may_have_run else None)
            if lost is not None and may_have_run:
                await self._justify(call, deadline, lost)
            self.need(call.method)
            if lost is not None and deadline <= now():
                raise lost
            try:
                return await call.send(connection)
            except ConnectionLost as error:
                lost = error

    async def _ready(self, deadline: float, lost: ConnectionLost | None) -> ClientConnection:
        """Wait for a connection. If none comes, `lost` is raised: the call may have run before."""
        try:
            return await self._link.ready(deadline)
        except ConnectionLost:
            if lost is not None:
                raise lost from None
            raise

    async def _pause(self, repeats: int, deadline: float, lost: ConnectionLost) -> None:
        """Wait before asking again on a connection that stands, where only the exchange broke."""
        assert self._link.reconnect is not None
        delay = self._link.reconnect.delay(repeats)
        if asyncio.get_running_loop().time() + delay >= deadline:
            raise lost
        await asyncio.sleep(delay)

    def _may_repeat(self, call: Call[R]) -> bool | None:
        """Whether a call that may have run may run again; None when it is not known yet."""
        if isinstance(call.params, CallToolRequestParams):
            return self._tools.may_repeat(call.params.name)
        return call.method in REPEATABLE

    async def _justify(self, call: Call[R], deadline: float, lost: ConnectionLost) -> None:
        """Find out whether a tool may be repeated; a tool that cannot be found may not."""
        if self._may_repeat(call) is None and isinstance(call.params, CallToolRequestParams):
            await self._learn(call.params.name, deadline)
        if not self._may_repeat(call):
            raise lost
