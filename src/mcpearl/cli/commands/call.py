"""Call a tool: mcpearl call TARGET NAME key=value …"""

from typing import TYPE_CHECKING, Any

import click

from mcpearl.cli.arguments import read_arguments
from mcpearl.cli.asking import Person
from mcpearl.cli.command import make_command
from mcpearl.cli.contents import Writer, structured_text
from mcpearl.cli.exits import CommandFailed, Exit
from mcpearl.cli.offered import find_named
from mcpearl.cli.output import CommandOutput
from mcpearl.cli.progress import Progress
from mcpearl.cli.target import ServerTarget, completing, connected, pairs, target_options

if TYPE_CHECKING:
    from mcpearl.client.client import Client
    from mcpearl.types.tool_calls import CallToolResult


@make_command()
@target_options
@click.argument("name", shell_complete=completing("tools"))
@click.argument("arguments", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("-o", "--output", type=click.Path(), help="Where images and other files are saved.")
@click.option("--answer", multiple=True, metavar="NAME=VALUE", help="For forms of the server.")
@click.option("--task", "as_task", is_flag=True, help="Start it as a task, and do not wait.")
@click.option("--logs", is_flag=True, help="Show log messages of the server.")
async def command(
    out: CommandOutput,
    target: ServerTarget,
    name: str,
    arguments: tuple[str, ...],
    output: str | None,
    answer: tuple[str, ...],
    as_task: bool,
    logs: bool,
) -> int:
    """Call a tool.

    KEY=VALUE is read as the tool's schema says; KEY:=JSON is JSON whatever it says, and an argument that
    is a JSON object, or - for one on stdin, is taken whole.
    """
    person = Person(out, dict(pairs(answer, "=", "--answer")))
    options: dict[str, Any] = {"elicitation": person.elicit}
    if person.present:
        options["sampling"] = person.sample
    if logs:
        options["on_log"] = lambda log: out.note(f"{log.level}: {log.data}", dim=True)
    async with connected(target, out, **options) as client:
        tool = await find_named(client.tools(), name, "tool")
        values = read_arguments(arguments, tool.input_schema, f"tool `{name}`")
        if as_task:
            return await _start(out, client, target, name, values)
        async with Progress(out, name) as progress:
            person.pause = progress.clear
            try:
                result = await client.call_tool(name, values, on_progress=progress.heard)
            finally:
                progress.clear()
                person.name_unknown_answers()
    return show_result(out, result, output)


async def _start(
    out: CommandOutput, client: "Client", target: ServerTarget, name: str, values: dict[str, Any]
) -> int:
    task = await client.start_task(name, values)
    if not task.id:
        return show_result(out, await task.result(), None)
    out.show({"task": task.id}, lambda: out.line(task.id))
    if not target.runs_already():
        out.warning("the server was started for this call and ends with it, and so does the task")
    return Exit.OK


def show_result(out: CommandOutput, result: "CallToolResult", output: str | None) -> int:
    """Write the result of a tool, and return the exit code."""
    if out.as_json:
        out.document(result)
        return Exit.FAILED if result.is_error else Exit.OK
    if result.is_error:
        raise CommandFailed(result.text or "the tool failed without a word")
    writer = Writer(out, output)
    if result.structured_content is not None and _says_the_same(result):
        out.line(structured_text(result.structured_content))
    else:
        for block in result.content:
            writer.block(block)
    return Exit.OK


def _says_the_same(result: "CallToolResult") -> bool:
    """Return whether the content is nothing but the structured content as text."""
    return all(getattr(block, "type", None) == "text" for block in result.content)
