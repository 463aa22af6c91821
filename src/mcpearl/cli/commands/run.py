"""Serve a file, a server elsewhere, or all of a configuration, on any wire."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mcpearl.cli.command import make_command
from mcpearl.cli.exits import NoServer
from mcpearl.cli.output import CommandOutput
from mcpearl.cli.wires import Chosen, choose, wire_options

if TYPE_CHECKING:
    from mcpearl.server.server import Server


@make_command()
@click.argument("file", metavar="FILE[:APP]|TARGET", type=click.Path())
@wire_options
@click.option("--reload", is_flag=True, help="Load it again when a file changes; clients stay.")
@click.option("--reload-dir", type=click.Path(exists=True), help="Where to look for changes.")
@click.option("--short-logs", is_flag=True, help="Logs for people: short, and in colour.")
@click.option("--held-by", hidden=True)  # descriptors of the process that reloads
def command(
    out: CommandOutput,
    file: str,
    chosen: Chosen,
    reload: bool,
    reload_dir: str | None,
    short_logs: bool,
    held_by: str | None,
) -> None:
    """Serve a file on stdio, or on other wires.

    FILE is a Python file with an mcpearl `Server` in it, which is found by itself; FILE:APP names the
    server, or a function that makes it. A module (package.module:app) will do as well. Any other TARGET
    is passed on: a server at a URL, one that a command starts, or all servers of an mcp.json as one.
    """
    if reload:
        reload_and_serve(out, file, chosen, reload_dir, short_logs=short_logs)
        return
    if short_logs:
        from mcpearl.cli.logs import show_logs

        show_logs(reloads=held_by is not None)
    wires = choose(chosen)
    on_stdio = any(type(wire).__name__ == "Stdio" for wire in wires)
    sys.argv = [file]  # what a file reads there is not this command's
    try:
        server = _load(file, aside=on_stdio)
    except NoServer:
        # A file of another SDK is run as Python would, if it serves itself on stdio.
        if not on_stdio or len(wires) > 1 or held_by is not None or not _serves_itself(file):
            raise
        os.execv(sys.executable, [sys.executable, file])
    if held_by is not None:
        from mcpearl.cli.reloading.child import wait_to_serve

        wait_to_serve(held_by)
    if on_stdio and sys.stdin.isatty():
        out.note(
            f"{server.name}: on stdio a client starts the server itself. To reach it from elsewhere: "
            f"`mcpearl run {file} --http`; to put it into a host: `mcpearl install {file}`"
        )
    server.run(*wires)


@contextmanager
def _prints_aside() -> Iterator[None]:
    """Send what is printed while a file is loaded to stderr: stdout is the client's."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


def reload_and_serve(
    out: CommandOutput,
    file: str,
    chosen: Chosen,
    folder: str | None,
    *,
    short_logs: bool,
    open_console: bool = False,
) -> None:
    """Serve a file, and load it again whenever a file changes."""
    from mcpearl.cli.reloading.child import folder_of
    from mcpearl.cli.reloading.files import SourceFiles
    from mcpearl.cli.reloading.parent import Reloaded, run_reloading
    from mcpearl.cli.target import refuse_missing

    refuse_missing(file)
    files = SourceFiles(Path(folder) if folder else folder_of(file))
    more = ("--short-logs",) if short_logs else ()
    out.note(f"looking for changes in {files.folder}", dim=True)
    run_reloading(out, Reloaded(file, chosen, files, more, open_console))


def _load(file: str, *, aside: bool) -> "Server":
    from mcpearl.cli.loading import load_server
    from mcpearl.cli.target import passed_on

    if (gateway := passed_on(file)) is not None:
        return gateway
    with _prints_aside() if aside else nullcontext():
        return load_server(file)


def _serves_itself(file: str) -> bool:
    try:
        return "__main__" in Path(file).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return False
