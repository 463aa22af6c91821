"""From whatever names a server to a way of reaching it: an object, a file, a command, an address."""

import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

from mcpearl.protocol.limits import Limits
from mcpearl.transports.transport import Transport

if TYPE_CHECKING:
    from mcpearl.server.server import Server

_RUNNERS = {".py": sys.executable, ".js": "node", ".mjs": "node"}
_numbers = count(1)
_numbered: "WeakKeyDictionary[Server, int]" = WeakKeyDictionary()
_LATER = ("tcp://", "tls://", "unix://", "ws://", "wss://")


class ReachOptions(NamedTuple):
    """How a server is reached: as a process (see `ProcessTransport`), or what HTTP requests carry."""

    env: Mapping[str, str] | None = None
    inherit_env: bool = False
    cwd: str | Path | None = None
    on_stderr: Callable[[str], None] | None = None
    headers: Mapping[str, str] | None = None
    """Of every HTTP request, for a server reached by address."""


class Route(NamedTuple):
    """How to reach a server: a name for people, one for caches, and its transport or itself."""

    name: str
    identity: str
    """The same for two targets only when they are the same server."""
    restartable: bool = False
    """Whether each transport is a new process: what was learned of one holds for the next."""
    transport: Callable[[Limits], Transport] | None = None
    server: "Server | None" = None


def find_route(target: Any, options: ReachOptions) -> Route:
    """Find out what a target is; the error lists what it can be."""
    if hasattr(target, "handler") and hasattr(target, "connect"):
        number = _numbered.get(target) or _numbered.setdefault(target, next(_numbers))
        return Route(f"memory:{target.name}", f"memory:{number}", server=target)
    if hasattr(target, "open") and hasattr(target, "send"):
        name = f"transport:{type(target).__name__}"
        return Route(name, f"transport:{next(_numbers)}", transport=lambda _: target)
    if isinstance(target, Mapping):
        return _configured(target, options)
    if isinstance(target, (str, Path)):
        return _named(str(target), options)
    if isinstance(target, Sequence) and target and all(isinstance(p, str) for p in target):
        return _command(list(target), options)
    raise TypeError(
        f"cannot connect to {target!r}; give a Server, a URL, the path of a .py or .js file, "
        "a command as a list, or a transport"
    )


def _http(url: str, options: ReachOptions) -> Route:
    def start(limits: Limits) -> Transport:
        from mcpearl.transports.http_client import HttpTransport

        return HttpTransport(url, limits, headers=options.headers)

    return Route(url, url, restartable=True, transport=start)


def _named(target: str, options: ReachOptions) -> Route:
    if target.startswith(("http://", "https://")):
        return _http(target, options)
    if target.startswith(_LATER):
        scheme = target.partition(":")[0]
        raise ValueError(f"cannot connect to {target!r}: the wire `{scheme}` is not there yet")
    runner = _RUNNERS.get(Path(target).suffix)
    if runner is None:
        raise ValueError(
            f"cannot connect to {target!r}: a file must end in .py, .js or .mjs; "
            "give a command as a list, such as ['uvx', 'server']"
        )
    if not Path(target).is_file():
        raise FileNotFoundError(f"cannot connect to {target!r}: there is no such file")
    return _command([runner, str(Path(target).absolute())], options)


def _configured(target: Mapping[str, Any], options: ReachOptions) -> Route:
    """Read the form hosts keep in their configuration: command, args, env, cwd."""
    if "command" not in target:
        raise ValueError(f"a server's configuration needs `command`; this one has {list(target)}")
    env = {**(target.get("env") or {}), **(options.env or {})}
    merged = options._replace(env=env, cwd=options.cwd or target.get("cwd"))
    return _command([target["command"], *(target.get("args") or ())], merged)


def _command(command: list[str], options: ReachOptions) -> Route:
    texts: list[Any] = [*command, *(options.env or {}), *(options.env or {}).values()]
    for text in texts:
        if not isinstance(text, str) or "\0" in text:
            raise TypeError(
                f"cannot start {command!r}: commands, arguments and environment are text, "
                f"not {text!r}"
            )

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

    identity = repr((command, str(options.cwd or ""), sorted((options.env or {}).items())))
    return Route(" ".join(command), identity, restartable=True, transport=start)
