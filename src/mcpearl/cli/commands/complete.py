"""Ask a server to complete an argument of a prompt or a resource template."""

import click

from mcpearl.cli.command import make_command
from mcpearl.cli.output import Output
from mcpearl.cli.target import Target, connected, pairs, target_options


@make_command()
@target_options
@click.argument("reference")
@click.argument("argument")
@click.argument("value", default="")
@click.argument("others", nargs=-1, metavar="[KEY=VALUE]...")
async def command(
    out: Output,
    target: Target,
    reference: str,
    argument: str,
    value: str,
    others: tuple[str, ...],
) -> None:
    """Ask a server to complete an argument of a prompt or a resource template.

    REFERENCE is the prompt's name or the template's URI, VALUE what was typed so far, and KEY=VALUE are
    arguments that have their values already.
    """
    context = dict(pairs(others, "=", "an argument"))
    async with connected(target, out) as client:
        found = await client.complete(reference, argument, value, context or None)

    def write() -> None:
        for each in found.values:
            out.line(each)
        if found.has_more:
            more = f" of {found.total}" if found.total else ""
            out.note(f"{len(found.values)}{more}; there are more", dim=True)

    out.show(found, write)
