"""The server's side of the scribe: starts it, feeds it, and replaces one that dies or gets no time.

Batches that were handed over are kept until the scribe confirms that they are written, and are handed to
the next scribe if it dies. So a record may be written twice, but none is missing.
"""

import asyncio
import logging
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from mcpearl.receipts.scribe import Frames, Setup, framed
from mcpearl.runtime.arguments import Unusable
from mcpearl.runtime.backoff import Backoff, Retries, doubling
from mcpearl.runtime.tree import Node

logger = logging.getLogger("mcpearl.receipts")

_CHUNK = 1 << 16
_BLOCKED = 10.0  # seconds for which a method of this class may wait
_LATE = 1.0  # seconds after which a batch should be written
_ENDING = 0.005  # seconds between looks at a process that ends
_AGAIN = Backoff(delays=doubling(0.1, 10.0), settled_after=30.0)
_PROGRAM = "import sys; sys.path[:] = {path!r}; from mcpearl.receipts.scribe import main; main()"


class Handed(NamedTuple):
    """A batch that was handed over, and the futures of callers that wait until it is on disk."""

    frame: bytearray
    commits: "list[asyncio.Future[None]]"
    at: float


class ScribeProcess:
    """The process that writes for one recorder.

    Args:
        setup: Where and how it writes.
        written: Called when something was written.
        failed: Called with the reason when something cannot be written.
    """

    def __init__(
        self, setup: Setup, written: Callable[[], None], failed: Callable[[str], None]
    ) -> None:
        self.waiting = 0  # bytes that are not written yet
        self.handed: deque[Handed] = deque()  # the batches that these bytes belong to
        self._setup = setup
        self._written = written
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._opened: asyncio.Future[bytes] = self._loop.create_future()
        self._ended = asyncio.Event()
        self._closing = False
        self._is_last = False  # whether this process was started to write what another one left
        self._timer: asyncio.TimerHandle | None = None  # while no process runs, until the next one
        self._retries = Retries(_AGAIN)
        self._acknowledged = 0  # batches that this process has written
        self._patient = False  # whether the process works in idle time only
        self._watching = False  # whether it is going to be checked that a batch is written in time
        self._due = 0.0  # when that is checked
        self._replaced: list[subprocess.Popen[bytes]] = []  # processes that are left to end
        self._failing = False
        self._restarts = 0
        self._last_error: str | None = None

    def node(self) -> Node:
        """Return the process as a node of the supervision tree."""
        running = self._process.returncode is None
        return Node(
            name="receipts",
            state="running" if running else "waiting",
            restarts=self._restarts,
            last_error=self._last_error,
            uptime=self._loop.time() - self._began if running else 0.0,
        )

    def kill(self) -> bool:
        """End the process, as if it had failed; return False when it has ended already."""
        if self._process.poll() is not None:
            return False
        self._process.kill()
        return True

    # Beginning and ending

    async def open(self) -> bytes:
        """Start the process and wait until the log is open; return the secret of the salts."""
        try:
            self._start()
        except OSError as error:
            raise Unusable(f"receipts cannot be written: {_not_started(error)}") from None
        try:
            return await self._opened
        except asyncio.CancelledError:
            self._ended.set()
            self._forget_channel()  # so it ends
            self._replaced.append(self._process)
            self._reap_later()
            raise

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            program = _PROGRAM.format(path=sys.path)
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-c", program],
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    # Signals of a terminal do not reach it. In a session of its own, it would have a
                    # share of the processors of its own, however patient it is.
                    process_group=0,
                )
            except OSError:
                ours.close()
                raise
        self._channel = ours
        self._channel.setblocking(False)
        self._frames = Frames()
        self._acknowledged = 0
        self._patient = False
        self._began = self._loop.time()
        self._unsent: deque[memoryview] = deque([memoryview(framed(self._setup))])
        self._unsent += (memoryview(handed.frame) for handed in self.handed)
        if self._closing:
            self._unsent.append(memoryview(framed(None)))
        self._sending = False
        self._loop.add_reader(self._channel, self._readable)
        self._send()

    async def close(self) -> None:
        """Have everything written and signed, and wait until the process has ended."""
        self._closing = True
        if self._timer is not None:
            self._timer.cancel()
            self._is_last = True
            self._again()
        else:
            self._unsent.append(memoryview(framed(None)))
            self._send()
        try:
            async with asyncio.timeout(_BLOCKED):
                await self._end()
        except TimeoutError:
            if not self._ended.is_set():
                logger.warning("receipts are still being written to %s", self._setup.folder)
                self._ended.set()
                self._patient = False
                self._forget_channel()

    async def _end(self) -> None:
        """Wait until the process has ended; replace one that gets no time to end."""
        while self._patient:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LATE):
                    await self._ended.wait()
            if not self.handed:  # otherwise `_check` sees to it
                self._replace()
        await self._ended.wait()
        while self._replaced:
            self._reap()
            await asyncio.sleep(_ENDING)

    # Handing over

    def put(self, frame: bytearray, commits: "list[asyncio.Future[None]]") -> None:
        """Hand over a batch."""
        self.handed.append(Handed(frame, commits, self._loop.time()))
        self.waiting += len(frame)
        self._unsent.append(memoryview(frame))
        if not self._sending:
            self._send()
        if self._patient and not self._watching:
            self._watch(_LATE)

    def _watch(self, seconds: float) -> None:
        """Check after a while that the oldest batch is not late."""
        self._watching = True
        self._due = self._loop.time() + seconds
        self._loop.call_at(self._due, self._check)

    def _check(self) -> None:
        self._watching = False
        if self._patient:
            self._readable()  # the server may have been busy, and not the scribe
        if not self._patient or not self.handed:
            return
        now = self._loop.time()
        left = self.handed[0].at + _LATE - now
        if left > 0:
            self._watch(left)
        elif self._failing or now > self._due + _LATE / 2:
            self._watch(_LATE)  # another process could not write; or this one had no time itself
        else:
            self._replace()

    def _replace(self) -> None:
        """Start a process that does not wait for idle time, in place of one that got too little."""
        if not self._patient:
            return
        logger.warning(
            "receipts are late, as other processes keep the processors busy; another process takes its "
            "share of them to write receipts"
        )
        self._setup.patient = self._patient = False
        self._forget_channel()
        # It may take long to end, too; until then it may hold the lock of the log.
        self._process.kill()
        self._replaced.append(self._process)
        self._reap_later()
        self._launch()

    def _reap(self) -> None:
        self._replaced = [each for each in self._replaced if each.poll() is None]

    def _reap_later(self) -> None:
        self._reap()
        if self._replaced:
            self._loop.call_later(_LATE, self._reap_later)

    def _forget_channel(self) -> None:
        if self._channel.fileno() < 0:
            return
        self._loop.remove_reader(self._channel)
        self._loop.remove_writer(self._channel)
        self._channel.close()

    def _send_all(self) -> None:
        unsent = self._unsent
        while unsent:
            sent = self._channel.send(unsent[0])
            if sent == len(unsent[0]):
                unsent.popleft()
            else:
                unsent[0] = unsent[0][sent:]

    def _send(self) -> None:
        try:
            self._send_all()
        except BlockingIOError:
            if not self._sending:
                self._sending = True
                self._loop.add_writer(self._channel, self._send)
            return
        except OSError:
            return  # reading notices the end
        if self._sending:
            self._sending = False
            self._loop.remove_writer(self._channel)
        if self._closing:
            self._channel.shutdown(socket.SHUT_WR)

    def wait(self) -> None:
        """Block until everything is written, or writing has failed."""
        if self._failing:
            return  # there may be no process
        self._channel.settimeout(_BLOCKED)
        try:
            self._send_all()
            while self.handed and not self._failing:
                if not self._receive():
                    break
        except OSError as error:
            logger.error("receipts are not written: %s", error)
        finally:
            self._channel.setblocking(False)
            if self._unsent and not self._sending:
                self._send()

    # What it reports

    def _readable(self) -> None:
        try:
            alive = self._receive()
        except BlockingIOError:
            return
        except OSError:
            alive = False
        if not alive:
            self._lost()

    def _receive(self) -> bool:
        data = self._channel.recv(_CHUNK)
        for what, detail in self._frames.feed(data):
            if what == "written":
                self._acknowledge(detail)
            elif what == "patient":
                self._patient = True
                if self.handed and not self._watching:
                    self._watch(_LATE)
            elif what == "failing":
                self._failing = True
                self._failed(detail)
            elif not self._opened.done():
                if what == "open":
                    # Another process must use the same salts, even if the key was replaced meanwhile.
                    self._setup.salts = detail
                    self._opened.set_result(detail[1])
                else:
                    self._opened.set_exception(Unusable(f"receipts cannot be written: {detail}"))
            elif what == "refused":
                self._failing = True
                self._failed(detail)
            elif not self.handed:  # another process was started, and has nothing to write
                self._acknowledge(0)
        return bool(data)

    def _acknowledge(self, count: int) -> None:
        self._failing = False
        while self._acknowledged < count:
            self._acknowledged += 1
            handed = self.handed.popleft()
            self.waiting -= len(handed.frame)
            for future in handed.commits:
                if not future.done():
                    future.set_result(None)
        self._written()

    def _lost(self) -> None:
        """Note that the process ends; start another one if it was not meant to end."""
        self._forget_channel()
        self._patient = False
        if not self._closing:
            self._failing = True
        self._bury()

    def _bury(self) -> None:
        """Wait until the process has ended: one that works in idle time may take long to."""
        code = self._process.poll()
        if code is None:
            self._loop.call_later(_ENDING, self._bury)
            return
        if self._ended.is_set():
            return
        was_open = self._opened.done() and self._opened.exception() is None
        if self._closing and was_open and (self.handed or code) and not self._is_last:
            self._is_last = True
            self._again()
            return
        if self._closing or not was_open:
            if not self._opened.done():
                self._opened.set_exception(
                    Unusable(f"receipts cannot be written: their process ended with code {code}")
                )
            self._give_up()
            return
        self._retries.worked_for(self._loop.time() - self._began)
        self._try_later(f"the process that writes receipts ended with code {code}")

    def _give_up(self) -> None:
        self._ended.set()
        if self.handed:
            logger.error("%d batches of receipts were lost", len(self.handed))

    def _try_later(self, problem: str) -> None:
        """Start another process after a while."""
        self._failing = True
        self._last_error = problem
        self._failed(problem)
        self._timer = self._loop.call_later(self._retries.next_delay(), self._again)

    def _again(self) -> None:
        self._timer = None
        logger.warning("the process that writes receipts is started again")
        self._restarts += 1
        self._launch()

    def _launch(self) -> None:
        """Start a process; try again later if that is not possible now."""
        try:
            self._start()
        except OSError as error:  # such as too many open files or processes
            if self._closing:
                logger.error("%s", _not_started(error))
                self._give_up()
            else:
                self._try_later(_not_started(error))


def _not_started(error: OSError) -> str:
    return f"the process that writes receipts cannot be started: {error}"
