"""Notes the calls of one server or client as they begin and end, and hands the notes to the scribe.

It runs on the event loop. Most calls end before another one begins, and are noted when they end; of
others the begin and the end are noted apart. Every few milliseconds the notes are sent to the scribe, the
process that writes. How much may wait for the scribe is limited; a setting decides what happens then.
"""

import asyncio
import logging
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import Raw, Struct

from mcpearl._version import __version__
from mcpearl.protocol.errors import McpError
from mcpearl.protocol.events import Call, as_sent
from mcpearl.receipts.records import COLUMNS, Salts, about_call, about_result, split
from mcpearl.receipts.scribe import CAN_BE_PATIENT, Setup, framed
from mcpearl.receipts.scribe_process import ScribeProcess
from mcpearl.runtime import clock
from mcpearl.runtime.tree import Node
from mcpearl.types.jsonrpc import INTERNAL_ERROR

if TYPE_CHECKING:
    from mcpearl.receipts.receipts import Receipts

logger = logging.getLogger("mcpearl.receipts")

_INTERVAL = 0.01  # seconds for which notes are collected
_IDLE: Any = object()  # in place of a call: there is something to do before one can begin
_PARAMS = 6  # the column that has the params
_SET = 0.001  # seconds by which the time of day differs, if it was set
_T = TypeVar("_T")
_LONGEST = 256  # characters kept of an id that a client chose
_CLOSED = "the log is closed"
_BEHIND = "more is waiting to be written than `Receipts.queue`"
_FAILING = "the log of the server cannot be written"
_LARGE = 4096  # larger contents, in bytes, are digested here, so that little memory is held


class _Error(Struct):
    code: int


class _OpenedSession(Struct, rename="camel"):
    protocol_version: str = ""


class _OwnAnswer(Struct):
    """The recorded members of an answer that was made without a call."""

    id: int | str | None = None
    error: _Error | None = None
    result: _OpenedSession | None = None


_decode_answer = msgspec.json.Decoder(_OwnAnswer).decode


class Recorder:
    """Records the calls of one server or client.

    Args:
        receipts: The settings: where the log is, and what happens if it cannot be written.
        role: `server` or `client`.
        of: The name of the server, or of the server that the client is connected to.
    """

    def __init__(self, receipts: "Receipts", role: str, of: str) -> None:
        self.durable = receipts.durable
        self._receipts = receipts
        self._role = role
        self._of = of
        self._refuses = receipts.on_full == "refuse"
        self._most = receipts.queue
        self._run = ""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._scribe: ScribeProcess | None = None
        self._salts: Salts | None = None
        self._notes: list[Any] = []  # the columns of one call after those of another
        self._numbered = 0  # calls in batches that were handed over
        self._apart = (
            0  # what else is among the notes: ends of calls that began before, and records
        )
        # The call that began last, while nothing is noted of it; None if it has ended.
        self._open: Call | None = _IDLE
        self._began = 0.0  # when it began
        self._scheduled = False  # whether the notes are going to be handed over
        self._clock = 0.0  # the time of day at which the monotonic clock was 0
        self._problem: str | None = None  # why nothing can be written now
        self._full = True  # whether calls are refused or not recorded
        self._reason = _CLOSED  # why, for the server's log: it may name files
        self._told = _CLOSED  # why, as callers are told
        self._lost = 0  # how many calls were not recorded, since the last record of a gap
        self._lost_before = 0  # how many until then
        self._lost_since = clock.now()
        self._commits: list[asyncio.Future[None]] = []  # for what is noted

    # Beginning and ending

    async def start(self) -> None:
        """Open the log and start recording; raises `Unusable` if that fails."""
        self._loop = asyncio.get_running_loop()
        self._run = clock.random_bytes(6).hex()
        self._notes.clear()
        self._numbered = self._apart = 0
        self._problem = None
        self._open, self._scheduled = _IDLE, False
        receipts = self._receipts
        setup = Setup(
            folder=str(receipts.folder.absolute()),
            key=receipts.key,
            name=receipts.name,
            rotate=receipts.rotate,
            durable=receipts.durable,
            sign_every=receipts.sign_every,
            run=self._run,
            role=self._role,
            of=self._of,
            mcpearl=__version__,
            patient=CAN_BE_PATIENT and not receipts.durable,
        )
        scribe = ScribeProcess(setup, self._written, self._failed)
        self._salts = Salts(await scribe.open(), self._run)
        self._scribe = scribe
        self._full = False
        self._note_gap()

    async def stop(self) -> None:
        """Wait until everything recorded so far is written and signed."""
        if self._scribe is not None:
            self._hand_over()
            scribe, self._scribe = self._scribe, None
            self._full, self._reason, self._told = True, _CLOSED, _CLOSED
            self._lost_since = clock.now()
            await scribe.close()
            for handed in scribe.handed:
                self._give_up(handed.commits)

    def nodes(self) -> tuple[Node, ...]:
        """Return the process that writes, as a node of the supervision tree."""
        return () if self._scribe is None else (self._scribe.node(),)

    def kill(self, *path: str) -> bool:
        """End the process that writes, as a part of the tree; another one is started."""
        return path == ("receipts",) and self._scribe is not None and self._scribe.kill()

    @property
    def refusing(self) -> str | None:
        """Why calls are refused now, without the names of files; None if they are not."""
        return self._told if self._full and self._refuses else None

    def counters(self) -> dict[str, int]:
        """Return whether calls are recorded, how many were not, and the bytes not written yet."""
        scribe = self._scribe
        return {
            "receipts_up": int(not self._full),
            "receipts_waiting": 0 if scribe is None else scribe.waiting,
            "calls_unrecorded": self._lost_before + self._lost,
        }

    # Calls

    # The two functions that are made here run for every call, so they do as little as possible.

    def beginning(self, dispatch: Callable[[Call, Any], _T]) -> Callable[[Call, Any], _T]:
        """Return a function that records that a call begins, and dispatches it.

        It raises `McpError` if calls without a record are refused.
        """

        def begun(call: Call, ctx: Any) -> _T:
            if call.recorded is None and (self._open is None or self._can_begin(call)):
                self._began = clock.monotonic()
                self._open = call
            return dispatch(call, ctx)

        return begun

    def watching(
        self, finish: Callable[[Call, bytes], _T], largest: int = sys.maxsize
    ) -> Callable[[Call, bytes], _T]:
        """Return a function that records that a call is answered with a message, and finishes it.

        Args:
            finish: Finishes it.
            largest: Bytes of an answer; an error is sent in place of a larger one.
        """
        extend = self._notes.extend
        small = min(_LARGE, largest)

        def watched(call: Call, message: bytes) -> _T:
            raw = call.raw
            if call is self._open and len(raw) + len(message) <= small and call.batch is None:
                self._open = None
                caller = call.caller
                principal = caller.principal
                if principal is not None:
                    principal = _named(principal)
                extend(
                    (
                        self._began,
                        clock.monotonic(),
                        call.method,
                        caller.version.name,
                        call.id,
                        principal,
                        raw,
                        message,
                    )
                )
            else:
                self._answered(call, message, largest)
            return finish(call, message)

        return watched

    def begin(self, call: Call) -> None:
        """Record that a call begins. Raises `McpError` if calls without a record are refused."""
        self.beginning(_nothing)(call, None)

    def answered(self, call: Call, message: bytes) -> None:
        """Record that a call is answered with this message."""
        self._end(call, message)

    def _answered(self, call: Call, message: bytes, largest: int) -> None:
        if call is self._open or call.recorded is not None:
            self._end(call, as_sent(call, message, largest))

    def ended(self, call: Call, outcome: str, contents: bytes = b"") -> None:
        """Record that a call ended, with this result or without an answer."""
        self._end(call, (outcome, contents))

    def _can_begin(self, call: Call) -> bool:
        if self._full:
            self._refuse()
            return False
        if call is self._open:
            return False
        self._prepare()
        return True

    def _prepare(self) -> None:
        """Have the notes handed over soon, those of the call that is open too."""
        if not self._scheduled:
            self._schedule()
        self._note_begin()

    def _note_begin(self) -> None:
        """Note that the last call began, if it has not ended."""
        call = self._open
        if call is not None and call is not _IDLE:
            params, caller = bytes(call.raw), call.caller
            principal = None if caller.principal is None else _named(caller.principal)
            number = self._numbered + len(self._notes) // COLUMNS - self._apart + 1
            call.recorded = self._run, number, self._began
            contents: Any = params
            if len(params) > _LARGE:
                assert self._salts is not None
                contents = self._salts.digest(number, 0, params), *about_call(params)
            about = call.method, caller.version.name, call.id, principal, contents
            self._notes.extend((self._began, None, *about, None))
        self._open = _IDLE if self._full else None

    def _end(self, call: Call, answer: bytes | tuple[str, bytes]) -> None:
        """Note the end of a call apart from its begin."""
        if self._scribe is None or (call is not self._open and call.recorded is None):
            return
        self._prepare()
        run, number, began = call.recorded
        call.recorded = None
        if run != self._run:
            return  # it began before the log was closed and opened again
        outcome, contents = split(answer) if isinstance(answer, bytes) else answer
        noted: Any = answer
        if len(contents) > _LARGE:
            assert self._salts is not None
            found = about_result(contents) if outcome == "result" else (outcome, None)
            noted = found[0], self._salts.digest(number, 1, contents), found[1]
        self._apart += 1
        self._notes.extend((began, clock.monotonic(), None, None, None, None, number, noted))

    def answered_itself(self, kind: str, message: bytes, wire: str) -> None:
        """Record a message that was answered without a call: a session began, or it was refused.

        Args:
            kind: `session` or `refused`.
            message: The answer. The text of an error is not recorded: it may repeat contents.
            wire: What the message came over.
        """
        if self._full or self._scribe is None:
            self._lost += 1
            return
        record = {"kind": kind, "run": self._run, "at": clock.now(), "wire": wire}
        self._add(record | _about_own_answer(message))

    def _add(self, record: dict[str, Any]) -> None:
        self._prepare()
        self._apart += 1
        self._notes.extend((None, None, None, None, None, None, record, None))

    def _refuse(self) -> None:
        if self._refuses:
            raise McpError(INTERNAL_ERROR, f"The call cannot be recorded: {self._told}")
        self._lost += 1

    # Durable

    def commit(self) -> "asyncio.Future[None]":
        """Return a future that is done when everything recorded so far is on disk.

        If writing fails, and calls without a record are refused, the future raises `McpError`.
        """
        assert self._loop is not None
        future = self._loop.create_future()
        if self._problem is None and self._notes and self._scribe is not None:
            self._commits.append(future)
        else:
            self._give_up([future])
        return future

    def committing(
        self, finish: Callable[[Call, bytes], _T], largest: int = sys.maxsize
    ) -> Callable[[Call, bytes], _T]:
        """Return a function like that of `watching`, which blocks until the records are on disk.

        This is for the few answers that no other code holds back, such as the end of a subscription.
        """

        def committed(call: Call, message: bytes) -> _T:
            if call is self._open or call.recorded is not None:
                self._answered(call, message, largest)
                self._hand_over()
                if self._scribe is not None:
                    self._scribe.wait()
            return finish(call, message)

        return committed

    def _give_up(self, commits: "list[asyncio.Future[None]]") -> None:
        for future in commits:
            if future.done():
                continue
            if self._refuses:
                text = f"The call was made, but could not be recorded: {self._told}"
                future.set_exception(McpError(INTERNAL_ERROR, text))
            else:
                future.set_result(None)

    # The scribe

    def _schedule(self) -> None:
        assert self._loop is not None
        self._scheduled = True
        started = clock.now() - clock.monotonic()
        if abs(started - self._clock) > _SET:
            # It was set; or this process had a break between the two, which the larger number had not.
            self._clock = max(started, clock.now() - clock.monotonic())
        if self.durable:
            self._loop.call_soon(self._hand_over)
        else:
            self._loop.call_later(_INTERVAL, self._hand_over)

    def _hand_over(self) -> None:
        scribe = self._scribe
        if scribe is None:
            return
        self._note_begin()
        self._open, self._scheduled = _IDLE, False
        if not self._notes:
            return
        frame = _framed(self._clock, self._numbered, self._notes)
        self._numbered += len(self._notes) // COLUMNS - self._apart
        self._apart = 0
        self._notes.clear()
        commits, self._commits = self._commits, []
        scribe.put(frame, commits)
        if scribe.waiting > self._most:
            self._fill(_BEHIND, _BEHIND)

    def _written(self) -> None:
        self._problem = None
        if self._full and self._scribe is not None and self._scribe.waiting <= self._most // 2:
            self._empty()

    def _failed(self, problem: str) -> None:
        self._problem = problem
        self._fill(problem, _FAILING)
        if self._scribe is not None:
            for handed in self._scribe.handed:
                self._give_up(handed.commits)
        commits, self._commits = self._commits, []
        self._give_up(commits)

    def _fill(self, reason: str, told: str) -> None:
        """Refuse calls from now on, or do not record them."""
        if not self._full:
            self._note_begin()
            self._full, self._open = True, _IDLE
            self._lost_since = clock.now()
            what = "calls are refused" if self._refuses else "calls are not recorded"
            logger.error("%s: %s", what, reason)
        self._reason, self._told = reason, told

    def _empty(self) -> None:
        """Record calls again."""
        self._full = False
        logger.warning("calls are recorded again: %s", self._receipts.folder)
        self._note_gap()

    def _note_gap(self) -> None:
        """Note how many calls were not recorded, if any."""
        if not self._lost:
            return
        gap = {
            "kind": "gap",
            "run": self._run,
            "at": clock.now(),
            "since": self._lost_since,
            "calls": self._lost,
            "reason": self._reason[:1000],
        }
        logger.error("%d calls were not recorded: %s", self._lost, self._reason)
        self._lost_before += self._lost
        self._lost = 0
        self._add(gap)


def _about_own_answer(message: bytes) -> dict[str, Any]:
    answer = _decode_answer(message)
    about: dict[str, Any] = {}
    if answer.id is not None:
        about["request"] = str(answer.id)[:_LONGEST]
    if answer.error is not None:
        about["code"] = answer.error.code
    elif answer.result is not None:
        about["version"] = answer.result.protocol_version
    return about


def _nothing(call: Call, ctx: Any) -> None:
    pass


def _named(principal: Any) -> tuple[Any, ...]:
    return principal.subject, principal.client_id, principal.issuer


def _framed(started: float, numbered: int, notes: list[Any]) -> bytearray:
    """Return notes in the form in which they are sent."""
    params = slice(_PARAMS, None, COLUMNS)
    notes[params] = [bytes(each) if type(each) is Raw else each for each in notes[params]]
    try:
        return framed((started, numbered, notes))
    except (ValueError, OverflowError, TypeError):
        # Such as an id of more than 64 bits. The other calls must not be lost with it.
        return framed((started, numbered, [_encodable(note) for note in notes]))


def _encodable(note: Any) -> Any:
    """Return a note, or part of one, in a form that can be encoded."""
    if type(note) is tuple:
        return [_encodable(part) for part in note]
    try:
        framed(note)
    except (ValueError, OverflowError, TypeError):
        return str(note)[:_LONGEST].encode(errors="replace").decode()
    return note
