"""Serving until the end: the event loop, signals, and the wires by name."""

import asyncio
import signal
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mcpearl.server.server import Server

WIRES = ("stdio",)


def run(server: "Server", transport: str, **options: Any) -> None:
    """Serve on a loop of its own."""
    _run_loop(serve(server, transport, **options))


def _run_loop(main: Coroutine[Any, Any, None]) -> None:
    try:
        import uvloop
    except ImportError:
        asyncio.run(main)
    else:
        uvloop.run(main)


async def serve(server: "Server", transport: str, **options: Any) -> None:
    """Serve on the running loop until the wire ends or a signal comes."""
    if transport != "stdio":
        known = ", ".join(f"{wire!r}" for wire in WIRES)
        raise ValueError(f"unknown transport {transport!r}; there is {known}")
    async with server.running():
        await _serve_stdio(server, **options)


async def _serve_stdio(server: "Server") -> None:
    from mcpearl.transports.stdio import StdioTransport

    transport = StdioTransport(server.limits)
    connection = await server.connect(transport)
    stop = _stop_signals()
    ended = asyncio.ensure_future(connection.closed.wait())
    stopped = asyncio.ensure_future(stop.wait())
    await asyncio.wait((ended, stopped), return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if not ended.done():
        await connection.drain(server.grace)
        await ended


def _stop_signals() -> asyncio.Event:
    """Set an event on the first SIGTERM or SIGINT; a second one ends the process at once."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def handle(number: int) -> None:
        if stop.is_set():
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        try:
            loop.add_signal_handler(number, handle, number)
        except (NotImplementedError, RuntimeError, ValueError):
            pass  # not the main thread, or no signals here: the embedding program decides
    return stop
