"""Fill in a prompt: mcpearl prompt TARGET NAME key=value …"""

from typing import TYPE_CHECKING, Any

import click

from mcpearl.cli.arguments import read_arguments
from mcpearl.cli.command import make_command
from mcpearl.cli.contents import Writer
from mcpearl.cli.offered import find_named
from mcpearl.cli.output import CommandOutput
from mcpearl.cli.target import ServerTarget, completing, connected, target_options

if TYPE_CHECKING:
    from mcpearl.types.prompts import Prompt


@make_command()
@target_options
@click.argument("name", shell_complete=completing("prompts"))
@click.argument("arguments", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("-o", "--output", type=click.Path(), help="Where images and other files are saved.")
async def command(
    out: CommandOutput,
    target: ServerTarget,
    name: str,
    arguments: tuple[str, ...],
    output: str | None,
) -> None:
    """Fill in a prompt, and write its messages."""
    async with connected(target, out) as client:
        prompt = await find_named(client.prompts(), name, "prompt")
        values = read_arguments(arguments, _schema(prompt), f"prompt `{name}`")
        result = await client.get_prompt(name, values)

    def write() -> None:
        writer = Writer(out, output)
        for message in result.messages:
            out.line(f"{message.role}:", bold=True)
            writer.block(message.content, "  ")

    out.show(result, write)


def _schema(prompt: "Prompt") -> dict[str, Any]:
    """Return a prompt's arguments, all of which are text, as a schema."""
    arguments = prompt.arguments or []
    return {
        "type": "object",
        "properties": {each.name: {"type": "string"} for each in arguments},
        "required": [each.name for each in arguments if each.required],
    }
