"""A tool whose function runs in an isolated process."""

import asyncio
import struct
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw, UnsetType

from mcpearl.protocol.errors import McpError, Overloaded, ToolError
from mcpearl.protocol.events import Caller, Encoded, EncodedToolResult
from mcpearl.runtime import tracing
from mcpearl.runtime.isolation.frames import Kind
from mcpearl.runtime.isolation.pool import PoolFull
from mcpearl.runtime.isolation.process import Job, ProcessEnded
from mcpearl.runtime.isolation.profile import Isolate, profile_of
from mcpearl.server.context import Context, call_of, rounds_of, share_of
from mcpearl.server.isolation.messages import (
    CallerRecord,
    PrincipalRecord,
    VisibleContext,
    decode_failure,
    decode_state,
    json_or_none,
    pack,
    pack_call,
    unpack_result,
)
from mcpearl.server.isolation.talk import ContextRequests
from mcpearl.server.isolation.work import IN_PLACE
from mcpearl.server.registry.limited import LimitedTool
from mcpearl.server.registry.tools import ToolEntry
from mcpearl.types.base import Result, decode, encode
from mcpearl.types.tool_calls import CallToolResult

if TYPE_CHECKING:
    from mcpearl.runtime.threads import ThreadPool
    from mcpearl.server.isolation.isolation import Isolation

_skip = msgspec.json.Decoder(dict[str, Raw]).decode


class IsolatedTool(ToolEntry):
    """A registered tool that runs in isolated processes.

    Its arguments go there as they came, and its encoded result is sent as it comes.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        pool: "ThreadPool",
        *,
        isolation: "Isolation",
        profile: Isolate,
        timeout: float | None = None,
        **options: Any,
    ) -> None:
        super().__init__(function, IN_PLACE, timeout=None, **options)  # type: ignore[arg-type]
        self.at_once = False
        self.patience = timeout
        self._isolation = isolation
        filled = bool(self._function.signature.filled)
        plain = not self._function.is_async
        self.needs_loop = not plain or self._function.has_dependencies
        """Whether it can only run where there is an event loop."""
        self._wants_context = filled or self._function.is_stream
        self._last: tuple[Caller, bytes] | None = None  # the caller whose record was made last
        self._pool_number, self._index, self._serial = isolation.add(self, profile)

    def settle(self) -> None:
        """Have a plain function called in place, in a process without an event loop."""
        if not self._function.is_stream:
            self._function.run = self._function.run_in_place

    run_here = ToolEntry.call
    """Run the tool in this process, which is an isolated one."""

    async def call(self, raw: Raw | UnsetType, ctx: Context) -> Result | Encoded:
        """Run the tool in an isolated process."""
        isolation = self._isolation
        if self._serial >= isolation.known:
            await isolation.renew()
        pool = isolation.pools[self._pool_number]
        loop = pool.loop
        context = self._context(ctx) if self._wants_context or tracing.is_used() else b""
        version = call_of(ctx).caller.version.index
        payload = pack_call(self._index, version, context, raw)
        job = Job(payload, loop.create_future(), None, share_of(ctx))
        timer, talk = None, None
        if context:
            job.talk = talk = ContextRequests(ctx, job)
        try:
            pool.submit(job)
            if self.patience is not None:
                timer = loop.call_later(self.patience, job.fail, _TooLong())
            kind, payload = await job.answer
        except PoolFull as full:
            pool.finished()
            overload = Overloaded(str(full))
            ctx.core.refused("Isolate.queue", overload.message)
            raise overload from None
        except ProcessEnded as ended:
            pool.finished()
            raise ToolError(self._story(ended)) from None
        except asyncio.CancelledError:
            pool.abandon(job)
            raise
        except _TooLong:
            pool.abandon(job)
            raise ToolError(
                f"Tool `{self.definition.name}` did not finish within {self.patience:g} s"
            ) from None
        finally:
            if timer is not None:
                timer.cancel()
            if talk is not None:
                talk.close()
        pool.finished()
        try:
            return self._read(kind, payload, ctx)
        except (msgspec.MsgspecError, ValueError, RecursionError, struct.error) as error:
            raise ToolError(
                f"Tool `{self.definition.name}` failed: its process wrote a result that is not one: "
                f"{error}"
            ) from None

    def _read(self, kind: int, payload: bytes, ctx: Context) -> Result | Encoded:
        if kind != Kind.RESULT:
            failure = decode_failure(payload)
            _leave(failure.state, ctx)
            if failure.text is not None:
                raise ToolError(failure.text)
            data: Any = msgspec.UNSET
            if failure.data is not None:
                data = msgspec.json.decode(failure.data)
            raise McpError(failure.code, failure.message, data)
        body, complete, is_error, state = unpack_result(payload)
        if state:
            _leave(decode_state(state), ctx)
        _skip(body)  # what a process sends must not break what a client reads
        if not body.isascii():
            body.decode()
        if is_error or not ctx.takes_encoded():
            return decode(CallToolResult, body)
        return Encoded(body, True) if complete else EncodedToolResult(body)

    def _story(self, ended: ProcessEnded) -> str:
        """Say what became of the process, to the client."""
        name = self.definition.name
        pool = self._isolation.pools[self._pool_number]
        text = f"Tool `{name}` failed: {pool.explain(ended)}"
        if ended.said and not self._isolation.masks:
            text += f"\nThe last lines it printed:\n{ended.said}"
        return text

    def _context(self, ctx: Context) -> bytes:
        call = call_of(ctx)
        outlet = call.outlet
        meta = tracing.carried(ctx.params.meta)
        encoded = {key: json_or_none(value) for key, value in ctx.state.items()}
        return pack(
            VisibleContext(
                id=call.id,
                caller=self._caller(call.caller),
                meta=None if meta is None else msgspec.json.encode(meta),
                token=call.progress_token,
                session_id=ctx.session_id,
                address=outlet.address,
                headers=dict(outlet.request_headers),
                rounds=call.caller.version.modern or rounds_of(ctx) is not None,
                task=ctx.task,
                promotable=call.run is not None,
                state={key: value for key, value in encoded.items() if value is not None},
                unsent=[key for key, value in encoded.items() if value is None],
            )
        )

    def _caller(self, caller: Caller) -> bytes:
        if self._last is not None and self._last[0] is caller:
            return self._last[1]
        principal = caller.principal
        record = CallerRecord(
            client=None if caller.client is None else encode(caller.client),
            capabilities=encode(caller.capabilities),
            log_level=caller.log_level,
            principal=None
            if principal is None
            else PrincipalRecord(
                principal.subject,
                principal.client_id,
                principal.issuer,
                sorted(principal.scopes),
                msgspec.json.encode(dict(principal.claims)),
                principal.expires,
            ),
        )
        packed = pack(record)
        self._last = caller, packed
        return packed


class _TooLong(Exception):
    """A call took longer than its tool may."""


class LimitedIsolatedTool(LimitedTool, IsolatedTool):
    """The same, with limits of its own in front."""


def isolated(
    kind: Callable[..., ToolEntry], option: bool | Isolate, isolation: "Isolation"
) -> Callable[..., ToolEntry]:
    """Return what makes isolated tools of this kind."""
    profile = profile_of(option)
    assert profile is not None
    made = LimitedIsolatedTool if kind is LimitedTool else IsolatedTool
    return partial(made, isolation=isolation, profile=profile)


def _leave(state: dict[str, bytes], ctx: Context) -> None:
    """Put what the tool left in `Context.state` there, for middleware."""
    for key, value in state.items():
        ctx.state[key] = msgspec.json.decode(value)
