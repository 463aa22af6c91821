"""Watch resources, and show them when they change: mcpearl watch TARGET URI …"""

import asyncio
import time
from typing import TYPE_CHECKING, Any

import click

from mcpearl.cli.command import make_command
from mcpearl.cli.contents import Writer
from mcpearl.cli.exits import CommandFailed, Exit
from mcpearl.cli.offered import listed, offered
from mcpearl.cli.output import CommandOutput
from mcpearl.cli.target import ServerTarget, completing, connected, target_options
from mcpearl.runtime.arguments import did_you_mean

if TYPE_CHECKING:
    from mcpearl.client.client import Client
    from mcpearl.protocol.events import Notice

_MOST_WAITING = 1_000
_LISTS = {
    "notifications/tools/list_changed": "tools",
    "notifications/prompts/list_changed": "prompts",
    "notifications/resources/list_changed": "resources",
}


@make_command()
@target_options
@click.argument("uris", nargs=-1, metavar="[URI]...", shell_complete=completing("resources"))
@click.option(
    "--lists", is_flag=True, help="Changes of the lists of tools, prompts, resources too."
)
@click.option("-n", "--count", type=click.IntRange(1), help="End after so many changes.")
@click.option("--quiet", is_flag=True, help="Say what changed, without its contents.")
async def command(
    out: CommandOutput,
    target: ServerTarget,
    uris: tuple[str, ...],
    lists: bool,
    count: int | None,
    quiet: bool,
) -> None:
    """Watch resources, and show them when they change, until Ctrl-C.

    The connection is made again when it is lost.
    """
    if not uris and not lists:
        raise CommandFailed("nothing to watch: name a URI, or pass --lists", Exit.USAGE)
    changes: asyncio.Queue[Notice] = asyncio.Queue(_MOST_WAITING)

    async def noticed(notice: "Notice") -> None:
        await changes.put(notice)

    options = {"on_notification": noticed, "reconnect": True}
    async with connected(target, out, **options) as client:
        for uri in uris:
            await client.subscribe(uri)
        await _warn_of_unknown(out, client, uris)
        lives = await _listening(client) if lists and client.era == "modern" else None
        out.note(f"watching {', '.join(uris) or 'the lists'}; Ctrl-C ends it", dim=True)
        seen = 0
        while count is None or seen < count:
            shown = await _show(out, client, await changes.get(), quiet)
            seen += shown
        if lives is not None:
            await lives.__aexit__(None, None, None)


async def _warn_of_unknown(out: CommandOutput, client: "Client", uris: tuple[str, ...]) -> None:
    """Say which URIs the server does not list: it may never announce a change of them."""
    known = await offered(client, ("resources", "templates"))
    for uri in uris:
        if not listed(uri, known):
            meant = did_you_mean(uri, [each.uri for each in known.resources])
            out.warning(f"the server does not list {uri}{meant}")


async def _listening(client: "Client") -> Any:
    """Ask a modern server to announce changes of its lists; they come as other notifications do."""
    stream = client.listen(tools=True, prompts=True, resource_list=True)
    return await stream.__aenter__()


async def _show(out: CommandOutput, client: "Client", notice: "Notice", quiet: bool) -> bool:
    at = time.strftime("%H:%M:%S")
    if notice.method in _LISTS:
        kind = _LISTS[notice.method]
        _say(out, {"changed": kind}, f"{at} the list of {kind} changed")
        return True
    if notice.method != "notifications/resources/updated":
        return False
    uri = notice.params.uri
    if quiet:
        _say(out, {"changed": uri}, f"{at} {uri}")
        return True
    contents = (await client.read_resource(uri)).contents
    if out.as_json:
        out.event({"changed": uri, "contents": contents})
        return True
    out.line(f"{at} {uri}", bold=True)
    writer = Writer(out)
    for each in contents:
        writer.resource(each, "  ")
    return True


def _say(out: CommandOutput, value: dict[str, str], text: str) -> None:
    if out.as_json:
        out.event(value)
    else:
        out.line(text, bold=True)
