"""List, look at, wait for and cancel tasks of a server."""

from typing import TYPE_CHECKING

import click

from mcpearl.cli.asking import Person
from mcpearl.cli.command import make_command
from mcpearl.cli.commands.call import show_result
from mcpearl.cli.exits import CommandFailed, Exit
from mcpearl.cli.output import CommandOutput
from mcpearl.cli.progress import Progress
from mcpearl.cli.target import ServerTarget, connected, pairs, target_options
from mcpearl.protocol.errors import CapabilityMissing, McpError
from mcpearl.types.jsonrpc import INVALID_PARAMS
from mcpearl.types.tasks import Task

if TYPE_CHECKING:
    from mcpearl.client.client import Client

ACTIONS = ("list", "get", "result", "cancel")


@make_command()
@target_options
@click.argument("action", type=click.Choice(ACTIONS), default="list")
@click.argument("id", required=False)
@click.option("-o", "--output", type=click.Path(), help="Where images and other files are saved.")
@click.option("--answer", multiple=True, metavar="NAME=VALUE", help="For forms of the task.")
async def command(
    out: CommandOutput,
    target: ServerTarget,
    action: str,
    id: str | None,
    output: str | None,
    answer: tuple[str, ...],
) -> int:
    """List, look at, wait for and cancel tasks of a server.

    ACTION is list, or with the ID of a task get, result (wait for it) or cancel. `mcpearl call --task`
    starts one. Servers of 2026-07-28 do not list tasks: those of 2025-11-25 do.
    """
    if action != "list" and id is None:
        raise CommandFailed(f"`tasks {action}` needs the id of a task", Exit.USAGE)
    person = Person(out, dict(pairs(answer, "=", "--answer")))
    async with connected(target, out, elicitation=person.elicit) as client:
        if id is None:
            tasks = await _listed(client)
            out.show({"tasks": tasks}, lambda: _write(out, tasks))
            return Exit.OK
        task = client.task(id)
        try:
            if action == "result":
                async with Progress(out, f"task {id}") as progress:
                    person.pause = progress.clear
                    result = await task.result()
                return show_result(out, result, output)
            if action == "cancel":
                await task.cancel()
            state = await task.status()
        except McpError as error:
            if error.code == INVALID_PARAMS:
                raise CommandFailed(error.message, Exit.NOT_FOUND) from None
            raise
    out.show(state, lambda: _write(out, [state]))
    return Exit.OK


async def _listed(client: "Client") -> list[Task]:
    try:
        return [task async for task in client.tasks()]
    except CapabilityMissing:
        raise CommandFailed(
            "the server does not list tasks",
            Exit.NOT_FOUND,
            "servers of 2026-07-28 never do, and others need not; `mcpearl tasks TARGET get ID` takes "
            "the id that `mcpearl call --task` printed",
        ) from None


def _write(out: CommandOutput, tasks: list[Task]) -> None:
    if not tasks:
        out.note("there are no tasks")
    rows = [[t.task_id, t.status, t.last_updated_at, t.status_message or ""] for t in tasks]
    out.table(("task", "status", "updated", "message"), rows)
