"""Ask a server to complete an argument of a prompt or a resource template."""

from typing import TYPE_CHECKING

import click

from mcpearl.cli.command import make_command
from mcpearl.cli.exits import CommandFailed, Exit
from mcpearl.cli.offered import find_named, offered, template_variables
from mcpearl.cli.output import CommandOutput
from mcpearl.cli.target import ServerTarget, completing, connected, pairs, target_options
from mcpearl.runtime.arguments import did_you_mean

if TYPE_CHECKING:
    from mcpearl.client.client import Client


@make_command()
@target_options
@click.argument("reference", shell_complete=completing("prompts", "templates"))
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
            prompt = await find_named(client.prompts(), reference, "prompt")
            known = [each.name for each in prompt.arguments or ()]
            _refuse_unknown(f"prompt `{reference}`", known, argument)
        else:
            await _find_template(client, reference)
            _refuse_unknown(f"template `{reference}`", template_variables(reference), argument)
        found = await client.complete(reference, argument, value, context or None)

    def write() -> None:
        for each in found.values:
            out.line(each)
        if found.has_more:
            more = f" of {found.total}" if found.total else ""
            out.note(f"{len(found.values)}{more}; there are more", dim=True)

    out.show(found, write)


async def _find_template(client: "Client", reference: str) -> None:
    """Refuse a template that the server does not list, and say which was likely meant."""
    lists = await offered(client, ("templates",))
    known = [each.uri_template for each in lists.templates]
    if reference not in known:
        raise CommandFailed(
            f"the server has no template `{reference}`{did_you_mean(reference, known)}",
            Exit.NOT_FOUND,
            f"it has: {', '.join(known[:20])}" if known else "it has no templates",
        )


def _refuse_unknown(what: str, known: list[str], argument: str) -> None:
    """Say which argument was likely meant, if there is none of that name."""
    if argument not in known:
        raise CommandFailed(
            f"{what} has no argument {argument!r}{did_you_mean(argument, known)}",
            Exit.USAGE,
            f"it takes: {', '.join(known)}" if known else "it takes no arguments",
        )
