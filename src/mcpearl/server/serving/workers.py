"""Several processes that serve one port: started, watched, replaced, and stopped together.

The parent opens the port and forks; it serves no request itself. A worker that dies is replaced, after a
pause when it died young. When the parent ends, for any reason, its workers end: each reads from a pipe
whose other end only the parent holds. The sockets between the workers are in a folder of the parent.
"""

import asyncio
import fcntl
import logging
import os
import shutil
import signal
import stat
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from msgspec import Struct, field
from msgspec.structs import replace

from mcpearl.net import systemd
from mcpearl.net.ports import TcpPort, bind_port
from mcpearl.net.tls import server_context
from mcpearl.runtime import clock
from mcpearl.runtime.arguments import Unusable
from mcpearl.runtime.backoff import Backoff, Retries, doubling
from mcpearl.runtime.names import Names
from mcpearl.runtime.tree import Node
from mcpearl.server.serving.http import WorkerHttp, described, make_console
from mcpearl.server.serving.wires import Http
from mcpearl.server.serving.worker_board import WorkerBoard
from mcpearl.stores.errors import StoreUnavailable
from mcpearl.stores.unix_bus import UnixBus
from mcpearl.transports.http_server.siblings import Siblings

if TYPE_CHECKING:
    from mcpearl.server.server import Server
    from mcpearl.stores.shared import SharedStore
    from mcpearl.transports.http_server.pages import Site

logger = logging.getLogger("mcpearl.server")

_STARTING = 0.05  # seconds between two looks at workers that are not up yet
_YOUNG = 5.0  # seconds of life under which a worker is replaced only after a pause
_PAUSES = Backoff(delays=doubling(0.5, 30.0), jitter=0.0, settled_after=_YOUNG)
_MARGIN = 5.0  # seconds beside the server's own grace before a worker is killed
_PREFIX = "mcpearl-"  # of the folders of sockets
_LOCK = "lock"  # the file in such a folder that is locked while its parent or a worker lives
_OF_PARENT = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")  # workers do not speak to systemd
_PASSED_ON = signal.SIGUSR2  # each worker writes what it is doing to the log
_SIGNALS = {signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, _PASSED_ON}


def run_workers(server: "Server", http: Http, run: Callable[..., None]) -> None:
    """Serve one HTTP address with several processes until a signal comes.

    Args:
        server: The server; it must not run yet.
        http: The address, with `workers` among its options.
        run: Serves wires in a worker, on a loop of its own, until the end.
    """
    if not hasattr(os, "fork") or threading.current_thread() is not threading.main_thread():
        raise RuntimeError("`workers` needs a system that can fork, and the main thread")
    if http.server != "mcpearl":
        raise ValueError("`workers` do not share a port with granian; leave out one of the two")
    if server.shared is not None and server.core.state_keys is None:
        server.core.state_keys = asyncio.run(_agreed(server.shared))
    server.core.sealer()  # now, so that every worker can open what another has sealed
    server.core.budget.divide(http.workers)
    server.share_limits()
    auth = server.auth if http.auth is None else http.auth
    if auth is not None:
        from mcpearl.auth.server.protection import for_workers

        http = replace(http, auth=for_workers(auth))
    tls = server_context(http.certificate, http.key, http.client_ca)  # raises for unusable files
    count, http = http.workers, replace(http, workers=1)
    shared = None
    if http.metrics is not None:
        from mcpearl.telemetry.shared import SharedSnapshots

        shared = SharedSnapshots(count)
    server.web.board = None if http.health is None else WorkerBoard(count)
    console = make_console(server, http)  # now, so that every worker has the same key
    with socket_folder() as folder, bind_port(http.host, int(http.port)) as listening:
        paths = [folder / f"{number}" for number in range(count)]

        def work(number: int, ready: int, lifeline: int) -> None:
            for name in _OF_PARENT:
                os.environ.pop(name, None)
            server.parts.forked()
            siblings = Siblings(number, paths, restarts=crew.restarts(number))
            server.core.roster.names.serve("worker", siblings)
            server.web.number = number
            if shared is not None:
                server.measure().share(shared, number)
            if server.shared is None:
                server.bus = UnixBus(number, [path.with_suffix(".bus") for path in paths])
            wire = WorkerHttp(http, listening, siblings)
            run(server, wire, _Lifeline(ready, lifeline))

        port = TcpPort(http.host, listening.getsockname()[1], tls)
        patience = server.core.grace + _MARGIN + http.drain_delay
        names = server.core.roster.names
        greeting = _greeting(server, http, port, count, console)
        crew = Crew(count, work, patience, greeting, names, server.parts.worker_changed)
        names.serve("worker", crew)
        server.parts.crew = crew.node
        try:
            crew.run()
        finally:
            server.parts.crew = None


async def _agreed(store: "SharedStore") -> list[bytes]:
    """Return the keys of a deployment, so that a worker that starts later does not ask the store."""
    try:
        return await store.agree()
    except StoreUnavailable as error:
        raise Unusable(f"the keys of the deployment could not be read: {error}") from None


def _greeting(
    server: "Server", http: Http, port: TcpPort, count: int, console: "Site | None"
) -> str:
    info = server.core.offer.info
    tls = "s" * port.speaks_tls
    line = described(http, lambda scheme, path: f"{scheme}{tls}://{port.place}{path}", console)
    return f"{info.name} {info.version}, in {count} workers, {line}"


@contextmanager
def socket_folder() -> Iterator[Path]:
    """Make a folder for the sockets of the workers; remove folders that killed parents left behind."""
    parent = Path(tempfile.gettempdir())
    _remove_stale_folders(parent)
    with tempfile.TemporaryDirectory(prefix=_PREFIX, dir=parent) as made:
        folder = Path(made)
        fresh = folder / "lock.new"
        # Locked before it has its name: a lock file that is not locked means that no process is left.
        with fresh.open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            fresh.rename(folder / _LOCK)
            yield folder


def _remove_stale_folders(parent: Path) -> None:
    for folder in parent.glob(f"{_PREFIX}*"):
        try:
            found = folder.lstat()
            if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid():
                _remove_if_stale(folder)
        except OSError as error:
            logger.debug("%s was left alone: %s", folder, error)


def _remove_if_stale(folder: Path) -> None:
    """Remove a folder whose lock no process holds. One without a lock file may not be ours."""
    descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder)
    finally:
        os.close(descriptor)


class _Lifeline(Struct):
    """Reports to the parent that everything is up, and ends the worker when the parent is gone."""

    ready: int
    lifeline: int

    name: ClassVar[str] = "parent of the workers"
    address: ClassVar[None] = None
    drain_delay: ClassVar[float] = 0.0

    def nodes(self) -> tuple[Node, ...]:
        return ()

    def listener(self, server: "Server") -> "_Lifeline":
        return self

    def describe(self) -> None:
        return None

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


class _WorkerPlace(Struct):
    """One place in the crew, and the process that currently has it."""

    number: int
    pid: int = 0
    ready: int = -1  # the descriptor on which it reports that it is up
    began: float = 0.0
    retries: Retries = field(default_factory=lambda: Retries(_PAUSES))  # counts early deaths
    restarts: int = 0
    was_up: bool = False  # whether any process in this place has come up
    due: float | None = None  # when it is to be started again, while there is no process
    last_error: str | None = None  # how the last process ended
    over: bool = False  # whether it ended with the server

    def node(self) -> Node:
        """Return its part of the tree."""
        return Node(
            name=f"worker {self.number}",
            state="running" if self.pid else "ended" if self.over else "waiting",
            restarts=self.restarts,
            last_error=self.last_error,
            uptime=clock.monotonic() - self.began if self.pid else 0.0,
        )


class Crew:
    """The parent's side: keeps a number of workers running."""

    def __init__(
        self,
        count: int,
        work: Callable[[int, int, int], None],
        patience: float,
        greeting: str = "workers are started",
        names: Names | None = None,
        changed: Callable[[Node], None] | None = None,
    ) -> None:
        """Prepare the crew; `run` starts it.

        Args:
            count: How many workers.
            work: Run in each worker, with its number, the descriptor to report on, and the lifeline.
            patience: Seconds the workers have to stop before they are killed.
            greeting: Logged when they are started.
            names: Told when a worker begins and ends.
            changed: Called with the node of a worker that began or ended.
        """
        self._workers = [_WorkerPlace(number) for number in range(count)]
        self._work = work
        self._patience = patience
        self._greeting = greeting
        self._names = Names() if names is None else names
        self._changed = changed
        self._lifeline = os.pipe()
        self._mask: set[signal.Signals] = set()

    # As members of a kind, for `Names`

    def get(self, number: int) -> _WorkerPlace | None:
        """Return a worker that runs."""
        found = self._workers[number] if 0 <= number < len(self._workers) else None
        return found if found is not None and found.pid else None

    def values(self) -> list[_WorkerPlace]:
        """Return the workers that run."""
        return [each for each in self._workers if each.pid]

    def __len__(self) -> int:
        return len(self.values())

    def restarts(self, number: int) -> int:
        """Return how often a worker was replaced."""
        return self._workers[number].restarts

    def node(self) -> Node:
        """Return the workers' part of the tree."""
        workers = tuple(each.node() for each in self._workers)
        return Node(name="workers", state="running", children=workers)

    # Running

    def run(self) -> None:
        """Start the workers and watch them until a signal comes.

        Raises:
            Unusable: A worker died before it was up for the first time.
        """
        # Blocked, so that no signal is missed between looking and waiting.
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)  # type: ignore[assignment]
        try:
            for worker in self._workers:
                self._start(worker)
            logger.info(self._greeting)
            self._watch()
        finally:
            systemd.notify("STOPPING=1")
            self._end()
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
            for descriptor in self._lifeline:
                os.close(descriptor)

    def _start(self, worker: _WorkerPlace) -> None:
        worker.due = None
        worker.ready, ready = os.pipe()
        os.set_blocking(worker.ready, False)
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            self._be(worker, ready)
        os.close(ready)
        worker.pid, worker.began = pid, clock.monotonic()
        self._tell(worker, worker)

    def _be(self, worker: _WorkerPlace, ready: int) -> None:
        """Run as the forked worker. Never returns."""
        code = 1
        try:
            os.close(self._lifeline[1])
            os.setpgid(0, 0)  # signals from a terminal go to the parent, which passes them on
            signal.signal(_PASSED_ON, signal.SIG_IGN)  # until the worker can answer it
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
            self._work(worker.number, ready, self._lifeline[0])
            code = 0
        except SystemExit as end:
            print(end.code, file=sys.stderr)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def _watch(self) -> None:
        beat = systemd.SystemdWatchdog().interval
        all_up = False
        while True:
            if not all_up and all(self._is_up(worker) for worker in self._workers):
                all_up = True
                systemd.notify("READY=1")
            dues = [worker.due for worker in self._workers if worker.due is not None]
            wait = max(0.0, min(dues) - clock.monotonic()) if dues else 3600.0
            if not all_up:
                wait = min(wait, _STARTING)
            if beat:
                systemd.notify("WATCHDOG=1")
                wait = min(wait, beat)
            got = signal.sigtimedwait(_SIGNALS, wait)
            if got is not None and got.si_signo == _PASSED_ON:
                self._signal(_PASSED_ON)
            elif got is not None and got.si_signo != signal.SIGCHLD:
                return
            for worker in self._workers:
                self._look_after(worker)

    def _look_after(self, worker: _WorkerPlace) -> None:
        if worker.due is not None:
            if worker.due <= clock.monotonic():
                self._start(worker)
            return
        status = _reaped(worker)
        if status is None:
            return
        pid, worker.pid = worker.pid, 0  # the number may be another process's from now on
        worker.last_error = f"process {pid} {_how(status)}"
        self._tell(worker, None)
        is_up = self._is_up(worker)
        os.close(worker.ready)
        if not is_up:
            raise Unusable(f"a worker {_how(status)} before it was up; its output is above")
        lived = clock.monotonic() - worker.began
        worker.retries.worked_for(lived)
        pause = worker.retries.next_delay() if lived <= _YOUNG else 0.0
        worker.due = clock.monotonic() + pause
        worker.restarts += 1
        logger.error(
            "worker %d (process %d) %s; it will be replaced in %g s",
            *(worker.number, pid, _how(status), pause),
        )
        if not pause:
            self._start(worker)

    @staticmethod
    def _is_up(worker: _WorkerPlace) -> bool:
        """Whether a process in this place has come up."""
        if not worker.was_up:
            with suppress(BlockingIOError):
                worker.was_up = os.read(worker.ready, 1) == b"1"
        return worker.was_up

    def _end(self) -> None:
        """Ask every worker to stop; kill those still running after the grace period."""
        self._signal(signal.SIGTERM)
        until = clock.monotonic() + self._patience
        while alive := [worker for worker in self._workers if worker.pid]:
            for worker in alive:
                if _reaped(worker) is not None:
                    worker.pid, worker.over = 0, True
                    self._tell(worker, None)
            left = until - clock.monotonic()
            got = signal.sigtimedwait(_SIGNALS, max(0.0, min(left, 0.1)))
            if left <= 0 or (got is not None and got.si_signo in (signal.SIGTERM, signal.SIGINT)):
                self._signal(signal.SIGKILL)

    def _tell(self, worker: _WorkerPlace, owner: _WorkerPlace | None) -> None:
        """Tell followers of names, and of the tree, that a worker began or ended."""
        self._names.changed("worker", worker.number, owner)
        if self._changed is not None:
            self._changed(worker.node())

    def _signal(self, number: int) -> None:
        for worker in self._workers:
            if worker.pid:
                os.kill(worker.pid, number)


def _reaped(worker: _WorkerPlace) -> int | None:
    pid, status = os.waitpid(worker.pid, os.WNOHANG)
    return status if pid else None


def _how(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
