"""Serve a file on stdio, HTTP, TCP, a Unix socket or WebSocket."""

import sys
from typing import TYPE_CHECKING

import click

from mcpearl.cli.command import make_command
from mcpearl.cli.exits import Failure
from mcpearl.cli.output import Output
from mcpearl.cli.wires import Chosen, choose, wire_options

if TYPE_CHECKING:
    from mcpearl.server.server import Server


@make_command()
@click.argument("file", metavar="FILE[:APP]", type=click.Path())
@wire_options
def command(out: Output, file: str, chosen: Chosen) -> None:
    """Serve a file on stdio, or on other wires.

    FILE is a Python file with a mcpearl `Server` in it, which is found by itself; FILE:APP names the
    server, or a function that makes it. A module (package.module:app) will do as well.
    """
    server = _load(file, chosen)
    wires = choose(chosen)
    if all(type(wire).__name__ == "Stdio" for wire in wires) and sys.stdin.isatty():
        out.note(
            f"{server.name}: on stdio a client starts the server itself. To reach it from elsewhere: "
            f"`mcpearl run {file} --http`; to put it into a host: `mcpearl install {file}`"
        )
    server.run(*wires)


def _load(file: str, chosen: Chosen) -> "Server":
    from mcpearl.cli.loading import NoServer, load_server

    try:
        return load_server(file)
    except NoServer as error:
        _run_as_script(file, chosen, error)
        raise


def _run_as_script(file: str, chosen: Chosen, error: Failure) -> None:
    """Run a file without a server of ours as Python would, if it serves itself on stdio."""
    if chosen.names not in ((), ("stdio",)) or not _serves_itself(file):
        return
    import os

    os.execv(sys.executable, [sys.executable, file])


def _serves_itself(file: str) -> bool:
    from pathlib import Path

    try:
        return "__main__" in Path(file).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return False
