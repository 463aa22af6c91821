"""Read a resource: mcpearl read TARGET URI."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mcpearl.cli.command import make_command
from mcpearl.cli.contents import Writer, decoded, write_file
from mcpearl.cli.exits import CommandFailed, Exit
from mcpearl.cli.offered import offered
from mcpearl.cli.output import CommandOutput
from mcpearl.cli.progress import Progress
from mcpearl.cli.target import ServerTarget, completing, connected, target_options
from mcpearl.protocol.errors import McpError
from mcpearl.runtime.arguments import did_you_mean
from mcpearl.types.jsonrpc import INVALID_PARAMS, RESOURCE_NOT_FOUND
from mcpearl.types.resources import ReadResourceResult

if TYPE_CHECKING:
    from mcpearl.client.client import Client


@make_command()
@target_options
@click.argument("uri", shell_complete=completing("resources"))
@click.option("-o", "--output", type=click.Path(), help="The file to write it to, or a directory.")
async def command(out: CommandOutput, target: ServerTarget, uri: str, output: str | None) -> None:
    """Read a resource.

    Text is written as it is. What is binary goes to a file, or to stdout if that is not a terminal.
    """
    async with connected(target, out) as client, Progress(out, uri) as progress:
        try:
            result = await client.read_resource(uri, on_progress=progress.heard)
        except McpError as error:
            raise await _refused(error, client, uri) from None
    if out.as_json:
        out.document(result)
    elif output is not None and len(result.contents) == 1:
        _save(out, result, output)
    elif not out.tty and len(result.contents) == 1:
        sys.stdout.flush()
        sys.stdout.buffer.write(_bytes(result))
    else:
        writer = Writer(out, output)
        for contents in result.contents:
            if len(result.contents) > 1:
                out.heading(contents.uri)
            writer.resource(contents)


async def _refused(error: McpError, client: "Client", uri: str) -> Exception:
    """Return how the command ends: a missing resource has one of two codes, one of them a general one."""
    about = error.data if isinstance(error.data, dict) else {}
    if error.code == RESOURCE_NOT_FOUND or (error.code == INVALID_PARAMS and "uri" in about):
        hint = "`mcpearl list TARGET resources templates` shows what there is"
        known = await offered(client, ("resources",))
        meant = did_you_mean(uri, [each.uri for each in known.resources])
        return CommandFailed(f"{error.message}{meant}", Exit.NOT_FOUND, hint)
    return error


def _bytes(result: ReadResourceResult) -> bytes:
    contents = result.contents[0]
    if contents.text is not None:
        return contents.text.encode()
    return decoded(contents.blob or "")


def _save(out: CommandOutput, result: ReadResourceResult, output: str) -> None:
    content = _bytes(result)
    path = Path(output)
    if path.is_dir():
        path = Writer(out, output).save(content, result.contents[0].mime_type or "", "resource")
    else:
        write_file(path, content)
    out.note(f"{len(content):,} bytes saved as {path}")
