"""Open a page in the browser that shows servers and tries what they offer."""

import asyncio
import signal
from typing import TYPE_CHECKING

import click

from mcpearl.cli.command import make_command
from mcpearl.cli.exits import CommandFailed, Exit
from mcpearl.cli.output import CommandOutput
from mcpearl.cli.target import complete_target, resolve

if TYPE_CHECKING:
    from mcpearl.console.console import Place
    from mcpearl.host.config import HostConfig


@make_command()
@click.argument(
    "targets", metavar="TARGET...", nargs=-1, required=True, shell_complete=complete_target
)
@click.option("--port", default=0, metavar="PORT", help="The port of the page. [any]")
@click.option("--no-open", is_flag=True, help="Say the address, and do not open the browser.")
async def command(out: CommandOutput, targets: tuple[str, ...], port: int, no_open: bool) -> None:
    """Open a page in the browser that tries what servers offer.

    TARGET is as for other commands; of a whole mcp.json, the page has all servers. It runs until
    Ctrl-C. For what happens inside a server, serve it with `console=True`.
    """
    from mcpearl.console.standalone import serving_console

    places: dict[str, Place] = {}
    for target in targets:
        places |= _places(target)
    async with serving_console(places, port=port) as url:
        out.show({"url": url, "servers": list(places)}, lambda: out.line(f"console: {url}"))
        if not no_open:
            click.launch(url)
        await _interrupted()


async def _interrupted() -> None:
    """Wait for Ctrl-C or SIGTERM, which is how a page is closed, and not a failure."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await stop.wait()


def _places(target: str) -> "dict[str, Place]":
    """Return the servers that a target means, by name."""
    from mcpearl.console.console import Place

    if not target.endswith(".json"):
        is_web = target.startswith(("http://", "https://"))
        return {target: Place(resolve(target), target, target if is_web else None)}
    from mcpearl.host.config import read_config

    config: HostConfig = read_config(target)
    if not config.entries:
        raise CommandFailed(f"{target} has no server", Exit.USAGE)
    return {
        name: Place(entry, f"{target}:{name}", entry.url) for name, entry in config.entries.items()
    }
