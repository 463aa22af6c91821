"""The peer of a tool that runs as a task: its reports are stored, and sent if possible.

Progress becomes the task's status message. A client of 2025-11-25 gets progress and log messages on its
connection too, while that is open; the extension has neither.
"""

import asyncio
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

import msgspec

from mcpearl.protocol import codec
from mcpearl.protocol.errors import ConnectionLost, LimitReached, brief
from mcpearl.protocol.events import Call
from mcpearl.protocol.fields import narrow
from mcpearl.runtime.eager import spawn
from mcpearl.server.peer import Peer
from mcpearl.server.tasks.views import legacy_notice, related
from mcpearl.stores.tasks import TaskRecord
from mcpearl.types.base import RequestId, Result, encode
from mcpearl.types.progress import ProgressNotificationParams

if TYPE_CHECKING:
    from mcpearl.server.tasks.run import TaskRun

_PAUSE = 0.2  # seconds between two status messages that are stored
_LONGEST_MESSAGE = 1000


class TaskPeer:
    """The peer of a run's context.

    Args:
        run: The run.
        client: The connection on which the call arrived.
        token: The progress token of the call.
    """

    __slots__ = (
        "_client",
        "_flush",
        "_message",
        "_run",
        "_stored_at",
        "_token",
        "loop",
        "share",
        "thread",
    )

    def __init__(self, run: "TaskRun", client: Peer, token: RequestId | None) -> None:
        self.loop = client.loop
        self.thread = client.thread
        self.share: Hashable = client.share
        self._run = run
        self._client = client
        self._token = token
        self._message: str | None = None  # a status message that is not stored yet
        self._flush: asyncio.TimerHandle | None = None
        self._stored_at = -_PAUSE

    def waits_for(self, call: Call) -> bool:
        """Whether the result is still wanted."""
        return not self._run.ended

    async def notify(self, call: Call, method: str, params: msgspec.Struct) -> None:
        """Store progress as the status message, and send what the client's version has."""
        if isinstance(params, ProgressNotificationParams):
            self._report(brief(_in_words(params), _LONGEST_MESSAGE))
            if self._token is not None:
                self._tell(method, params)
        else:
            self._tell(method, params)
        await asyncio.sleep(0)

    def tell_status(self, record: TaskRecord) -> None:
        """Report a new status to a client of 2025-11-25."""
        if not self._run.call.caller.version.modern:
            self._send("notifications/tasks/status", legacy_notice(record))

    def _tell(self, method: str, params: Any) -> None:
        assert self._run.record is not None
        params.meta = {**(params.meta or {}), **related(self._run.record.id)}
        self._send(method, params)

    def _send(self, method: str, params: Any) -> None:
        version = self._run.call.caller.version
        if not version.modern:
            body = encode(narrow(params, version.name))
            self._client.tell(codec.encode_notification(method, body))

    def _report(self, message: str) -> None:
        self._message = message
        if self._flush is None:
            wait = max(0.0, self._stored_at + _PAUSE - self.loop.time())
            self._flush = self.loop.call_later(wait, self._store)

    def _store(self) -> None:
        self._flush = None
        message, self._message = self._message, None
        if message is not None and not self._run.ended:
            self._stored_at = self.loop.time()
            spawn(self.loop, self._run.engine.report(self._run, message))

    def close(self) -> None:
        """Stop reporting."""
        if self._flush is not None:
            self._flush.cancel()
            self._flush = None

    async def ask(self, call: Call, method: str, params: msgspec.Struct, kind: type[Result]) -> Any:
        """Refuse: questions of a task are stored, and the client finds them in the task."""
        raise ConnectionLost(f"`{method}` cannot be sent: this is a task")

    def tell(self, message: bytes) -> bool:
        """Send a message on the connection on which the call arrived."""
        return self._client.tell(message)

    def answer(self, call: Call, result: Result) -> None:
        """Do nothing: the call of a task was answered when it became one."""

    def stop(self, call: Call) -> None:
        """Stop the tool."""
        self._run.stop()

    def reserve(self, uri: str) -> None:
        """Refuse: a task does not subscribe."""
        raise LimitReached("This resource cannot be subscribed to: this is a task")

    def subscribe(self, uri: str) -> None:
        """Do nothing: `reserve` has refused."""

    def unsubscribe(self, uri: str) -> None:
        """Do nothing: there is no subscription."""


def _in_words(progress: ProgressNotificationParams) -> str:
    if progress.message:
        return progress.message
    total = "" if progress.total is None else f" of {progress.total:g}"
    return f"{progress.progress:g}{total}"
