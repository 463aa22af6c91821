"""Ask a server to complete an argument of a prompt or a resource template."""

from typing import TYPE_CHECKING

import click

from mcpearl.cli.command import make_command
from mcpearl.cli.exits import CommandFailed, Exit
from mcpearl.cli.offered import find_named
from mcpearl.cli.output import CommandOutput
from mcpearl.cli.target import ServerTarget, connected, pairs, target_options
from mcpearl.runtime.arguments import did_you_mean

if TYPE_CHECKING:
    from mcpearl.types import Prompt


@make_command()
@target_options
@click.argument("reference")
@click.argument("argument")
@click.argument("value", default="")
@click.argument("others", nargs=-1, metavar="[KEY=VALUE]...")
async def command(
    out: CommandOutput,
    target: ServerTarget,
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
        if "://" not in reference:
            _refuse_unknown(await find_named(client.prompts(), reference, "prompt"), argument)
        found = await client.complete(reference, argument, value, context or None)

    def write() -> None:
        for each in found.values:
            out.line(each)
        if found.has_more:
            more = f" of {found.total}" if found.total else ""
            out.note(f"{len(found.values)}{more}; there are more", dim=True)

    out.show(found, write)


def _refuse_unknown(prompt: "Prompt", argument: str) -> None:
    """Say which argument was likely meant, if the prompt has none of that name."""
    known = [each.name for each in prompt.arguments or ()]
    if argument not in known:
        raise CommandFailed(
            f"prompt `{prompt.name}` has no argument {argument!r}{did_you_mean(argument, known)}",
            Exit.USAGE,
            f"it takes: {', '.join(known)}" if known else "it takes no arguments",
        )
