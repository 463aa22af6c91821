"""Asking a server: in rounds where it has questions first, and again where a connection was lost.

What certainly did not reach the server is sent when it is back. What may have run is sent again only
where that does no harm; otherwise the caller is told that it may have run. All of it happens within
the time the caller allowed.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeVar, cast

import msgspec
from msgspec.structs import replace

from mcpearl.client.callbacks import Callbacks
from mcpearl.client.connection import ClientConnection, ProgressCallback
from mcpearl.client.known_tools import KnownTools
from mcpearl.client.link import Link
from mcpearl.protocol.capabilities import SERVER_NEEDS
from mcpearl.protocol.errors import CapabilityMissing, ConnectionLost, InvalidResult
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


class Requests:
    """How one client's requests become results."""

    def __init__(
        self,
        link: Link,
        callbacks: Callbacks,
        tools: KnownTools,
        learn: Callable[[str], Awaitable[None]],
        *,
        timeout: float,
        max_timeout: float,
        max_rounds: int,
        on_progress: ProgressCallback | None,
    ) -> None:
        self._link = link
        self._callbacks = callbacks
        self._tools = tools
        self._learn = learn  # lists the tools, so that one of them is known
        self._timeout = timeout
        self._max_timeout = max_timeout
        self._max_rounds = max_rounds
        self._on_progress = on_progress

    async def ask(
        self, method: str, params: msgspec.Struct, kind: type[R], timeout: float | None = None
    ) -> R:
        """Ask what is answered in one round."""
        timeout = self._timeout if timeout is None else timeout
        result = await self._request(method, params, kind, timeout, None, None)
        if isinstance(result, InputRequiredResult):
            raise InvalidResult(f"`{method}` was answered `input_required`, which it may not be")
        return result

    async def ask_in_rounds(
        self,
        method: str,
        params: InputResponseRequestParams,
        kind: type[R],
        timeout: float | None,
        on_progress: ProgressCallback | None,
        meta: dict[str, Any] | None,
        rounds: list[int] | None = None,
    ) -> R:
        """Ask, and answer the server's questions, until there is a result."""
        timeout = self._timeout if timeout is None else timeout
        on_progress = on_progress or self._on_progress
        for number in range(self._max_rounds + 1):
            result = await self._request(method, params, kind, timeout, on_progress, meta)
            if not isinstance(result, InputRequiredResult):
                return result
            if number == self._max_rounds:
                break  # nobody is asked what would never be sent
            if rounds is not None:
                rounds.append(number)
            if not result.input_requests:
                await asyncio.sleep(min(0.05 * 2**number, 5.0))  # asked to come again, not to spin
            params = replace(
                params,
                input_responses=await self._answers(result),
                request_state=result.request_state,
            )
        raise InvalidResult(
            f"`{method}` wanted input {self._max_rounds + 1} times; the limit is `max_rounds`"
        )

    async def _answers(self, asked: InputRequiredResult) -> dict[str, dict[str, Any]] | None:
        requests = asked.input_requests
        if requests is None:
            return None
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
                task.cancel()  # when one fails, the others ask for nothing any more
        return {key: to_builtins(task.result()) for key, task in work.items()}

    def need(self, method: str) -> None:
        """Refuse a method the server did not announce, before anything is sent."""
        needed = SERVER_NEEDS.get(method)
        if needed is None or needed in self._link.offered:
            return
        version = self._link.introduced().version
        if needed == "completions" and not version.announces_completions:
            return
        raise CapabilityMissing(
            f"the server did not announce the capability `{needed}`, which `{method}` needs"
        )

    # One request, whatever becomes of its connection

    async def _request(
        self,
        method: str,
        params: msgspec.Struct,
        kind: type[R],
        timeout: float,
        on_progress: ProgressCallback | None,
        meta: dict[str, Any] | None,
    ) -> R | InputRequiredResult:
        max_timeout = self._max_timeout if timeout <= self._max_timeout else timeout
        connection = self._link.connection
        lost: ConnectionLost | None = None
        if connection is not None:
            self.need(method)
            try:
                return await connection.request(
                    method,
                    params,
                    kind,
                    timeout=timeout,
                    max_timeout=max_timeout,
                    on_progress=on_progress,
                    meta=meta,
                )
            except ConnectionLost as error:
                if self._link.reconnect is None:
                    raise
                lost = error
        request = _Request(method, params, kind, timeout, max_timeout, on_progress, meta)
        return cast("R", await self._persist(request, connection, lost))

    async def _persist(
        self, request: "_Request", connection: ClientConnection | None, lost: ConnectionLost | None
    ) -> Result:
        """See a request through that lost its connection, or had none to begin with."""
        now = asyncio.get_running_loop().time
        deadline = now() + request.timeout
        latest = now() + request.max_timeout
        if lost is not None and lost.deadlines is not None:
            deadline, latest = lost.deadlines
        may_have_run = False
        repeats = 0
        while True:
            if lost is not None and connection is not None:
                may_have_run = may_have_run or lost.maybe_executed
                lost.maybe_executed, was_sent = may_have_run, lost.maybe_executed
                if may_have_run and self._may_repeat(request) is False:
                    raise lost
                if not was_sent:
                    self._link.doubt(connection, lost)
                elif connection is self._link.connection:
                    repeats += 1
                    await self._pause(repeats, deadline, lost)
            connection = await self._ready(deadline, lost if may_have_run else None)
            if lost is not None and may_have_run:
                await self._justify(request, deadline, lost)
            self.need(request.method)
            left = deadline - now()
            if lost is not None and left <= 0:
                raise lost
            try:
                return await request.send(connection, left, latest - now())
            except ConnectionLost as error:
                lost = error

    async def _ready(self, deadline: float, lost: ConnectionLost | None) -> ClientConnection:
        """Wait for a connection. If none comes, what may have run before is what counts."""
        try:
            return await self._link.ready(deadline)
        except ConnectionLost:
            if lost is not None:
                raise lost from None
            raise

    async def _pause(self, repeats: int, deadline: float, lost: ConnectionLost) -> None:
        """Wait before asking again on a connection that stands, where only the exchange broke."""
        assert self._link.reconnect is not None
        delay = self._link.reconnect.delay(repeats - 1)
        if asyncio.get_running_loop().time() + delay >= deadline:
            raise lost
        await asyncio.sleep(delay)

    def _may_repeat(self, request: "_Request") -> bool | None:
        """Whether a request that may have run may run again; None when it is not known yet."""
        if isinstance(request.params, CallToolRequestParams):
            return self._tools.may_repeat(request.params.name)
        return request.method in REPEATABLE

    async def _justify(self, request: "_Request", deadline: float, lost: ConnectionLost) -> None:
        """Find out whether a tool may be repeated; a tool nothing can be said of may not."""
        if self._may_repeat(request) is None:
            try:
                async with asyncio.timeout_at(deadline):
                    await self._learn(request.params.name)  # type: ignore[attr-defined]
            except TimeoutError:
                pass
        if not self._may_repeat(request):
            raise lost


class _Request(NamedTuple):
    """What is asked, as often as it has to be."""

    method: str
    params: msgspec.Struct
    kind: type[Result]
    timeout: float
    max_timeout: float
    on_progress: ProgressCallback | None
    meta: dict[str, Any] | None

    def send(
        self, connection: ClientConnection, timeout: float, max_timeout: float
    ) -> Awaitable[Result]:
        """Send it, in what is left of its time."""
        return connection.request(
            self.method,
            self.params,
            self.kind,
            timeout=timeout,
            max_timeout=max_timeout,
            on_progress=self.on_progress,
            meta=self.meta,
        )
