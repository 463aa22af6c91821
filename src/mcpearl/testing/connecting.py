"""A client that is connected to a server under test, in either era and on any wire."""

import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Literal, Unpack, get_args

from mcpearl.cli.exits import CommandFailed
from mcpearl.cli.loading import load_server
from mcpearl.client.client import Client
from mcpearl.client.options import ClientOptions
from mcpearl.client.targets import Reachable
from mcpearl.runtime.arguments import did_you_mean
from mcpearl.server.server import Server
from mcpearl.sync.client import SyncClient
from mcpearl.sync.portal import Portal
from mcpearl.testing.faults import Fault, faulty

WireName = Literal["memory", "stdio", "http", "tcp", "unix", "ws"]
WIRES: tuple[WireName, ...] = get_args(WireName)
"""The wires a test can use."""
Faults = Fault | list[Fault] | tuple[Fault, ...]
_ERAS = {"legacy": "2025-11-25", "modern": "2026-07-28"}
_SERVE = (
    "import sys; from mcpearl.cli.loading import load_server; load_server(sys.argv[1]).run('stdio')"
)


def connected(
    app: Server,
    wire: WireName = "memory",
    era: str = "auto",
    *,
    faults: Faults | None = None,
    **options: Unpack[ClientOptions],
) -> AbstractAsyncContextManager[Client]:
    """Serve an app on a wire while a context lasts, and yield a client that is connected to it.

    >>> async with connected(app, "http", "legacy") as client:
    ...     await client.call_tool("add", {"a": 1, "b": 2})

    Args:
        app: The server.
        wire: How messages travel: `memory`, `stdio` (in a process of its own), `http`, `tcp`, `unix` or
            `ws`.
        era: `legacy` (with sessions), `modern` (without), a version of the protocol, or `auto`.
        faults: What goes wrong between the client and the server; see `mcpearl.testing.faults`.
        **options: Options of `Client`.
    """
    return _connected(app, check_wire(wire), era, faults, options)


@asynccontextmanager
async def _connected(
    app: Server,
    wire: WireName,
    era: str,
    faults: Faults | None,
    options: ClientOptions,
) -> AsyncIterator[Client]:
    async with reachable(app, wire) as target:
        wanted = with_faults(target, faults)
        async with Client(wanted, **with_era(options, era)) as client:
            yield client


@contextmanager
def connected_sync(
    app: Server,
    wire: WireName = "memory",
    era: str = "auto",
    *,
    faults: Faults | None = None,
    **options: Unpack[ClientOptions],
) -> Iterator[SyncClient]:
    """Do what `connected` does, for tests that are not async.

    Args:
        app: The server.
        wire: How messages travel, as for `connected`.
        era: The era or the version of the protocol, as for `connected`.
        faults: What goes wrong between the client and the server.
        **options: Options of `Client`.
    """
    with served_sync(reachable(app, check_wire(wire))) as target:
        wanted = with_faults(target, faults)
        with SyncClient(wanted, **with_era(options, era)) as client:
            yield client


@contextmanager
def served_sync(serving: AbstractAsyncContextManager[Any]) -> Iterator[Any]:
    """Hold an asynchronous context on the event loop of a thread, and yield what it yields.

    Args:
        serving: The context.
    """
    portal = Portal()
    try:
        target = portal.run(_entered(serving))
    except BaseException:
        portal.finish(_nothing)
        raise
    try:
        yield target
    finally:
        portal.finish(lambda: _left(serving))


async def _entered(serving: AbstractAsyncContextManager[Any]) -> Any:
    return await serving.__aenter__()


async def _left(serving: AbstractAsyncContextManager[Any]) -> None:
    await serving.__aexit__(None, None, None)


async def _nothing() -> None:
    pass


def with_faults(target: Reachable, faults: Faults | None) -> Reachable:
    """Return a target with faults in front of it, if there are any.

    Args:
        target: What a client connects to.
        faults: One fault, several, or none.
    """
    if faults is None:
        return target
    return faulty(target, *(faults if isinstance(faults, list | tuple) else [faults]))


def with_era(options: ClientOptions, era: str) -> ClientOptions:
    """Return the options of a client that speaks an era.

    Args:
        options: The options.
        era: `legacy`, `modern`, `auto` or a version.
    """
    return options if era == "auto" else {**options, "protocol": _ERAS.get(era, era)}


def check_wire(wire: str) -> WireName:
    """Refuse a wire that does not exist.

    Args:
        wire: The name of a wire.
    """
    for known in WIRES:
        if known == wire:
            return known
    raise ValueError(
        f"there is no wire {wire!r}{did_you_mean(wire, WIRES)}; choose one of {', '.join(WIRES)}"
    )


@asynccontextmanager
async def reachable(app: Any, wire: WireName) -> AsyncIterator[Reachable]:
    """Serve an app on a wire while a context lasts, and yield what a client connects to.

    Args:
        app: The server. Anything else that `Client` takes is yielded as it is.
        wire: The wire.
    """
    if not isinstance(app, Server) or wire == "memory":
        if wire != "memory":
            raise ValueError(
                f"only a `Server` can be served on the wire {wire!r}; {app!r} is connected to as it is"
            )
        yield app
    elif wire == "stdio":
        yield [sys.executable, "-c", _SERVE, place_of(app)]
    elif wire == "unix":
        # Not in the directory of the test: the path of a socket is at most about a hundred bytes long.
        with tempfile.TemporaryDirectory(prefix="mcpearl-") as folder:
            async with app.serving("unix", path=Path(folder) / "app.sock") as url:
                yield url
    else:
        async with app.serving(wire, port=0) as url:
            yield url


def place_of(app: Server) -> str:
    """Return where a server can be loaded from in another process: `file.py:name`.

    Args:
        app: The server.
    """
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if file is None or not file.endswith(".py"):
            continue
        for name, value in list(vars(module).items()):
            if value is app and getattr(module, "__name__", "") != "__main__":
                return f"{file}:{name}"
    raise ValueError(
        f"the wire 'stdio' starts {app!r} in a process of its own, which has to find it: make it a "
        "global of a module, such as `app` in server.py"
    )


def load_app(place: str, root: Path) -> Server:
    """Return the server that `server.py:app` or `package.module:app` names.

    A file that was imported already is not loaded again, so tests share its state.

    Args:
        place: The file or module, and the name in it.
        root: The directory that a file is relative to.
    """
    file, colon, name = place.partition(":")
    if file.endswith(".py"):
        path = (root / file).resolve()
        for module in list(sys.modules.values()):
            if getattr(module, "__file__", None) == str(path) and colon and hasattr(module, name):
                found = getattr(module, name)
                if isinstance(found, Server):
                    return found
        place = f"{path}{colon}{name}"
    try:
        return load_server(place)
    except CommandFailed as failure:
        raise ValueError(f"the server under test, `{place}`: {failure}") from None
