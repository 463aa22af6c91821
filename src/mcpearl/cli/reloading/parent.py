"""The process that stays: watches files, and replaces the process that serves."""

import asyncio
import os
import secrets
import signal
import socket
import sys
from pathlib import Path
from typing import Any, NamedTuple

import click

from mcpearl.cli.exits import CommandFailed, Exit
from mcpearl.cli.output import CommandOutput
from mcpearl.cli.reloading.child import ServingProcess
from mcpearl.cli.reloading.conversation import Conversation
from mcpearl.cli.reloading.files import SourceFiles
from mcpearl.cli.wires import CONSOLE_KEY, Chosen, choose
from mcpearl.server.serving.wires import Http

_STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Reloaded(NamedTuple):
    """What is served, and how."""

    file: str
    chosen: Chosen
    files: SourceFiles
    more: tuple[str, ...] = ()
    """Further arguments of `mcpearl run`."""
    open_console: bool = False
    """Whether the console is opened in the browser once the server is there."""


def run_reloading(out: CommandOutput, served: Reloaded) -> None:
    """Serve until a signal comes, or the client on stdio has gone."""
    wires = choose(served.chosen)
    first = wires[0]
    if isinstance(first, Http) and first.workers > 1:
        raise CommandFailed(
            "a server that is reloaded has one process, so that clients stay connected to it",
            Exit.USAGE,
            hint="leave --workers out, or serve without reloading: `mcpearl run FILE --workers N`",
        )
    kinds = {type(wire).__name__ for wire in wires}
    if "Stdio" in kinds and len(kinds) > 1:
        raise CommandFailed("--reload serves on stdio alone, or on other wires", Exit.USAGE)
    if "Stdio" in kinds:
        asyncio.run(_OverStdio(out, served).run())
    else:
        asyncio.run(_OverSockets(out, served, wires).run())


class _Reloading:
    """Replaces one child by the next when files change."""

    def __init__(self, out: CommandOutput, served: Reloaded) -> None:
        self._out = out
        self._served = served
        self._child: ServingProcess | None = None
        self._noticing: asyncio.Task[None] | None = None
        self._ending = False

    async def run(self) -> None:
        """Serve until the end."""
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in _STOPPING:
            loop.add_signal_handler(number, stop.set)
        watching = asyncio.create_task(self._watch())
        ends = [watching, asyncio.create_task(stop.wait()), asyncio.create_task(self._ended())]
        try:
            done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            self._ending = True
            for task in ends:
                task.cancel()
            await asyncio.gather(*ends, return_exceptions=True)
            if self._child is not None:
                await self._child.stop()
            self._close()

    async def _watch(self) -> None:
        await self._replace([])
        while True:
            changed = await self._served.files.changed()
            await self._replace(changed)

    async def _replace(self, changed: list[Path]) -> None:
        """Load the files as they are now, and let the new child take over if that works."""
        if changed:
            names = ", ".join(_shown(path) for path in changed[:5])
            self._out.note(f"changed: {names}", fg="cyan")
        child = self._new_child()
        try:
            loaded = await child.load()
        except asyncio.CancelledError:
            await child.stop()
            raise
        if not loaded:
            await child.stop()
            still = "the last version goes on" if self._lives() else "waiting for a change"
            self._out.warning(f"{self._served.file} cannot be served as it is; {still}")
            return
        old, self._child = self._child, child
        if old is not None:
            await self._part_with(old)
        await self._take_up(child)
        self._noticing = asyncio.create_task(self._notice_end(child))

    async def _notice_end(self, child: ServingProcess) -> None:
        code = await child.process.wait()
        if child is self._child and not self._ending:
            self._out.warning(f"the server ended with code {code}; waiting for a change")

    def _lives(self) -> bool:
        return self._child is not None and self._child.process.returncode is None

    def _arguments(self) -> list[str]:
        return [self._served.file, *self._served.chosen.arguments(), *self._served.more]

    def _new_child(self) -> ServingProcess:
        raise NotImplementedError

    async def _part_with(self, old: ServingProcess) -> None:
        await old.stop()

    async def _take_up(self, child: ServingProcess) -> None:
        child.go()

    async def _ended(self) -> None:
        """Wait until there is nothing more to serve."""
        await asyncio.Event().wait()

    def _close(self) -> None:
        pass


class _OverSockets(_Reloading):
    """Keeps the listening sockets: a client that connects meanwhile waits for the next child."""

    def __init__(self, out: CommandOutput, served: Reloaded, wires: list[Any]) -> None:
        super().__init__(out, served)
        self._sockets: list[socket.socket] = []
        self._unix: list[Any] = []
        self._console: str | None = None
        for wire in wires:
            self._sockets.append(self._bound(wire))

    def _bound(self, wire: Any) -> socket.socket:
        from mcpearl.net.addresses import CannotListen
        from mcpearl.net.ports import UnixPort, bind_port

        try:
            if type(wire).__name__ == "Unix":
                port = UnixPort(wire.path)
                self._unix.append(port)
                return port.bind()
            bound = bind_port(wire.host, int(wire.port))
        except CannotListen as error:
            raise CommandFailed(str(error)) from None
        if int(wire.port) == 0:  # every child has to be at the same one
            options = {**self._served.chosen.options, "port": bound.getsockname()[1]}
            self._served = self._served._replace(
                chosen=self._served.chosen._replace(options=options)
            )
        if isinstance(wire, Http) and wire.console:
            self._make_key(wire, bound.getsockname()[1])
        return bound

    def _make_key(self, wire: Any, port: int) -> None:
        """Choose the key of the console, so that its page goes on after a reload."""
        key = os.environ.setdefault(CONSOLE_KEY, secrets.token_urlsafe(24))
        host = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}.get(wire.host, wire.host)
        place = f"[{host}]" if ":" in host else host
        scheme = "https" if wire.certificate else "http"
        self._console = f"{scheme}://{place}:{port}/console/#key={key}"

    async def _take_up(self, child: ServingProcess) -> None:
        await super()._take_up(child)
        if self._served.open_console and self._console is not None:
            for each in self._sockets:
                each.listen()  # the browser may be faster than the child, and then waits for it
            click.launch(self._console)
            self._served = self._served._replace(open_console=False)

    def _new_child(self) -> ServingProcess:
        return ServingProcess(self._arguments(), self._sockets)

    def _close(self) -> None:
        for each in (*self._sockets, *self._unix):
            each.close()


class _OverStdio(_Reloading):
    """Keeps the client of stdio, and brings every new child to where the last one was."""

    def __init__(self, out: CommandOutput, served: Reloaded) -> None:
        super().__init__(out, served)
        self._conversation = Conversation()
        self._reading: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()  # there is a child to send to
        self._began = False

    def _new_child(self) -> ServingProcess:
        return ServingProcess(self._arguments(), [], on_stdio=True)

    async def _part_with(self, old: ServingProcess) -> None:
        self._ready.clear()
        self._conversation.parting()
        await old.stop()
        if self._reading is not None:
            await self._reading
        self._write(self._conversation.lost())

    async def _take_up(self, child: ServingProcess) -> None:
        child.go()
        self._reading = asyncio.create_task(self._pass_answers(child))
        assert child.process.stdin is not None
        child.process.stdin.writelines(self._conversation.opening())
        if self._began:
            self._write(self._conversation.news())
        self._began = True
        self._ready.set()

    async def _pass_answers(self, child: ServingProcess) -> None:
        assert child.process.stdout is not None
        async for line in child.process.stdout:
            if self._conversation.from_server(line):
                self._write([line])
        if child is self._child and self._ready.is_set():  # it ended by itself
            self._ready.clear()
            self._write(self._conversation.lost())

    def _write(self, lines: list[bytes]) -> None:
        if lines:
            sys.stdout.buffer.writelines(lines)
            sys.stdout.buffer.flush()

    async def _ended(self) -> None:
        """Pass on what the client sends, until its end."""
        reader = asyncio.StreamReader(limit=64 * 1024 * 1024)
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer)
        async for line in reader:
            await self._ready.wait()
            if self._child is None or not self._conversation.from_client(line):
                continue
            stdin = self._child.process.stdin
            assert stdin is not None
            stdin.write(line)
            try:
                await stdin.drain()
            except ConnectionError:
                pass  # the child has ended; what it was asked is answered where that is noticed
        await self._finish()

    async def _finish(self) -> None:
        """Let the child answer what it was asked, as it would without a parent."""
        self._ending = True
        self._ready.clear()
        if self._child is not None and self._child.process.stdin is not None:
            self._child.process.stdin.close()
        if self._reading is not None:
            await self._reading


def _shown(path: Path) -> str:
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
