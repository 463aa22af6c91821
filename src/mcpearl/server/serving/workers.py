"""Several processes that serve one port: started, watched, started again, and ended together.

The parent opens the port and forks; it serves nobody. A worker that dies is replaced, after a pause
when it died young. When the parent goes, however it goes, its workers go: each reads from a pipe only
the parent holds the other end of.
"""

import asyncio
import logging
import os
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from mcpearl.net.ports import bind_port
from mcpearl.server.serving.http import WorkerHttp
from mcpearl.server.serving.relay import Relay
from mcpearl.server.serving.wires import Http
from mcpearl.transports.http_server.siblings import Siblings

if TYPE_CHECKING:
    from mcpearl.server.server import Server

logger = logging.getLogger("mcpearl.server")

_YOUNG = 5.0  # seconds of life under which a worker is replaced only after a pause
_PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0)  # seconds, longer with each early death in a row
_MARGIN = 5.0  # seconds beside the server's own grace before a worker is killed
_SIGNALS = {signal.SIGTERM, signal.SIGINT, signal.SIGCHLD}


def run_workers(server: "Server", http: Http, run: Callable[..., None]) -> None:
    """Serve one HTTP address with as many processes as it says until a signal comes."""
    if not hasattr(os, "fork") or threading.current_thread() is not threading.main_thread():
        raise RuntimeError("`workers` needs a system that can fork, and the main thread")
    if http.server != "mcpearl":
        raise ValueError("`workers` do not share a port with granian; leave out one of the two")
    server.sealer()  # now, so that every worker can open what another has sealed
    auth = server.auth if http.auth is None else http.auth
    if auth is not None:
        from mcpearl.auth.server.protection import for_workers

        http = replace(http, auth=for_workers(auth))
    count, http = http.workers, replace(http, workers=1)
    with (
        tempfile.TemporaryDirectory(prefix="mcpearl-") as directory,
        bind_port(http.host, http.port) as listening,
    ):
        paths = [Path(directory) / f"{number}" for number in range(count)]

        def work(number: int, ready: int, lifeline: int) -> None:
            siblings = Siblings(number, paths)
            wire = WorkerHttp(http, listening, siblings)
            run(server, wire, Relay(server, siblings), _Lifeline(ready, lifeline))

        Crew(count, work, server.grace + _MARGIN).run()


class _Lifeline(Struct):
    """Tells the parent that everything is up, and ends the worker when the parent is gone."""

    ready: int
    lifeline: int

    def listener(self, server: "Server") -> "_Lifeline":
        return self

    async def start(self) -> None:
        os.write(self.ready, b"1")
        os.close(self.ready)

    async def ended(self) -> None:
        loop = asyncio.get_running_loop()
        gone = asyncio.Event()
        loop.add_reader(self.lifeline, gone.set)
        try:
            await gone.wait()
        finally:
            loop.remove_reader(self.lifeline)

    def stop_accepting(self) -> None:
        pass

    async def drain(self, grace: float) -> None:
        pass


class _Worker(Struct):
    """One place in the crew, and who has it at the moment."""

    number: int
    pid: int = 0
    ready: int = -1  # from which the news comes that it is up
    began: float = 0.0
    early_deaths: int = 0
    due: float | None = None  # when it is to be started again


class Crew:
    """The parent's side: keeps as many workers as asked."""

    def __init__(self, count: int, work: Callable[[int, int, int], None], patience: float) -> None:
        self._workers = [_Worker(number) for number in range(count)]
        self._work = work
        self._patience = patience
        self._lifeline = os.pipe()
        self._mask: set[signal.Signals] = set()

    def run(self) -> None:
        """Start them, and see them through to a signal. Raises when one cannot even start."""
        # Blocked, so that none is missed between looking and waiting.
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)  # type: ignore[assignment]
        try:
            for worker in self._workers:
                self._start(worker)
            self._watch()
        finally:
            self._end()
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
            for descriptor in self._lifeline:
                os.close(descriptor)

    def _start(self, worker: _Worker) -> None:
        worker.due = None
        worker.ready, ready = os.pipe()
        os.set_blocking(worker.ready, False)
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            self._be(worker, ready)
        os.close(ready)
        worker.pid, worker.began = pid, time.monotonic()

    def _be(self, worker: _Worker, ready: int) -> None:
        """Be a worker, and nothing after that."""
        code = 1
        try:
            os.close(self._lifeline[1])
            os.setpgid(0, 0)  # what is typed at a terminal is the parent's to pass on
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
            self._work(worker.number, ready, self._lifeline[0])
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def _watch(self) -> None:
        while True:
            dues = [worker.due for worker in self._workers if worker.due is not None]
            wait = max(0.0, min(dues) - time.monotonic()) if dues else 3600.0
            got = signal.sigtimedwait(_SIGNALS, wait)
            if got is not None and got.si_signo != signal.SIGCHLD:
                return
            for worker in self._workers:
                self._look_after(worker)

    def _look_after(self, worker: _Worker) -> None:
        if worker.due is not None:
            if worker.due <= time.monotonic():
                self._start(worker)
            return
        status = _reaped(worker)
        if status is None:
            return
        pid, worker.pid = worker.pid, 0  # the number may be somebody else's from now on
        came_up = self._came_up(worker)
        if not came_up and not worker.early_deaths:
            raise RuntimeError(f"a worker {_how(status)} before it was up; what it said is above")
        lived = time.monotonic() - worker.began
        worker.early_deaths = worker.early_deaths + 1 if lived < _YOUNG else 0
        pause = _PAUSES[min(worker.early_deaths, len(_PAUSES)) - 1] if worker.early_deaths else 0.0
        worker.due = time.monotonic() + pause
        logger.error(
            "worker %d (process %d) %s; it is replaced in %g s",
            *(worker.number, pid, _how(status), pause),
        )
        if not pause:
            self._start(worker)

    def _came_up(self, worker: _Worker) -> bool:
        try:
            return os.read(worker.ready, 1) == b"1"
        except BlockingIOError:
            return False
        finally:
            os.close(worker.ready)

    def _end(self) -> None:
        """Let all finish, those that do not within their time not any longer."""
        self._signal(signal.SIGTERM)
        until = time.monotonic() + self._patience
        while alive := [worker for worker in self._workers if worker.pid]:
            for worker in alive:
                if _reaped(worker) is not None:
                    worker.pid = 0
            left = until - time.monotonic()
            got = signal.sigtimedwait(_SIGNALS, max(0.0, min(left, 0.1)))
            if left <= 0 or (got is not None and got.si_signo != signal.SIGCHLD):
                self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        for worker in self._workers:
            if worker.pid:
                os.kill(worker.pid, number)


def _reaped(worker: _Worker) -> int | None:
    pid, status = os.waitpid(worker.pid, os.WNOHANG)
    return status if pid else None


def _how(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
