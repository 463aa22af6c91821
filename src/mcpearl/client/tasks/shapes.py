"""The two shapes of tasks on the wire, seen from the client that started them.

2025-11-25 has `tasks/result`, which is answered when the task has ended; a server that needs input
sends requests meanwhile. The extension of 2026-07-28 puts the result, the error and the questions into
the answer to `tasks/get`, and into notifications for clients that listen.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Any, Protocol, TypeVar

import msgspec

from mcpearl.client.callbacks import Callbacks
from mcpearl.client.requests import ClientCall, Requests
from mcpearl.client.subscription import Subscription
from mcpearl.protocol.errors import (
    ConnectionLost,
    InvalidResult,
    McpearlError,
    McpError,
    TaskCancelled,
)
from mcpearl.types.base import RequestParams, Result, convert, to_builtins
from mcpearl.types.input_required import InputRequest
from mcpearl.types.jsonrpc import INVALID_PARAMS
from mcpearl.types.subscriptions import SubscriptionFilter
from mcpearl.types.tasks import (
    CancelTaskResult,
    ExtensionCreateTaskResult,
    ExtensionGetTaskResult,
    ExtensionTaskNotificationParams,
    GetTaskResult,
    Task,
    TaskRequestParams,
    TaskStatusNotificationParams,
    UpdateTaskRequestParams,
)

R = TypeVar("R", bound=Result)

ENDED = frozenset({"completed", "failed", "cancelled"})
MAX_QUESTIONS = 1_000  # of one task
_DEFAULT_POLL = 1.0  # seconds, where the server does not say
_MIN_POLL, _MAX_POLL = 0.05, 60.0

Detailed = ExtensionGetTaskResult | ExtensionTaskNotificationParams


class TaskShape(Protocol):
    """The requests that the handle of a task makes."""

    async def get(self, id: str) -> Task:
        """Ask for the state of a task."""

    async def cancel(self, id: str) -> None:
        """Ask the server to stop a task."""

    async def outcome(self, id: str, kind: type[R], timeout: float) -> R:
        """Wait for the end of a task, answer what it asks, and return its result."""

    def states(self, id: str) -> AsyncIterator[Task]:
        """Yield the states of a task as they change, the last one when it has ended."""


class ModernTasks:
    """Tasks of the extension `io.modelcontextprotocol/tasks`."""

    def __init__(
        self,
        requests: Requests,
        callbacks: Callbacks,
        stream: Callable[[SubscriptionFilter], Subscription],
        seen: Callable[[Task], None] | None = None,
    ) -> None:
        self._requests = requests
        self._callbacks = callbacks
        self._stream = stream
        self._seen = seen  # called with each state while waiting for the outcome

    async def get(self, id: str) -> Task:
        """Ask for the state of a task."""
        return extension_state(await self._get(id))

    async def _get(self, id: str) -> ExtensionGetTaskResult:
        params = TaskRequestParams(task_id=id)
        return await self._requests.ask("tasks/get", params, ExtensionGetTaskResult)

    async def cancel(self, id: str) -> None:
        """Ask the server to stop a task, which may complete or fail all the same."""
        await self._requests.ask("tasks/cancel", TaskRequestParams(task_id=id), Result)

    async def states(self, id: str) -> AsyncIterator[Task]:
        """Yield the states of a task as they change."""
        async with aclosing(self._follow(id)) as states:
            async for state in _changes(extension_state(each) async for each in states):
                yield state

    async def outcome(self, id: str, kind: type[R], timeout: float) -> R:
        """Follow a task to its end, and answer each of its questions once."""
        asked: dict[str, asyncio.Task[None]] = {}
        try:
            async with asyncio.TaskGroup() as answering, aclosing(self._follow(id)) as states:
                async for state in states:
                    if self._seen is not None:
                        self._seen(extension_state(state))
                    for key, request in (state.input_requests or {}).items():
                        if key not in asked:
                            _check_count(id, len(asked))
                            answer = self._answer(id, key, request)
                            asked[key] = answering.create_task(answer)
                for answer_task in asked.values():
                    answer_task.cancel()  # the task has ended without it
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from None
        return _ended(id, state, kind)

    async def _answer(self, id: str, key: str, request: InputRequest) -> None:
        method = str(request.__struct_config__.tag)
        answer = await self._callbacks.answer(method, request.params or RequestParams())
        params = UpdateTaskRequestParams(task_id=id, input_responses={key: to_builtins(answer)})
        await self._requests.ask("tasks/update", params, Result)

    async def _follow(self, id: str) -> AsyncGenerator[Detailed, None]:
        """Yield the states of a task: from notifications, and by polling if none comes."""
        stream = await self._listen(id)
        try:
            state: Detailed = await self._get(id)  # it may have changed before the stream was open
            while True:
                yield state
                if state.status in ENDED:
                    return
                heard = None
                if stream is not None:
                    heard, stream = await _hear(stream, id, _poll(state.poll_interval_ms))
                else:
                    await asyncio.sleep(_poll(state.poll_interval_ms))
                state = heard or await self._get(id)
        finally:
            if stream is not None:
                stream.close()

    async def _listen(self, id: str) -> Subscription | None:
        """Open a stream for one task; None if the server does not announce its changes."""
        stream = self._stream(SubscriptionFilter(task_ids=[id]))
        try:
            await stream.open()
        except (McpError, InvalidResult):
            return None
        if stream.granted is None or id not in (stream.granted.task_ids or ()):
            stream.close()
            return None
        return stream


class LegacyTasks:
    """Tasks of 2025-11-25."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests
        self._watchers: dict[str, set[asyncio.Event]] = {}

    async def get(self, id: str) -> Task:
        """Ask for the state of a task."""
        params = TaskRequestParams(task_id=id)
        return _legacy_state(await self._requests.ask("tasks/get", params, GetTaskResult))

    async def cancel(self, id: str) -> None:
        """Cancel a task; one that is cancelled already is left alone."""
        params = TaskRequestParams(task_id=id)
        try:
            await self._requests.ask("tasks/cancel", params, CancelTaskResult)
        except McpError as error:
            if error.code != INVALID_PARAMS or (await self.get(id)).status != "cancelled":
                raise

    def noticed(self, params: TaskStatusNotificationParams) -> None:
        """Wake the iterators over the states of a task: the server says that it changed."""
        for changed in self._watchers.get(params.task_id, ()):
            changed.set()

    async def states(self, id: str) -> AsyncIterator[Task]:
        """Yield the states of a task as they change."""
        async with aclosing(self._follow(id)) as states:
            async for state in _changes(states):
                yield state

    async def _follow(self, id: str) -> AsyncGenerator[Task, None]:
        changed = asyncio.Event()
        self._watchers.setdefault(id, set()).add(changed)
        try:
            while True:
                changed.clear()
                state = await self.get(id)
                yield state
                if state.status in ENDED:
                    return
                try:
                    async with asyncio.timeout(_poll(state.poll_interval)):
                        await changed.wait()
                except TimeoutError:
                    pass
        finally:
            watchers = self._watchers[id]
            watchers.discard(changed)
            if not watchers:
                del self._watchers[id]

    async def outcome(self, id: str, kind: type[R], timeout: float) -> R:
        """Wait for `tasks/result`; the server's questions come as requests meanwhile."""
        params = TaskRequestParams(task_id=id)
        while True:
            try:
                return await self._requests.run(
                    ClientCall("tasks/result", params, kind, timeout, timeout)
                )
            except McpError as error:
                state = await self.get(id)
                if state.status == "cancelled":
                    raise TaskCancelled(id, state.status_message) from None
                if state.status in ENDED:
                    raise error from None
            # The server did not wait for the end of the task, although the specification requires it.
            await asyncio.sleep(_poll(state.poll_interval))


async def _hear(
    stream: Subscription, id: str, within: float
) -> tuple[ExtensionTaskNotificationParams | None, Subscription | None]:
    """Wait for a notification about a task; return it, and the stream unless it has ended."""
    try:
        async with asyncio.timeout(within):
            async for notice in stream:
                params = notice.params
                if isinstance(params, ExtensionTaskNotificationParams) and params.task_id == id:
                    return params, stream
    except TimeoutError:
        return None, stream
    except ConnectionLost:
        raise
    except McpearlError:
        pass  # the stream is over; polling goes on
    return None, None


async def _changes(states: AsyncIterator[Task]) -> AsyncGenerator[Task, None]:
    """Leave out states that are the same as the one before."""
    last: Task | None = None
    async for state in states:
        if state != last:
            last = state
            yield state


def _poll(interval: int | None) -> float:
    seconds = _DEFAULT_POLL if interval is None else interval / 1000
    return min(max(seconds, _MIN_POLL), _MAX_POLL)


def _check_count(id: str, asked: int) -> None:
    if asked >= MAX_QUESTIONS:
        raise InvalidResult(f"task {id:.64} asked more than {MAX_QUESTIONS} questions")


def _ended(id: str, state: Detailed, kind: type[R]) -> R:
    """Return the result of a task that has ended, or raise its error."""
    if state.status == "cancelled":
        raise TaskCancelled(id, state.status_message)
    if state.status == "failed":
        if state.error is None:
            raise InvalidResult(f"task {id:.64} failed, and the server did not say how")
        raise McpError.of(state.error)
    if state.result is None:
        raise InvalidResult(f"task {id:.64} is completed, and the server sent no result")
    try:
        return convert(kind, state.result)
    except msgspec.ValidationError as error:
        raise InvalidResult(f"the result of task {id:.64} is not valid: {error}") from None


def extension_state(state: ExtensionCreateTaskResult | ExtensionTaskNotificationParams) -> Task:
    """Return the state of a task, without what belongs to the message it came in."""
    return Task(
        task_id=state.task_id,
        status=state.status,
        created_at=state.created_at,
        last_updated_at=state.last_updated_at,
        ttl=state.ttl_ms,
        status_message=state.status_message,
        poll_interval=state.poll_interval_ms,
    )


def _legacy_state(state: GetTaskResult) -> Task:
    known: dict[str, Any] = {name: getattr(state, name) for name in Task.__struct_fields__}
    return Task(**known)
