"""Serving until the end: the event loop, the signals, and all wires together."""

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

from mcpearl.runtime.arguments import Unusable
from mcpearl.runtime.loading import Loading
from mcpearl.runtime.supervisor_errors import StartFailed
from mcpearl.server.roster import UNWINDING
from mcpearl.server.serving.choose import chosen
from mcpearl.server.serving.speaking import speaking
from mcpearl.server.serving.supervised import DRAINING, WirePart, cause_of, supervise_wires
from mcpearl.server.serving.wire import ServableWire, Stdio

if TYPE_CHECKING:
    from mcpearl.server.server import Server
    from mcpearl.server.serving.wires import Http

logger = logging.getLogger("mcpearl.server")
_STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def run(server: "Server", /, *wires: str | ServableWire, **options: Any) -> None:
    """Serve on a new event loop, or in several workers.

    Raises:
        SystemExit: The server cannot start with these settings; the message says why.
    """
    _refuse_running_loop()
    _complete_descriptors()
    try:
        found = chosen(wires, options)
        http = _in_workers(found)
        if http is not None:
            from mcpearl.server.serving.workers import run_workers

            with speaking(server.log):
                run_workers(server, http, run)
        else:
            with _forked_ahead(server):
                _run_loop(serve(server, *found))
    except Unusable as error:
        raise SystemExit(f"{server.name}: {error}") from None
    except OSError as error:
        from mcpearl.net.addresses import CannotListen

        if not isinstance(error, CannotListen):
            raise
        raise SystemExit(f"{server.name}: {error}") from None


def _in_workers(wires: list[ServableWire]) -> "Http | None":
    """Return the one wire if it is HTTP with several workers."""
    if len(wires) > 1 or isinstance(wires[0], Stdio):
        return None
    from mcpearl.server.serving.wires import Http

    (wire,) = wires
    return wire if isinstance(wire, Http) and wire.workers > 1 else None


@contextmanager
def _forked_ahead(server: "Server") -> Iterator[None]:
    """Fork the process that isolated tools are forked from, before there is a loop or a thread."""
    isolation = server.isolation
    if isolation is None:
        yield
        return
    isolation.fork_ahead()
    try:
        yield
    finally:
        isolation.discard_ahead()


def _refuse_running_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError(
        "`app.run()` starts an event loop, and one is running here already, as in a notebook or an "
        "async function: write `await app.serve()` instead, with the same arguments"
    )


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
        with Loading():
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


async def serve(server: "Server", /, *wires: str | ServableWire, **options: Any) -> None:
    """Serve on the running loop until one of the wires ends or a signal comes."""
    found = chosen(wires, options)
    on_stdio = [isinstance(wire, Stdio) for wire in found]
    spoken = speaking(server.log, sessions=not all(on_stdio), prints=not any(on_stdio))
    with spoken, _dumping(server), stop_signals() as stop:
        async with _opened(server, found) as (name, _):
            with _under_systemd():
                await _first(stop.wait(), server.parts.root.until_gone(name))
            if stop.is_set():
                await _say_draining(server, found)


@contextmanager
def _dumping(server: "Server") -> Iterator[None]:
    """Write out what the server is doing on each SIGUSR2, where signals can be handled."""
    number = getattr(signal, "SIGUSR2", None)
    loop = asyncio.get_running_loop()
    try:
        if number is None or signal.getsignal(number) not in (signal.SIG_DFL, signal.SIG_IGN):
            raise ValueError("the application has a use for it")
        before = signal.signal(number, lambda *_: loop.call_soon_threadsafe(_dump, server))
    except ValueError:  # not the main thread, or taken
        yield
        return
    try:
        yield
    finally:
        signal.signal(number, before)


def _dump(server: "Server") -> None:
    from mcpearl.server.serving.dump import dump  # loaded only when it is needed

    dump(server)


@contextmanager
def _under_systemd() -> Iterator[None]:
    """Tell systemd that the server is ready, that it lives, and that it stops."""
    if "NOTIFY_SOCKET" not in os.environ:
        yield
        return
    from mcpearl.net import systemd

    watchdog = systemd.SystemdWatchdog()
    systemd.notify("READY=1")
    watchdog.start()
    try:
        yield
    finally:
        systemd.notify("STOPPING=1")
        watchdog.stop()


async def _say_draining(server: "Server", wires: list[ServableWire]) -> None:
    """Report "not ready" for a while before the ports are closed, if a wire asks for it."""
    server.web.draining = True
    delay = max(wire.drain_delay for wire in wires)
    if delay:
        logger.info("not ready any more; serving for another %g s", delay)
        await asyncio.sleep(delay)


@asynccontextmanager
async def serving(server: "Server", wire: str | ServableWire, options: Any) -> AsyncIterator[str]:
    """Serve on one wire while the context lasts; yield the address to connect to."""
    async with _opened(server, chosen((wire,), options)) as (_, (part,)):
        if part.address is None:
            raise ValueError("this wire has no address to connect to; `Client(app)` needs none")
        yield part.address


@asynccontextmanager
async def _opened(
    server: "Server", wires: list[ServableWire]
) -> AsyncIterator[tuple[str, list[WirePart]]]:
    """Hold the server up and serve it on all wires; at the end, drain them together.

    Yields the name of the wires in the server's tree, and the wires.
    """
    supervised, parts = supervise_wires(server, wires)
    async with server.running():
        server.web.draining = False
        try:
            name = await server.parts.add_wires(supervised, server.core.grace + DRAINING)
        except StartFailed as error:
            raise cause_of(error) from None
        try:
            yield name, parts
        finally:
            if in_flight := server.core.counters()["calls_in_flight"]:
                grace = server.core.grace
                logger.info("draining: %d calls have %g s to finish", in_flight, grace)
            await server.parts.root.remove(name)
    if any(part.address for part in parts):  # on stdio the client has ended the server
        logger.info("%s has stopped", server.name)


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
    """Set an event on the first SIGTERM, SIGINT or SIGHUP; a second one ends the process at once.

    A SIGHUP that is ignored, as under `nohup`, stays ignored. The handlers are the interpreter's, not
    the loop's: they run even when a handler blocks the loop.
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
        loop.call_soon_threadsafe(begin, signal.Signals(number).name)

    def begin(name: str) -> None:  # on the loop: a signal may come while a log is being written
        logger.info("stopping on %s", name)
        stop.set()

    before: dict[int, Any] = {}
    try:
        for number in _STOPPING:
            if number == signal.SIGHUP and signal.getsignal(number) != signal.SIG_DFL:
                continue
            before[number] = signal.signal(number, handle)
    except ValueError:
        pass  # not the main thread: the embedding program decides
    try:
        yield stop
    finally:
        for changed, handler in before.items():
            signal.signal(changed, handler)
