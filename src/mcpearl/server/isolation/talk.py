"""The server's side of what a call in an isolated process asks for and says.

Each request of the process becomes a call of the real `Context`. What it tells is passed on in order,
and while a client does not read, its process is not read either.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from mcpearl.runtime.isolation.frames import FINAL, Kind
from mcpearl.runtime.isolation.process import Job
from mcpearl.server.context import Context, ask_client, call_of, notify_client, rounds_of
from mcpearl.server.isolation.messages import ContextReply, ContextRequest, decode_ask, pack, raised
from mcpearl.types.base import RequestParams, Result, decode, encode
from mcpearl.types.elicitation import ElicitRequest, ElicitRequestParams, ElicitResult
from mcpearl.types.logging import LoggingMessageNotificationParams
from mcpearl.types.progress import ProgressNotificationParams
from mcpearl.types.roots import ListRootsRequest, ListRootsResult
from mcpearl.types.sampling import (
    CreateMessageRequest,
    CreateMessageRequestParams,
    CreateMessageResult,
)

_MOST = 64  # frames of one call that wait; then its process is not read
_MOST_BYTES = 1024 * 1024  # or bytes of them
_ASKED = 1000  # questions of one call that wait for their answers

_NOTICES: dict[str, type[msgspec.Struct]] = {
    "notifications/progress": ProgressNotificationParams,
    "notifications/message": LoggingMessageNotificationParams,
}
_QUESTIONS: dict[str, tuple[type[msgspec.Struct], Callable[[Any], Any], type[Result]]] = {
    "elicitation/create": (
        ElicitRequestParams,
        lambda params: ElicitRequest(params=params),
        ElicitResult,
    ),
    "sampling/createMessage": (
        CreateMessageRequestParams,
        lambda params: CreateMessageRequest(params=params),
        CreateMessageResult,
    ),
    "roots/list": (RequestParams, lambda _: ListRootsRequest(), ListRootsResult),
}
_MISSING = object()


class ContextRequests:
    """One call's talk with its server.

    Args:
        ctx: The real context of the call.
        job: The call; it ends after everything before its last frame was passed on.
    """

    def __init__(self, ctx: Context, job: Job) -> None:
        self._ctx = ctx
        self._job = job
        self._frames: deque[tuple[int, bytes]] = deque()
        self._bytes = 0  # of these
        self._pumping: asyncio.Task[None] | None = None
        self._asked: set[asyncio.Task[None]] = set()

    @property
    def suspended(self) -> bool:
        """Whether the handler was told to end because its round is over."""
        rounds = call_of(self._ctx).rounds
        return rounds is not None and rounds.suspended

    def take(self, kind: int, payload: bytes) -> None:
        """Take a frame of the call."""
        if kind == Kind.ASK:
            # At once, so that questions asked together leave together.
            self._start(payload)
        elif kind in FINAL and not self._frames and self._pumping is None:
            self._job.end(kind, payload)
        else:
            self._frames.append((kind, payload))
            self._bytes += len(payload)
            if self._pumping is None:
                self._pumping = asyncio.get_running_loop().create_task(self._pump())
            full = len(self._frames) >= _MOST or self._bytes >= _MOST_BYTES
            if full and self._job.process is not None:
                self._job.process.pause()

    async def _pump(self) -> None:
        while self._frames:
            kind, payload = self._frames.popleft()
            self._bytes -= len(payload)
            if kind in FINAL:
                self._job.end(kind, payload)
            elif kind == Kind.TELL:
                await self._told(payload)
        self._pumping = None
        if self._job.process is not None:
            self._job.process.resume()

    async def _told(self, payload: bytes) -> None:
        try:
            told = decode_ask(payload)
            match told.what, told.arguments:
                case "notify", [str(method), bytes(params)]:
                    await notify_client(self._ctx, method, decode(_NOTICES[method], params))
                case "send_away", [int(retry_ms)]:
                    self._ctx.close_stream(retry_ms)
                case _:
                    raise ValueError(f"nothing is told as {told.what!r}")
        except (msgspec.MsgspecError, LookupError, ValueError) as error:
            self._garbled(error)

    def _start(self, payload: bytes) -> None:
        try:
            asked = decode_ask(payload)
            answer = _ANSWERS[asked.what]
            if len(self._asked) >= _ASKED:
                raise ValueError(f"it asks more than {_ASKED} things at once")
        except (msgspec.MsgspecError, LookupError, ValueError) as error:
            self._garbled(error)
            return
        task = asyncio.get_running_loop().create_task(self._answer(asked, answer))
        self._asked.add(task)
        task.add_done_callback(self._asked.discard)

    async def _answer(self, asked: ContextRequest, answer: Callable[..., Awaitable[Any]]) -> None:
        reply = ContextReply(asked.number)
        try:
            reply.value = await answer(self._ctx, *asked.arguments)
        except asyncio.CancelledError:
            reply.cancelled = True
        except Exception as error:
            reply.raised = raised(error)
        if self._job.process is not None:
            self._job.process.reply(pack(reply))

    def _garbled(self, error: Exception) -> None:
        process = self._job.process
        if process is not None and process.job is self._job:
            process.kill(f"wrote a message that makes no sense: {error}")

    def close(self) -> None:
        """Stop passing things on: the call has ended."""
        if self._pumping is not None:
            self._pumping.cancel()
        for task in self._asked:
            task.cancel()


async def _ask(ctx: Context, method: str, params: bytes, key: str | None) -> bytes:
    kind, request, result = _QUESTIONS[method]
    given = decode(kind, params)
    return encode(await ask_client(ctx, method, given, request(given), result, key))


async def _done(ctx: Context, key: str) -> bytes | None:
    rounds = rounds_of(ctx)
    value = None if rounds is None else rounds.done(key)
    return None if value is None else bytes(value)


async def _record(ctx: Context, key: str, value: bytes) -> None:
    msgspec.json.decode(value)
    rounds = rounds_of(ctx)
    if rounds is not None:
        await rounds.record(key, value)


async def _read(ctx: Context, uri: str) -> list[bytes]:
    return [encode(each) for each in await ctx.read_resource(uri)]


async def _task(ctx: Context) -> str | None:
    return ctx.task


async def _become_task(ctx: Context) -> str | None:
    return ctx.task if await ctx.become_task() else None


async def _session_get(ctx: Context, key: str) -> bytes | None:
    value = await ctx.session.get(key, _MISSING)
    return None if value is _MISSING else msgspec.json.encode(value)


async def _session_set(ctx: Context, key: str, value: bytes) -> None:
    await ctx.session.set(key, msgspec.json.decode(value))


async def _session_delete(ctx: Context, key: str) -> bool:
    return await ctx.session.delete(key)


async def _session_keys(ctx: Context) -> list[str]:
    return await ctx.session.keys()


async def _session_clear(ctx: Context) -> None:
    await ctx.session.clear()


_ANSWERS: dict[str, Callable[..., Awaitable[Any]]] = {
    "ask": _ask,
    "done": _done,
    "record": _record,
    "read": _read,
    "task": _task,
    "become_task": _become_task,
    "session.get": _session_get,
    "session.set": _session_set,
    "session.delete": _session_delete,
    "session.keys": _session_keys,
    "session.clear": _session_clear,
}
