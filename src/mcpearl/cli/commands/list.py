"""List the tools, resources and prompts of a server."""

from typing import TYPE_CHECKING, Any

import click

from mcpearl.cli.command import make_command
from mcpearl.cli.offered import offered, summary_of
from mcpearl.cli.output import CommandOutput
from mcpearl.cli.schema_text import parameters_of
from mcpearl.cli.target import ServerTarget, connected, target_options

if TYPE_CHECKING:
    from mcpearl.cli.offered import ServerOffer

KINDS = ("tools", "resources", "templates", "prompts")


@make_command()
@target_options
@click.argument("kinds", nargs=-1, type=click.Choice(KINDS), metavar="[KIND]...")
async def command(out: CommandOutput, target: ServerTarget, kinds: tuple[str, ...]) -> None:
    """List the tools, resources and prompts of a server.

    KIND is tools, resources, templates or prompts; by default all that the server has.
    """
    async with connected(target, out) as client:
        found = await offered(client, kinds or KINDS)
    lists: dict[str, Any] = {kind: getattr(found, kind) for kind in kinds or KINDS}
    out.show(lists, lambda: _write(out, found, kinds or KINDS))


def _write(out: CommandOutput, found: "ServerOffer", kinds: tuple[str, ...]) -> None:
    written = False
    for kind in kinds:
        rows = _rows(kind, getattr(found, kind))
        if not rows:
            continue
        if written:
            out.line()
        out.heading(f"{kind} ({len(rows)})")
        out.table((), rows, indent=2)
        written = True
    if not written:
        out.note(f"it offers no {' or '.join(kinds)}")


def _rows(kind: str, each: list[Any]) -> list[list[str]]:
    match kind:
        case "tools":
            return [[f"{t.name}({parameters_of(t.input_schema)})", summary_of(t)] for t in each]
        case "resources":
            return [[r.uri, r.mime_type or "", summary_of(r)] for r in each]
        case "templates":
            return [[t.uri_template, t.mime_type or "", summary_of(t)] for t in each]
        case _:
            return [[f"{p.name}({_arguments(p)})", summary_of(p)] for p in each]


def _arguments(prompt: Any) -> str:
    return ", ".join(
        each.name if each.required else f"{each.name}=…" for each in prompt.arguments or ()
    )
