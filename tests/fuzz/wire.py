"""The other end of a connection in memory, and a loop that runs until nothing is left to do."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from mcpearl.testing.clock import MovableClock
from tests.fuzz.target import Broken, require

_MOST_TURNS = 10_000  # of the loop for one input; more is a loop without an end


class Wire(asyncio.Transport):
    """A transport whose peer reads everything at once. What was written is in `written`."""

    def __init__(self, protocol: asyncio.BaseProtocol) -> None:
        super().__init__({"peername": ("127.0.0.1", 1), "socket": None})
        self._loop = asyncio.get_running_loop()
        self._protocol: Any = protocol
        self._closing = False
        self._lost = False
        self.written = bytearray()
        self.reading = True
        self._protocol.connection_made(self)

    def write(self, data: Any) -> None:
        require(isinstance(data, bytes | bytearray | memoryview), "what is written is not bytes")
        if not self._closing:
            self.written += data

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Have no limits: everything is read at once."""

    def is_closing(self) -> bool:
        return self._closing

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._loop.call_soon(self._lose)

    abort = close

    def _lose(self) -> None:
        if not self._lost:
            self._lost = True
            self._protocol.connection_lost(None)

    async def feed(self, parts: list[bytes]) -> None:
        """Deliver bytes as the loop would: none while reading is paused, none after the end."""
        for part in parts:
            if not self.reading:
                await settle()
            if self._closing or not self.reading:
                return
            self._protocol.data_received(part)
            await settle()

    async def hang_up(self) -> None:
        """Let the peer close the connection."""
        await settle()
        self.close()
        await settle()


async def settle() -> None:
    """Let the loop turn until nothing is ready."""
    ready: Any = asyncio.get_running_loop()._ready  # type: ignore[attr-defined]
    for _ in range(_MOST_TURNS):
        if not ready:
            return
        await asyncio.sleep(0)
    raise Broken("the loop does not come to rest")


class _Errors(logging.Handler):
    """Collects what is logged as an error."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


class Chance(MovableClock):
    """A clock that tests move, and random bytes that are the same for every input."""

    def __init__(self) -> None:
        super().__init__()
        self._drawn = 0

    def random_bytes(self, count: int) -> bytes:  # type: ignore[override]
        self._drawn += 1
        return self._drawn.to_bytes(8, "big").rjust(count, b"r")[-count:]


_loop: asyncio.AbstractEventLoop | None = None


def run(work: Coroutine[Any, Any, Any]) -> Any:
    """Run to the end; fail for what the loop or a logger reports as an error."""
    global _loop
    if _loop is None:
        _loop = asyncio.SelectorEventLoop()
    unhandled: list[dict[str, Any]] = []
    _loop.set_exception_handler(lambda _, context: unhandled.append(context))
    errors = _Errors()
    logger = logging.getLogger("mcpearl")
    logger.addHandler(errors)
    propagates, logger.propagate = logger.propagate, False
    try:
        with Chance():
            result = _loop.run_until_complete(work)
    finally:
        logger.propagate = propagates
        logger.removeHandler(errors)
    for context in unhandled:
        raise Broken(f"{context['message']}") from context.get("exception")
    for record in errors.records:
        raise Broken(f"an error in the log: {record.getMessage()}") from (
            record.exc_info[1] if record.exc_info else None
        )
    return result
