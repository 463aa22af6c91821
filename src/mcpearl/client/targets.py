"""From whatever names a server to a way of reaching it: an object, a file, a command, an address."""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from mcpearl.protocol.limits import Limits
from mcpearl.transports.transport import Transport

if TYPE_CHECKING:
    from mcpearl.server.server import Server

Target = "Server | Transport | str | Path | Sequence[str] | Mapping[str, Any]"
_RUNNERS = {".py": sys.executable, ".js": "node", ".mjs": "node"}
_LATER = ("http://", "https://", "tcp://", "tls://", "unix://", "ws://", "wss://")


class ProcessOptions(NamedTuple):
    """How a server process is started; see `ProcessTransport`."""

    env: Mapping[str, str] | None = None
    inherit_env: bool = False
    cwd: str | Path | None = None
    on_stderr: Callable[[str], None] | None = None


class Route(NamedTuple):
    """How to reach a server: a name for people and caches, and its transport or itself."""

    name: str
    transport: Callable[[Limits], Transport] | None = None
    server: "Server | None" = None


def find_route(target: Any, options: ProcessOptions) -> Route:
    """Find out what a target is; the error lists what it can be."""
    if hasattr(target, "handler") and hasattr(target, "connect"):
        return Route(f"memory:{target.name}", server=target)
    if hasattr(target, "open") and hasattr(target, "send"):
        return Route(f"transport:{type(target).__name__}", transport=lambda _: target)
    if isinstance(target, Mapping):
        return _configured(target, options)
    if isinstance(target, (str, Path)):
        return _named(str(target), options)
    if isinstance(target, Sequence) and target and all(isinstance(p, str) for p in target):
        return _command(list(target), options)
    raise TypeError(
        f"cannot connect to {target!r}; give a Server, the path of a .py or .js file, "
        "a command as a list, or a transport"
    )


def _named(target: str, options: ProcessOptions) -> Route:
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
    return _command([runner, target], options)


def _configured(target: Mapping[str, Any], options: ProcessOptions) -> Route:
    """Read the form hosts keep in their configuration: command, args, env, cwd."""
    if "command" not in target:
        raise ValueError(f"a server's configuration needs `command`; this one has {list(target)}")
    env = {**target.get("env", {}), **(options.env or {})}
    merged = options._replace(env=env, cwd=options.cwd or target.get("cwd"))
    return _command([target["command"], *target.get("args", ())], merged)


def _command(command: list[str], options: ProcessOptions) -> Route:
    def start(limits: Limits) -> Transport:
        from mcpearl.transports.process import ProcessTransport

        return ProcessTransport(command, limits, **options._asdict())

    return Route(" ".join(command), transport=start)
