"""The wires of `run` and `dev`: their options on the command line, and the records they become."""

import os
from collections.abc import Callable
from typing import Any, NamedTuple

import click

from mcpearl.cli.exits import CommandFailed, Exit
from mcpearl.cli.target import read_env_file

CONSOLE_KEY = "_MCPEARL_CONSOLE_KEY"
"""The variable with which a reloading process sets one key for the consoles of all its children."""
_NETWORK = ("http", "tcp", "ws")


class Chosen(NamedTuple):
    """The wires that a command line asks for."""

    names: tuple[str, ...]
    options: dict[str, Any]
    unix: str | None

    def arguments(self) -> list[str]:
        """Return the command line that asks for the same."""
        found = [f"--{name}" for name in self.names if name != "unix"]
        found += ["--unix", self.unix] if self.unix is not None else []
        for name, value in self.options.items():
            flag = f"--{name.replace('_', '-')}"
            if value is True:
                found.append(flag)
            elif isinstance(value, list):
                found += [word for each in value for word in (_SINGULAR[name], str(each))]
            else:
                found += [flag, str(value)]
        return found


_SINGULAR = {"allowed_hosts": "--allowed-host", "allowed_origins": "--allowed-origin"}

_OPTIONS = (
    click.option("--stdio", is_flag=True, help="On standard input and output, the default."),
    click.option("--http", is_flag=True, help="Streamable HTTP, at http://127.0.0.1:8000/mcp."),
    click.option("--tcp", is_flag=True, help="A TCP port, 9000."),
    click.option("--unix", metavar="PATH", help="A Unix socket."),
    click.option("--ws", is_flag=True, help="WebSocket, at ws://127.0.0.1:9001/."),
    click.option("--host", help="The address to listen on."),
    click.option("--port", type=click.IntRange(0, 65535), help="The port; 0 for any free one."),
    click.option("--path", help="The path of the endpoint. [/mcp]"),
    click.option("--workers", type=click.IntRange(1), help="Processes that share an HTTP port."),
    click.option("--certificate", type=click.Path(exists=True), help="With one, it speaks TLS."),
    click.option("--key", type=click.Path(exists=True), help="The certificate's private key."),
    click.option(
        "--allowed-host", "allowed_hosts", multiple=True, help="A host requests may name."
    ),
    click.option("--allowed-origin", "allowed_origins", multiple=True, help="An origin of pages."),
    click.option("--websocket", metavar="PATH", help="A WebSocket beside the HTTP endpoint."),
    click.option("--stateless", is_flag=True, help="HTTP without sessions."),
    click.option("--health", metavar="PATH", help="Where HTTP answers whether the server is up."),
    click.option("--access-log", is_flag=True, help="Log every HTTP request."),
    click.option(
        "--console", is_flag=True, help="A page that shows the server at work, over HTTP."
    ),
    click.option("--env-file", type=click.Path(exists=True), help="Variables to set before."),
)


def wire_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of serving to a command, which gets them as `chosen`; read the environment file."""

    def call(
        out: Any, stdio: bool, http: bool, tcp: bool, ws: bool, env_file: str | None, **given: Any
    ) -> Any:
        if env_file:
            for name, value in read_env_file(env_file).items():
                os.environ.setdefault(name, value)
        flags = {"stdio": stdio, "http": http, "tcp": tcp, "ws": ws}
        names = [name for name, on in flags.items() if on]
        unix = given.pop("unix")
        names += ["unix"] if unix is not None else []
        options = {name: given.pop(name) for name in _SETTINGS}
        kept = {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in options.items()
            if value is not None and value is not False and value != ()  # port 0 is a value
        }
        if not names and kept:
            names = ["http"]
        return function(out, chosen=Chosen(tuple(names), kept, unix), **given)

    call.__doc__ = function.__doc__
    call.__module__ = function.__module__
    call.__click_params__ = getattr(function, "__click_params__", [])  # type: ignore[attr-defined]
    for option in reversed(_OPTIONS):
        call = option(call)
    return call


_SETTINGS = (
    *("host", "port", "path", "workers", "certificate", "key"),
    *(
        "allowed_hosts",
        "allowed_origins",
        "websocket",
        "stateless",
        "health",
        "access_log",
        "console",
    ),
)


def choose(chosen: Chosen) -> list[Any]:
    """Return the wires to serve on."""
    from mcpearl.server.serving.choose import chosen as named
    from mcpearl.server.serving.choose import kind_of
    from mcpearl.server.serving.wires import ConsoleOptions

    if not chosen.names:
        return list(named((), {}))
    network = [name for name in chosen.names if name in _NETWORK]
    if "port" in chosen.options and len(network) > 1:
        said = " and ".join(f"--{name}" for name in network)
        raise CommandFailed(f"--port is for one wire, and there are {said}", Exit.USAGE)
    left = dict(chosen.options)
    wires = []
    for name in chosen.names:
        fields = kind_of(name).__struct_fields__
        own = {key: value for key, value in chosen.options.items() if key in fields}
        if name == "unix":
            own = {"path": chosen.unix}
        if "console" in own and (key := os.environ.get(CONSOLE_KEY)):
            own["console"] = ConsoleOptions(key=key)
        for key in own:
            left.pop(key, None)
        wires += named((name,), own)
    if left:
        flags = ", ".join(f"--{key.replace('_', '-')}" for key in left)
        raise CommandFailed(
            f"{flags} is not an option of --{' or --'.join(chosen.names)}", Exit.USAGE
        )
    return wires
