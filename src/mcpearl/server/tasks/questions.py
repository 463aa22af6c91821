"""The questions of one task, and its values of `ctx.once`: both are stored before the tool continues.

It does for a task what `InputRounds` does for a call. A question waits in place; after a while the tool
is stopped, and run again when the answer arrives. A key is never used for two questions of a task.
"""

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from mcpearl.protocol.errors import McpError
from mcpearl.protocol.fields import narrow
from mcpearl.protocol.task_lifecycle import TaskStep, following
from mcpearl.runtime.eager import spawn
from mcpearl.server.tasks.journal import Journal, as_raw, as_running
from mcpearl.stores.tasks import TaskRecord
from mcpearl.types.base import Result, decode, encode
from mcpearl.types.input_required import InputRequest
from mcpearl.types.jsonrpc import INVALID_PARAMS

if TYPE_CHECKING:
    from mcpearl.server.input_rounds import InputRounds
    from mcpearl.server.tasks.run import TaskRun


class TaskQuestions:
    """The questions of a run."""

    __slots__ = ("_asks", "_counts", "_parking", "_run", "_waiting", "journal")

    suspended = False
    """Always False: a question of a task does not end its call."""

    def __init__(self, run: "TaskRun") -> None:
        self._run = run
        self.journal = Journal()
        self._asks: dict[str, Raw] = {}  # questions of this turn of the loop
        self._waiting: dict[str, asyncio.Future[Journal]] = {}
        self._counts: dict[str, int] = {}  # by kind, for the keys of questions
        self._parking: asyncio.TimerHandle | None = None

    def take_over(self, rounds: "InputRounds") -> None:
        """Continue with the answers that the call got before it became a task."""
        answers, done, self._counts = rounds.hand_over()
        self.journal = Journal(answers=as_raw(answers), done=done)

    @property
    def waiting(self) -> bool:
        """Whether the tool waits for the client."""
        return bool(self._waiting)

    def key(self, kind: str, given: str | None) -> str:
        """Return the key of the next question of this kind, the same whenever the tool runs again."""
        if given is not None:
            return given
        self._counts[kind] = count = self._counts.get(kind, 0) + 1
        return f"{kind}-{count}"

    # Asking

    async def ask(self, key: str, request: InputRequest, kind: type[Result]) -> Any:
        """Return the client's answer; wait until it arrives."""
        journal = self.journal
        if not journal.knows(key):
            journal = await self._answered(key, request)
        if key in journal.refusals:
            raise McpError.of(journal.refusals[key])
        return read_answer(key, journal.answers[key], kind)

    async def _answered(self, key: str, request: InputRequest) -> Journal:
        if key in self._waiting:
            raise ValueError(f"two questions at once have the key {key!r}")
        loop = self._run.peer.loop
        if not self._asks:
            loop.call_soon(self._put)
        version = self._run.call.caller.version.name
        self._asks[key] = Raw(encode(narrow(request, version)))
        self._waiting[key] = answered = loop.create_future()
        try:
            journal: Journal = await answered
            return journal
        finally:
            self._waiting.pop(key, None)

    def _put(self) -> None:
        """Store the questions that were asked in one turn of the loop together."""
        asks, self._asks = self._asks, {}
        if asks and not self._run.ended:
            spawn(self._run.peer.loop, self._store(asks))

    async def _store(self, asks: dict[str, Raw]) -> None:
        engine = self._run.engine

        def make(record: TaskRecord) -> TaskRecord:
            journal = engine.contents.journal_of(record)
            journal.asked.update(asks)
            status = following(record.status, TaskStep.ASK)
            assert status is not None
            changed = replace(record, status=status, running=False)
            return engine.contents.with_journal(changed, journal)

        try:
            await self._run.write(make)
        except Exception as error:
            for key in asks:
                if key in self._waiting and not self._waiting[key].done():
                    self._waiting[key].set_exception(error)
            return
        if self._parking is None and not self._run.ended:
            wait = self._run.options.park
            self._parking = self._run.peer.loop.call_later(wait, self._park)

    def _park(self) -> None:
        self._parking = None
        if self._waiting and not self._run.ended:
            spawn(self._run.peer.loop, self._run.engine.keeper.park(self._run))

    async def take_answers(self, record: TaskRecord) -> None:
        """Let the tool continue with the answers that have arrived."""
        if not self._waiting:
            return
        journal = self._run.engine.contents.journal_of(record)
        arrived = [key for key in self._waiting if journal.knows(key)]
        if not arrived:
            return
        # Stored first: from here on, a worker that takes over cannot know how far the tool got.
        if self._run.engine.store.durable and await self._run.write(as_running) is None:
            return
        self.journal = journal
        for key in arrived:
            waiting = self._waiting.pop(key, None)
            if waiting is not None and not waiting.done():
                waiting.set_result(journal)
        if not self._waiting:
            self._stop_parking()

    # What is done once

    def done(self, key: str) -> Raw | None:
        """Return the value of `once` under this key, or None."""
        return self.journal.done.get(key)

    async def record(self, key: str, value: bytes) -> None:
        """Store a value of `once`. Once this returns, the value is not lost."""
        engine = self._run.engine

        def make(record: TaskRecord) -> TaskRecord:
            journal = engine.contents.journal_of(record)
            journal.done[key] = Raw(value)
            return engine.contents.with_journal(record, journal)

        stored = await self._run.write(make)
        if stored is None:
            raise asyncio.CancelledError
        self.journal.done[key] = Raw(value)

    def close(self) -> None:
        """Stop waiting for answers."""
        self._stop_parking()
        for waiting in self._waiting.values():
            waiting.cancel()

    def _stop_parking(self) -> None:
        if self._parking is not None:
            self._parking.cancel()
            self._parking = None


def read_answer(key: str, answer: Raw | bytes, kind: type[Result]) -> Any:
    """Read an answer as the result of its question; raises `McpError` naming the key."""
    try:
        return decode(kind, answer)
    except (msgspec.DecodeError, RecursionError) as error:
        raise McpError(
            INVALID_PARAMS, f"The answer to `{key}` in `inputResponses`: {error}", {"key": key}
        ) from None
