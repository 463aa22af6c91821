"""Finds out how to reach the server that an object, a file, a command or an address names."""

import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from itertools import count
from pathlib import Path
from ssl import SSLContext
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from urllib.parse import unquote, urlsplit
from weakref import WeakKeyDictionary

from mcpearl.client.entries import ConfigError, ServerEntry, only_entry, surroundings
from mcpearl.net.tls import Tls
from mcpearl.protocol.limits import Limits
from mcpearl.runtime import doors
from mcpearl.runtime.liveness import Keepalive
from mcpearl.transports.transport import Transport

if TYPE_CHECKING:
    from mcpearl.transports.http_client.authorizer import Authorizer

_RUNNERS = {".py": sys.executable, ".js": "node", ".mjs": "node"}
_TAKING_TOKENS = ("http", "https", "ws", "wss")
# Options that a client of several servers cannot have.
_OF_ONE_SERVER = (
    "env",
    "inherit_env",
    "cwd",
    "on_stderr",
    "headers",
    "tls",
    "proxy",
    "http2",
    "auth",
)


class InProcessServer(Protocol):
    """A server object of this process: `mcpearl.Server`."""

    @property
    def name(self) -> str:
        """The server's name."""
        ...

    def running(self) -> AbstractAsyncContextManager[Any]:
        """Keep the server running inside the block."""
        ...

    async def connect(self, transport: Transport) -> Any:
        """Serve one client on a transport."""
        ...


# Caches can be shared by the clients of a process, and tell servers apart by identity. An object's
# `id` is reused once the object is gone, so servers are numbered, for the whole process.
_numbers = count(1)
_numbered: "WeakKeyDictionary[InProcessServer, int]" = WeakKeyDictionary()


class ReachOptions(NamedTuple):
    """How a server is reached: as a process (see `ProcessTransport`), or by address."""

    env: Mapping[str, str] | None = None
    inherit_env: bool = False
    cwd: str | Path | None = None
    on_stderr: Callable[[str], None] | None = None
    headers: Mapping[str, str] | None = None
    """Headers of every HTTP request, and of the handshake of a WebSocket."""
    tls: Tls | SSLContext | None = None
    """Certificates to trust and to present; by default the system's roots, and no certificate."""
    framing: str = "newline"
    """How messages are separated on a byte stream: `newline` or `content-length`."""
    proxy: str | None = None
    """The `http://` address of a proxy to HTTP servers and their authorization servers; None for
    the one that environment variables name."""
    http2: bool | None = None
    """Whether to speak HTTP/2: False for never, True for always, None to let the server choose."""
    keepalive: Keepalive | None = None
    """When a silent server is pinged, for transports that have pings of their own."""
    auth: Any = None
    """What authorizes requests; see `mcpearl.auth`."""


class Target(NamedTuple):
    """How to reach a server."""

    name: str
    """For messages and logs."""
    identity: str
    """For caches: the same for two targets only when they are the same server."""
    restartable: bool = False
    """Whether the client reconnects by default, and what it learned about the server stays true."""
    transport: Callable[[Limits], Transport] | None = None
    server: InProcessServer | None = None
    reopens: bool = True
    """Whether another connection is possible after one is lost."""
    tap: Callable[[Transport], Transport] | None = None
    """Wraps each transport, to see what passes."""
    configured: ServerEntry | None = None
    """The entry of a configuration that names the server, if there is one."""


class Tapped(NamedTuple):
    """A target of a client, with a function that wraps its transports."""

    target: Any
    tap: Callable[[Transport], Transport]


class Reached(Protocol):
    """Something that reaches a server already: a `Client`, such as `host["weather"]`."""

    @property
    def entry(self) -> ServerEntry:
        """How the server is reached."""
        ...


class JoinServers(Protocol):
    """Makes one server of all servers of a configuration; behind the door `client.servers`."""

    def __call__(self, configuration: Mapping[str, Any]) -> InProcessServer:
        """Return the server. Raises `ValueError` if none of the servers can be used."""
        ...


Reachable = (
    InProcessServer
    | Transport
    | str
    | Path
    | Sequence[str]
    | Mapping[str, Any]
    | ServerEntry
    | Target
    | Tapped
    | Reached
)
"""What a client accepts as its target."""


def find_target(target: Any, options: ReachOptions) -> Target:
    """Find out how to reach a server; the error lists what a target can be."""
    if isinstance(target, Tapped):
        return _tapped(find_target(target.target, options), target.tap)
    if isinstance(target, Mapping):
        entry = only_entry(target, surroundings())
        if entry is None:
            return _joint(target, options)
        target = entry
    if isinstance(getattr(target, "entry", None), ServerEntry):
        target = target.entry
    if isinstance(target, ServerEntry):
        return _configured(target, options)
    if options.auth is not None:
        _check_auth(target)
    if isinstance(target, Target):
        if options.headers:
            raise ValueError("`headers` cannot be added to a server that another client reaches")
        return target
    if hasattr(target, "handler") and hasattr(target, "connect"):
        number = _numbered.get(target) or _numbered.setdefault(target, next(_numbers))
        return Target(f"memory:{target.name}", f"memory:{number}", server=target)
    if hasattr(target, "open") and hasattr(target, "send"):
        name = f"transport:{type(target).__name__}"
        identity = f"transport:{next(_numbers)}"
        return Target(name, identity, transport=lambda _: target, reopens=False)
    if isinstance(target, (str, Path)):
        return _named(str(target), options)
    if isinstance(target, Sequence) and target and all(isinstance(p, str) for p in target):
        return _command(list(target), options)
    raise TypeError(
        f"cannot connect to {target!r}; pass a Server, a URL, the path of a .py or .js file, "
        "a command as a list, a host's entry, or a transport"
    )


def entry_of(found: Target) -> ServerEntry:
    """Return a target as an entry, for others that connect to the same server.

    Raises:
        ValueError: It is a transport, which can be opened only once.
    """
    if not found.reopens:
        raise ValueError(f"{found.name} is in use by its client, and can be opened only once")
    given = found.configured
    return ServerEntry(
        name=found.name if given is None else given.name,
        target=found,
        extra={} if given is None else given.extra,
        hidden=frozenset() if given is None else given.hidden,
    )


def _tapped(found: Target, tap: Callable[[Transport], Transport]) -> Target:
    inner = found.tap
    return found._replace(tap=tap if inner is None else lambda transport: tap(inner(transport)))


def _check_auth(target: Any) -> None:
    """Refuse `auth` where no token can be sent, and say what to use instead."""
    scheme = target.partition("://")[0] if isinstance(target, str) and "://" in target else ""
    if scheme in _TAKING_TOKENS or (scheme and scheme not in _SCHEMES):
        return  # an unknown scheme is refused later
    match scheme:
        case "tcp" | "tls":
            instead = (
                "TCP carries no tokens; show a certificate with "
                "`tls=Tls(certificate=…, key=…)` at a tls:// address, or use http(s):// or ws(s)://"
            )
        case "unix":
            instead = "a Unix socket is protected by its file mode; leave `auth` out"
        case _:
            instead = (
                "a server that this program starts or holds needs no login; pass a process its "
                "credentials with `env={…}`, or connect to the server's address"
            )
    raise ValueError(f"`auth` is for servers at http(s):// and ws(s):// addresses: {instead}")


def _authorizer(url: str, options: ReachOptions) -> "Authorizer | None":
    """Return the authorizer of requests to an http:// or https:// address, if there is one."""
    if options.auth is None:
        return None
    from mcpearl.auth.client.choose import authorizer_for

    return authorizer_for(options.auth, url, options.tls, options.proxy)


def _http(url: str, options: ReachOptions) -> Target:
    authorizer = _authorizer(url, options)

    def start(limits: Limits) -> Transport:
        from mcpearl.transports.http_client.transport import HttpTransport

        return HttpTransport(
            url,
            limits,
            headers=options.headers,
            tls=options.tls,
            proxy=options.proxy,
            http2=options.http2,
            authorizer=authorizer,
        )

    return Target(url, url, restartable=True, transport=start)


def _tcp(url: str, options: ReachOptions) -> Target:
    host, port = _place(url)

    def start(limits: Limits) -> Transport:
        from mcpearl.net.addresses import TcpAddress
        from mcpearl.net.tls import client_context
        from mcpearl.transports.socket import SocketClient

        context = client_context(options.tls) if url.startswith("tls:") else None
        return SocketClient(TcpAddress(host, port, context), limits, options.framing)

    return Target(url, url, restartable=True, transport=start)


def _place(url: str) -> tuple[str, int]:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host or port is None:
        raise ValueError(
            f"cannot connect to {url!r}: it needs a host and a port, "
            f"such as {url.partition(':')[0]}://127.0.0.1:9000"
        )
    return host, port


def _unix(url: str, options: ReachOptions) -> Target:
    path = unquote(url.removeprefix("unix://"))
    if not path.startswith("/"):
        raise ValueError(
            f"cannot connect to {url!r}: it needs a whole path, such as unix:///run/weather.sock"
        )

    def start(limits: Limits) -> Transport:
        from mcpearl.net.addresses import UnixAddress
        from mcpearl.transports.socket import SocketClient

        return SocketClient(UnixAddress(path), limits, options.framing)

    return Target(url, url, restartable=True, transport=start)


def _websocket(url: str, options: ReachOptions) -> Target:
    try:
        host = urlsplit(url).hostname
    except ValueError:
        host = None
    if not host or "#" in url:
        raise ValueError(f"cannot connect to {url!r}: it is not the address of a WebSocket")
    # The handshake is an HTTP request and authorized like one: a login works for both.
    authorizer = _authorizer(url.replace("ws", "http", 1), options)

    def start(limits: Limits) -> Transport:
        from mcpearl.transports.websocket.client import WebSocketClient
        from mcpearl.transports.websocket.frames import Beat

        times = options.keepalive
        beat = Beat(None) if times is None else Beat(times.interval, times.patience)
        return WebSocketClient(
            url,
            limits,
            headers=options.headers,
            tls=options.tls,
            beat=beat,
            authorizer=authorizer,
        )

    return Target(url, url, restartable=True, transport=start)


_SCHEMES = {
    "http": _http,
    "https": _http,
    "tcp": _tcp,
    "tls": _tcp,
    "unix": _unix,
    "ws": _websocket,
    "wss": _websocket,
}


def _named(target: str, options: ReachOptions) -> Target:
    scheme, named, _ = target.partition("://")
    if named:
        if scheme not in _SCHEMES:
            known = ", ".join(f"{each}://" for each in _SCHEMES)
            raise ValueError(f"cannot connect to {target!r}: addresses begin with {known}")
        return _SCHEMES[scheme](target, options)
    runner = _RUNNERS.get(Path(target).suffix)
    if not _is_file(target) and len(words := _words(target)) > 1:
        raise ValueError(f"cannot connect to {target!r}: pass a command as a list: {words!r}")
    if Path(target).suffix == ".json":
        raise ValueError(
            f"cannot connect to {target!r}: a configuration names any number of servers; "
            f"use `Host({target!r})`"
        )
    if runner is None:
        raise ValueError(
            f"cannot connect to {target!r}: a file must end in .py, .js or .mjs; "
            "pass a command as a list, such as ['uvx', 'server']"
        )
    if not _is_file(target):
        raise FileNotFoundError(
            f"cannot connect to {target!r}: there is no such file in {Path.cwd()}"
        )
    return _command([runner, str(Path(target).absolute())], options)


def _is_file(name: str) -> bool:
    try:
        return Path(name).is_file()
    except (OSError, ValueError):  # a name that no file can have
        return False


def _words(command: str) -> list[str]:
    """Split what may be a command line as a shell would."""
    try:
        return shlex.split(command)
    except ValueError:
        return [command]


def _configured(entry: ServerEntry, options: ReachOptions) -> Target:
    """Find out how to reach the server of a host's entry; options of the client override the entry."""
    if entry.disabled:
        raise ConfigError(f"a server's configuration (`{entry.name}`) is disabled in it")
    try:
        found = find_target(*_parts(entry, options))
    except (ValueError, TypeError) as error:
        if not entry.hidden:
            raise
        raise ConfigError(entry.hide(str(error))) from None
    return found._replace(name=entry.hide(found.name), configured=entry)


def _joint(configuration: Mapping[str, Any], options: ReachOptions) -> Target:
    """Reach all servers of a configuration as one, with names such as `weather__forecast`."""
    for name in _OF_ONE_SERVER:
        if getattr(options, name) != ReachOptions._field_defaults[name]:
            raise ValueError(
                f"`{name}` is for one server, and this configuration has several; set it in their "
                "entries, or use `Host(config)`, which connects to each of them"
            )
    join: JoinServers = doors.behind("client.servers")
    return find_target(join(configuration), options)


def _parts(entry: ServerEntry, options: ReachOptions) -> tuple[Any, ReachOptions]:
    """Return the target of an entry, and the options to reach it with."""
    if entry.command is not None:
        env = {**entry.env, **(options.env or {})}
        return entry.command, options._replace(env=env, cwd=options.cwd or entry.cwd)
    if entry.url is not None:
        return entry.url, options._replace(headers={**entry.headers, **(options.headers or {})})
    return entry.target, options


def _command(command: list[str], options: ReachOptions) -> Target:
    texts: list[Any] = [*command, *(options.env or {}), *(options.env or {}).values()]
    for text in texts:
        if not isinstance(text, str) or "\0" in text:
            raise TypeError(
                f"cannot start {command!r}: commands, arguments and environment are text, "
                f"not {text!r}"
            )
    if not command[0]:
        raise ValueError(f"cannot start {command!r}: the name of the command is empty")

    def start(limits: Limits) -> Transport:
        from mcpearl.transports.process import ProcessTransport

        return ProcessTransport(
            command,
            limits,
            env=options.env,
            inherit_env=options.inherit_env,
            cwd=options.cwd,
            on_stderr=options.on_stderr,
        )

    from mcpearl.transports.process import command_name

    identity = repr((command, str(options.cwd or ""), sorted((options.env or {}).items())))
    return Target(command_name(command), identity, restartable=True, transport=start)
