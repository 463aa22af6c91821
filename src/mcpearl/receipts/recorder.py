"""Notes the calls of one server or client as they begin and end, and hands the notes to the scribe.

It runs on the event loop. A call costs two entries in a buffer; every few milliseconds the buffer is sent
to the scribe, the process that writes. How much may wait for the scribe is limited; a setting decides
what happens at the limit.
"""

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from mcpearl._version import __version__
from mcpearl.protocol.errors import McpError
from mcpearl.protocol.events import Call
from mcpearl.receipts.records import Entry, Salts, about_call, about_result, split
from mcpearl.receipts.scribe import HEADER, Setup, complete
from mcpearl.receipts.scribe_process import ScribeProcess
from mcpearl.runtime import clock
from mcpearl.runtime.tree import Node
from mcpearl.types.jsonrpc import INTERNAL_ERROR

if TYPE_CHECKING:
    from mcpearl.receipts.receipts import Receipts

logger = logging.getLogger("mcpearl.receipts")

_encode_into = msgspec.msgpack.Encoder().encode_into
_INTERVAL = 0.01  # seconds for which entries are collected
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
        self._calls = 0
        # Entries are encoded as they come, so that no objects of a call are kept.
        self._batch = bytearray(HEADER)
        self._count = 0  # entries in the batch
        self._problem: str | None = None  # why nothing can be written now
        self._full = False  # whether calls are refused or not recorded
        self._reason = ""  # why, for the server's log: it may name files
        self._told = ""  # why, as callers are told
        self._lost = 0  # how many calls were not recorded
        self._lost_since = 0.0
        self._commits: list[asyncio.Future[None]] = []  # for the entries in the batch

    # Beginning and ending

    async def start(self) -> None:
        """Open the log and start recording; raises `Unusable` if that fails."""
        self._loop = asyncio.get_running_loop()
        self._run = clock.random_bytes(6).hex()
        self._calls = 0
        self._full, self._problem = False, None
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
        )
        scribe = ScribeProcess(setup, self._written, self._failed)
        self._salts = Salts(await scribe.open(), self._run)
        self._scribe = scribe

    async def stop(self) -> None:
        """Wait until everything recorded so far is written and signed."""
        if self._scribe is not None:
            self._hand_over()
            scribe, self._scribe = self._scribe, None
            self._full, self._reason, self._told = True, _CLOSED, _CLOSED
            await scribe.close()

    def nodes(self) -> tuple[Node, ...]:
        """Return the process that writes, as a node of the supervision tree."""
        return () if self._scribe is None else (self._scribe.node(),)

    def kill(self, *path: str) -> bool:
        """End the process that writes, as a part of the tree; another one is started."""
        return path == ("receipts",) and self._scribe is not None and self._scribe.kill()

    # Calls

    def begin(self, call: Call) -> None:
        """Record that a call begins. Raises `McpError` if calls without a record are refused."""
        if self._full:
            self._refuse()
            return
        if call.recorded is not None:
            return
        number = self._calls = self._calls + 1
        call.recorded = number, clock.monotonic()
        params, caller = call.raw, call.caller
        contents = bytes(params) if len(params) <= _LARGE else self._digested(number, bytes(params))
        principal = caller.principal
        if principal is not None:
            principal = principal.subject, principal.client_id, principal.issuer
        if not self._count:
            self._schedule()
        batch = self._batch
        before = len(batch)
        entry = number, clock.now(), call.method, caller.version.name, call.id, contents, principal
        try:
            _encode_into(entry, batch, -1)
        except (ValueError, OverflowError, TypeError):
            # Such as an id of more than 64 bits. The rest of the batch must not be lost with it.
            del batch[before:]
            caller_as_text = None if principal is None else [_text(part) for part in principal]
            _encode_into((*entry[:4], _text(call.id), contents, caller_as_text), batch, -1)
        self._count += 1

    def answered(self, call: Call, message: bytes) -> None:
        """Record that a call was answered with this message."""
        if call.recorded is None:
            return
        number, since = call.recorded
        call.recorded = None
        outcome: str | None = None
        contents: Any = message
        if len(message) > _LARGE:
            outcome, contents = self._summed_up(number, *split(message))
        if not self._count:
            self._schedule()
        self._count += 1
        entry = number, clock.now(), clock.monotonic() - since, outcome, contents
        _encode_into(entry, self._batch, -1)

    def ended(self, call: Call, outcome: str, contents: bytes = b"") -> None:
        """Record that a call ended, with this result or without an answer."""
        if call.recorded is None:
            return
        number, since = call.recorded
        call.recorded = None
        answer: Any = contents
        if len(contents) > _LARGE:
            outcome, answer = self._summed_up(number, outcome, contents)
        self._add((number, clock.now(), clock.monotonic() - since, outcome, answer))

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
        answer = _decode_answer(message)
        record = {"kind": kind, "run": self._run, "at": clock.now(), "wire": wire}
        if answer.id is not None:
            record["request"] = str(answer.id)[:_LONGEST]
        if answer.error is not None:
            record["code"] = answer.error.code
        elif answer.result is not None:
            record["version"] = answer.result.protocol_version
        self._add(record)

    def _add(self, entry: Entry) -> None:
        if not self._count:
            self._schedule()
        self._count += 1
        _encode_into(entry, self._batch, -1)

    def _digested(self, number: int, params: bytes) -> Any:
        assert self._salts is not None
        return self._salts.digest(number, 0, params), *about_call(params)

    def _summed_up(self, number: int, outcome: str, contents: bytes) -> tuple[str, Any]:
        assert self._salts is not None
        task = ""
        if outcome == "result":
            outcome, task = about_result(contents)
        return outcome, (self._salts.digest(number, 1, contents), task)

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
        if self._problem is None and self._count:
            self._commits.append(future)
        else:
            self._give_up([future])
        return future

    def commit_answer(self, call: Call, message: bytes) -> None:
        """Record that a call is answered, and block until that is on disk.

        This is for the few answers that no other code holds back, such as the end of a subscription.
        """
        if call.recorded is not None:
            self.answered(call, message)
            self._hand_over()
            if self._scribe is not None:
                self._scribe.wait()

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
        if self.durable:
            self._loop.call_soon(self._hand_over)
        else:
            self._loop.call_later(_INTERVAL, self._hand_over)

    def _hand_over(self) -> None:
        scribe = self._scribe
        if scribe is None or not self._count:
            return
        frame = complete(self._batch, self._count)
        self._batch, self._count = bytearray(HEADER), 0
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
            self._full = True
            self._lost_since = clock.now()
            what = "calls are refused" if self._refuses else "calls are not recorded"
            logger.error("%s: %s", what, reason)
        self._reason, self._told = reason, told

    def _empty(self) -> None:
        """Record calls again, and note how many were not recorded."""
        self._full = False
        logger.warning("calls are recorded again: %s", self._receipts.folder)
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
        self._lost = 0
        self._add(gap)


def _text(part: Any) -> str | None:
    """Return part of an entry as text that can be encoded."""
    return None if part is None else str(part)[:_LONGEST].encode(errors="replace").decode()
