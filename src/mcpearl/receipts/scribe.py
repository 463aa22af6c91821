"""The process that writes a log for one server or client: `python -m mcpearl.receipts.scribe`.

It receives entries about calls through its standard input, a socket, makes records of them, appends the
records to the log, and signs heads. So a server spends little time on receipts, and what it has handed
over is written even if the server is killed. The scribe ends when its input ends. It imports little, to
start quickly.

Messages in both directions are msgpack, each after its length in four bytes.
"""

import gc
import os
import select
import signal
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from mcpearl.receipts.keys import KeyUnusable, find_keys
from mcpearl.receipts.log import LogBroken, ReceiptLog
from mcpearl.receipts.records import Formatter

_RETRY = 0.5  # seconds between attempts to write
_CHUNK = 1 << 18
CAN_BE_PATIENT = hasattr(os, "SCHED_IDLE")
_FAILURES = (OSError, LogBroken, KeyUnusable)
_encode_into = msgspec.msgpack.Encoder().encode_into
_decode = msgspec.msgpack.Decoder().decode
_LENGTH = 4  # bytes in front of a message that say how long it is
_MANY = 10_000  # records after which it works in idle time only
_KEPT = 100_000  # objects more than after the start, before cycles among them are looked for


def framed(message: Any) -> bytearray:
    """Return a message in its encoded form, with its length."""
    frame = bytearray(_LENGTH)
    _encode_into(message, frame, _LENGTH)
    frame[:_LENGTH] = (len(frame) - _LENGTH).to_bytes(_LENGTH, "big")
    return frame


class Frames:
    """Splits the data that was received into messages."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> list[Any]:
        """Return the messages that are complete now."""
        held, start, messages = self._data, 0, []
        held += data
        with memoryview(held) as view:
            while len(held) - start >= _LENGTH:
                body = start + _LENGTH
                end = body + int.from_bytes(held[start:body], "big")
                if end > len(held):
                    break
                with view[body:end] as encoded:
                    messages.append(_decode(encoded))
                start = end
        del held[:start]
        return messages


class Setup(msgspec.Struct):
    """The first message: where and how to write."""

    folder: str
    key: str | list[str] | None
    name: str | None
    rotate: int
    durable: bool
    sign_every: float
    run: str
    role: str
    of: str
    mcpearl: str
    patient: bool
    """Whether to work only in idle time of the processors once there is much to write."""
    salts: tuple[str, bytes] | None = None
    """The secret of the run's salts and the id of its key, once a process has written for the run."""


class Scribe:
    """Writes the records of one run."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._frames = Frames()
        self._lines: list[bytes] = []  # not written yet
        self._batches = 0  # messages that these lines come from
        self._written = 0  # messages written so far
        self._records = 0  # records written so far
        self._failing = False
        self._next_head = 0.0
        self._stopped = False  # whether the end was announced

    def work(self) -> None:
        """Write until the input ends."""
        messages: list[Any] = []
        while not messages:
            data = self._receive()
            if not data:
                return
            messages = self._frames.feed(data)
        if self._open(msgspec.convert(messages[0], Setup)):
            self._take(messages[1:])
            self._write_until_the_end()

    def _receive(self) -> bytes:
        """Return the data that has arrived; empty when the server has ended."""
        try:
            return self._channel.recv(_CHUNK)
        except ConnectionResetError:  # the server was killed before it had read all replies
            return b""

    def _open(self, setup: Setup) -> bool:
        folder = Path(setup.folder)
        self._setup = setup
        self._log = log = ReceiptLog(
            folder, lambda: find_keys(setup.key, folder, setup.name), setup.rotate
        )
        try:
            log.open()
            key, secret = setup.salts or (log.key.id.hex(), log.key.salts())
            start = {
                "kind": "start",
                "run": setup.run,
                "at": time.time(),
                "role": setup.role,
                "of": setup.of[:256],
                "key": key,
                "mcpearl": setup.mcpearl,
            }
            log.append([msgspec.json.encode(start) + b"\n"])
        except _FAILURES as error:
            self._tell("refused", str(error))
            return False
        # What a record is made of refers to nothing else, so it is not searched for cycles all the time.
        gc.freeze()
        gc.set_threshold(_KEPT)
        self._formatter = Formatter(secret, setup.run)
        self._tell("open", (key, secret))
        return True

    def _write_until_the_end(self) -> None:
        poll = select.poll()
        poll.register(self._channel, select.POLLIN)
        while True:
            if poll.poll(self._patience()):
                data = self._receive()
                if not data:
                    break
                self._take(self._frames.feed(data))
            self._write()
            if time.monotonic() >= self._next_head:
                self._sign()
        self._finish()

    def _finish(self) -> None:
        """Record how the run ended, and sign everything."""
        kind = "stop" if self._stopped else "gone"
        self._lines.append(
            msgspec.json.encode({"kind": kind, "run": self._setup.run, "at": time.time()}) + b"\n"
        )
        self._write()
        self._sign()

    def _take(self, batches: list[Any]) -> None:
        for batch in batches:
            if batch is None:
                self._stopped = True
            else:
                clock, number, columns = batch
                self._lines += self._formatter.lines(clock, number, columns)
                self._batches += 1

    def _patience(self) -> float | None:
        """Return the milliseconds until something is due."""
        if self._failing:
            return _RETRY * 1000
        if self._log.unsigned:
            return max(0.0, self._next_head - time.monotonic()) * 1000
        return None

    def _write(self) -> None:
        if not self._lines:
            return
        try:
            self._log.append(self._lines, durable=self._setup.durable)
        except _FAILURES as error:
            self._fail(error)
            return
        self._written += self._batches
        self._records += len(self._lines)
        if self._records >= _MANY and self._setup.patient:
            self._setup.patient = False
            self._tell("patient", None)  # before: it may get no time to do that afterwards
            _yield_to_others()
        self._lines, self._batches = [], 0
        self._failing = False
        self._tell("written", self._written)

    def _sign(self) -> None:
        self._next_head = time.monotonic() + self._setup.sign_every
        if not self._log.unsigned:
            return
        try:
            self._log.sign(durable=self._setup.durable)
        except _FAILURES as error:
            self._fail(error)
            return
        if self._failing and not self._lines:
            self._failing = False
            self._tell("written", self._written)

    def _fail(self, error: Exception) -> None:
        self._failing = True
        self._tell("failing", f"{self._setup.folder}: {error}")

    def _tell(self, what: str, detail: Any) -> None:
        try:
            self._channel.sendall(framed((what, detail)))
        except OSError:
            pass  # the server is gone; what it has handed over is still written


def _yield_to_others() -> None:
    """Work only where no other process wants to: no call waits for it.

    Otherwise it would take a processor from a client on the same machine whenever something arrives,
    which costs a third of the calls where there are two. There is no way back without privileges: a
    scribe that gets too little time is replaced by one that is not patient.
    """
    with suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def main() -> None:
    """Write for the process at the other end of standard input."""
    # Only the end of the input ends it: signals to a process group must not cut off the last records.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    with socket.socket(fileno=os.dup(0)) as channel:
        Scribe(channel).work()


if __name__ == "__main__":
    main()
