"""systemd's interface to services: inherited listening sockets, readiness, the watchdog."""

import asyncio
import os
import socket

_FIRST = 3  # the descriptor of the first socket (sd_listen_fds(3))


class _Inherited:
    """Listening sockets that this process was started with; each is handed out once."""

    def __init__(self) -> None:
        self._sockets: list[socket.socket] | None = None

    def adopt(self, sockets: list[socket.socket]) -> None:
        """Add listening sockets that another process opened and passed on."""
        self._sockets = [*(_listed() if self._sockets is None else self._sockets), *sockets]

    def take(self, *, port: int = 0, path: str | None = None) -> socket.socket | None:
        """Return an inherited socket: the Unix one at `path`, or a TCP one, if possible of `port`."""
        if self._sockets is None:
            self._sockets = _listed()
        if path is not None:
            fitting = [each for each in self._sockets if each.getsockname() == path]
        else:
            fitting = [each for each in self._sockets if each.family != socket.AF_UNIX]
            fitting.sort(key=lambda each: each.getsockname()[1] != port)
        for found in fitting:
            self._sockets.remove(found)
            return found
        return None


def _listed() -> list[socket.socket]:
    if os.environ.get("LISTEN_PID") != str(os.getpid()):
        return []
    count = os.environ.get("LISTEN_FDS", "")
    for name in ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"):
        os.environ.pop(name, None)  # child processes must not take the sockets for theirs
    found = []
    for number in range(_FIRST, _FIRST + (int(count) if count.isdigit() else 0)):
        os.set_inheritable(number, False)
        found.append(socket.socket(fileno=number))
    return found


inherited = _Inherited()


def notify(state: str) -> None:
    """Send systemd a state, such as `READY=1`; without systemd, do nothing."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):
        address = f"\0{address[1:]}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        try:
            channel.sendto(state.encode(), address)
        except OSError:
            pass  # systemd does not listen now, and the service must run on


class SystemdWatchdog:
    """Tells systemd that the event loop runs, twice in each watchdog period (`WatchdogSec=`)."""

    def __init__(self) -> None:
        given = os.environ.get("WATCHDOG_USEC", "")
        mine = os.environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        self.interval = int(given) / 2_000_000 if given.isdigit() and mine else 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to notify systemd, if the watchdog is on."""
        if self.interval:
            notify("WATCHDOG=1")
            self._timer = asyncio.get_running_loop().call_later(self.interval, self.start)

    def stop(self) -> None:
        """Stop notifying systemd."""
        if self._timer is not None:
            self._timer.cancel()
