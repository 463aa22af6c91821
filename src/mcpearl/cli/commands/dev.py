"""Serve a file while it is written: reloaded when it changes, with the console in the browser."""

import click

from mcpearl.cli.command import make_command
from mcpearl.cli.commands.run import reload_and_serve
from mcpearl.cli.output import CommandOutput
from mcpearl.cli.wires import Chosen, wire_options


@make_command()
@click.argument("file", metavar="FILE[:APP]", type=click.Path())
@wire_options
@click.option("--reload-dir", type=click.Path(exists=True), help="Where to look for changes.")
@click.option("--no-open", is_flag=True, help="Do not open the console in the browser.")
def command(
    out: CommandOutput, file: str, chosen: Chosen, reload_dir: str | None, no_open: bool
) -> None:
    """Serve a file while it is written, by default over HTTP, with the console in the browser.

    When a file changes, the server is loaded again and clients stay connected; what cannot be loaded
    leaves the last version serving.
    """
    wires = chosen if chosen.names else chosen._replace(names=("http",))
    if "http" in wires.names:
        wires = wires._replace(options={**wires.options, "console": True})
    opened = not no_open and out.live
    reload_and_serve(out, file, wires, reload_dir, short_logs=True, open_console=opened)
