"""Serving until the end: the event loop, the signals, and all wires together."""

import asyncio
import os
import signal
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from mcpearl.runtime.supervisor import StartFailed
from mcpearl.server.roster import UNWINDING
from mcpearl.server.serving.supervised import DRAINING, cause_of, supervise_wires
from mcpearl.server.serving.wires import Http, Wire, named

if TYPE_CHECKING:
    from mcpearl.server.server import Server


def run(server: "Server", /, *wires: str | Wire, **options: Any) -> None:
    """Serve on a new event loop, or in several workers."""
    _complete_descriptors()
    chosen = named(wires or ("stdio",), options)
    first = chosen[0]
    if len(chosen) == 1 and isinstance(first, Http) and first.workers > 1:
        from mcpearl.server.serving.workers import run_workers

        run_workers(server, first, run)
    else:
        _run_loop(serve(server, *chosen))


def _complete_descriptors() -> None:
    """Open closed standard descriptors, so that descriptors of the loop do not get their numbers."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)


def _run_loop(main: Coroutine[Any, Any, None]) -> None:
    """Do what `asyncio.run` does, without waiting forever for tasks that do not end."""
    loop = _new_loop()
    asyncio.set_event_loop(loop)
    try:
        loop.run_until_complete(main)
    finally:
        try:
            loop.run_until_complete(_end_tasks())
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            asyncio.set_event_loop(None)
            loop.close()


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


async def _end_tasks() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=UNWINDING)


async def serve(server: "Server", /, *wires: str | Wire, **options: Any) -> None:
    """Serve on the running loop until one of the wires ends or a signal comes."""
    supervised = supervise_wires(server, named(wires or ("stdio",), options))
    with stop_signals() as stop:
        async with server.running():
            shutdown = server.core.grace + DRAINING
            try:
                name = await server.parts.add_wires(supervised, shutdown)
            except StartFailed as error:
                raise cause_of(error) from None
            try:
                await _first(stop.wait(), supervised.ended(), server.parts.root.ended())
            finally:
                await server.parts.root.remove(name)
            server.parts.root.check()  # it may have ended, and the wires with it


async def _first(*waits: Coroutine[Any, Any, Any]) -> None:
    """Wait for the first of these to end; raise its error."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()


@contextmanager
def stop_signals() -> Iterator[asyncio.Event]:
    """Set an event on the first SIGTERM or SIGINT; a second one ends the process at once.

    The handlers are the interpreter's, not the loop's: they run even when a handler blocks the loop.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    asked = False

    def handle(number: int, frame: object) -> None:
        nonlocal asked
        if asked:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        asked = True
        loop.call_soon_threadsafe(stop.set)

    before: dict[int, Any] = {}
    try:
        for number in (signal.SIGTERM, signal.SIGINT):
            before[number] = signal.signal(number, handle)
    except ValueError:
        pass  # not the main thread: the embedding program decides
    try:
        yield stop
    finally:
        for changed, handler in before.items():
            signal.signal(changed, handler)
