"""Take a server out of the hosts that have it."""

import click

from mcpearl.cli.command import make_command
from mcpearl.cli.commands.install import change_files
from mcpearl.cli.exits import CommandFailed, Exit
from mcpearl.cli.installing.hosts import (
    HostFile,
    complete_host,
    complete_installed,
    host_file,
    host_files,
)
from mcpearl.cli.output import CommandOutput
from mcpearl.runtime.arguments import did_you_mean


@make_command()
@click.argument("name", shell_complete=complete_installed)
@click.argument("hosts", nargs=-1, metavar="[HOST]...", shell_complete=complete_host)
@click.option("--project", is_flag=True, help="Out of the project in this directory.")
@click.option("--dry-run", is_flag=True, help="Show the change, and change nothing.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def command(
    out: CommandOutput, name: str, hosts: tuple[str, ...], project: bool, dry_run: bool, yes: bool
) -> None:
    """Take a server out of the hosts that have it, or of those that are named."""
    files = [host_file(each, project) for each in hosts] or host_files(project)
    known: dict[str, list[HostFile]] = {}
    for file in files:
        for each in _names(out, file, alone=len(files) == 1):
            known.setdefault(each, []).append(file)
    if name not in known:
        hint = f"they have {', '.join(sorted(known))}" if known else "they have no servers at all"
        raise CommandFailed(
            f"no host has a server {name!r}{did_you_mean(name, known)}", Exit.NOT_FOUND, hint
        )
    change_files(out, known[name], name, None, dry_run=dry_run, yes=yes)


def _names(out: CommandOutput, file: HostFile, *, alone: bool) -> list[str]:
    try:
        return file.names(file.read())
    except (CommandFailed, ValueError) as error:
        if alone:
            raise
        out.warning(f"{file.title}: {error}")
        return []
