"""Put a server into Claude Desktop, Claude Code, Cursor, VS Code, Gemini CLI or Goose."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import click

from mcpearl.cli.command import make_command
from mcpearl.cli.exits import CommandFailed
from mcpearl.cli.installing.change import shown_change, write
from mcpearl.cli.installing.hosts import (
    HostEntry,
    HostFile,
    complete_host,
    host_file,
    host_files,
)
from mcpearl.cli.output import CommandOutput
from mcpearl.cli.target import complete_target, pairs, read_env_file, resolve


@make_command()
@click.argument("target", shell_complete=complete_target)
@click.argument("hosts", nargs=-1, metavar="[HOST]...", shell_complete=complete_host)
@click.option(
    "--name", help="The server's name in the host; by default the file's or the address's."
)
@click.option("--env", multiple=True, metavar="NAME=VALUE", help="A variable of its environment.")
@click.option("--env-file", type=click.Path(exists=True), help="A file of such variables.")
@click.option("--header", multiple=True, metavar="'NAME: VALUE'", help="A header of requests.")
@click.option(
    "--project", is_flag=True, help="Into the project in this directory, not for the user."
)
@click.option("--print", "only_print", is_flag=True, help="Print the entry, and change nothing.")
@click.option("--dry-run", is_flag=True, help="Show the change, and change nothing.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def command(
    out: CommandOutput,
    target: str,
    hosts: tuple[str, ...],
    name: str | None,
    env: tuple[str, ...],
    env_file: str | None,
    header: tuple[str, ...],
    project: bool,
    only_print: bool,
    dry_run: bool,
    yes: bool,
) -> None:
    """Put a server into a host.

    HOST is claude-desktop, claude-code, cursor, vscode, windsurf, gemini or goose; by default every one
    on this computer. The change is shown and, on a terminal, asked for; a copy of the file as it was is
    kept beside it.
    """
    values = {**(read_env_file(env_file) if env_file else {}), **dict(pairs(env, "=", "--env"))}
    entry = _entry(target, name, values, dict(pairs(header, ":", "--header")))
    if only_print:
        _print(out, entry, hosts, project)
        return
    files = [host_file(each, project) for each in hosts] or present(project)
    change_files(out, files, entry.name, entry, dry_run=dry_run, yes=yes)


def present(project: bool) -> list[HostFile]:
    """Return the files of the hosts that are on this computer."""
    found = [each for each in host_files(project) if each.path.exists() or _is_there(each)]
    if not found:
        names = ", ".join(each.host for each in host_files(project))
        here, anywhere = "no host has a file in this project", "no host was found on this computer"
        raise CommandFailed(
            here if project else anywhere, hint=f"name one: {names}; or pass --print"
        )
    return found


def _is_there(file: HostFile) -> bool:
    return file.host != "claude-code" and file.path.parent.is_dir()


def _entry(
    target: str, name: str | None, env: dict[str, str], headers: dict[str, str]
) -> HostEntry:
    reach = resolve(target)
    if isinstance(reach, str) and "://" in reach:
        return HostEntry(name or _name_of(reach), None, reach, env, headers)
    if isinstance(reach, list):
        return HostEntry(name or _name_of(target), _lasting(reach), None, env, headers)
    if isinstance(reach, str):
        return HostEntry(
            name or _name_of(target), ["node", str(Path(reach).resolve())], None, env, headers
        )
    command = None if reach.command is None else list(reach.command)
    known = {**reach.env, **env}
    return HostEntry(name or reach.name, command, reach.url, known, {**reach.headers, **headers})


def _lasting(command: list[str]) -> list[str]:
    """Return a command that works from any directory: hosts start servers somewhere else."""
    return [_absolute(each) for each in command]


def _absolute(word: str) -> str:
    place, colon, name = word.partition(":")
    if place.endswith((".py", ".js", ".mjs")) and Path(place).is_file():
        return str(Path(place).resolve()) + colon + name
    return word


def _name_of(target: str) -> str:
    """Return a name for a server: of its file, its host, or its command."""
    if "://" in target:
        text = target.partition("://")[2].partition("/")[0].partition(":")[0]
    else:
        words = target.split()
        last = next((each for each in reversed(words) if not each.startswith("-")), target)
        text = Path(last.partition(":")[0]).stem
        if text in ("server", "main", "app") and Path(last.partition(":")[0]).exists():
            text = Path(last.partition(":")[0]).resolve().parent.name
    return re.sub(r"[^A-Za-z0-9_-]+", "-", text).strip("-") or "server"


def _print(out: CommandOutput, entry: HostEntry, hosts: tuple[str, ...], project: bool) -> None:
    """Print what each host would have, under its title if there are several."""
    plain = HostFile("plain", "", Path("mcp.json"), "mcpServers")
    files = [host_file(each, project) for each in hosts] or [plain]
    whole = {file.host: {file.section: {entry.name: file.written(entry)}} for file in files}
    if out.as_json:
        out.document(whole if len(files) > 1 else whole[files[0].host])
        return
    for file in files:
        if len(files) > 1:
            out.note(f"{file.title}, {file.path}:")
        if file.is_yaml:
            click.echo(file.changed("", entry.name, entry), nl=False)
        else:
            click.echo(json.dumps(whole[file.host], indent=2))


def change_files(
    out: CommandOutput,
    files: list[HostFile],
    name: str,
    entry: HostEntry | None,
    *,
    dry_run: bool,
    yes: bool,
) -> None:
    """Set a server in these files, or remove it; show each change, and ask on a terminal."""
    done: list[dict[str, Any]] = []
    failed: CommandFailed | None = None
    for file in files:
        try:
            done.append(_change(out, file, name, entry, dry_run=dry_run, yes=yes))
        except (CommandFailed, ValueError) as error:
            failed = error if isinstance(error, CommandFailed) else _not_parsed(error)
            if len(files) == 1:
                raise failed from None
            out.warning(f"{file.title}: {failed}")
    if out.as_json:
        out.document({"name": name, "files": done})
    if failed is not None:
        raise CommandFailed("not every host could be changed", failed.code)


def _not_parsed(error: ValueError) -> CommandFailed:
    hint = "mend it, or add the server by hand: `--print` shows what to add"
    return CommandFailed(f"{error}; the file is unchanged", hint=hint)


def _change(
    out: CommandOutput,
    file: HostFile,
    name: str,
    entry: HostEntry | None,
    *,
    dry_run: bool,
    yes: bool,
) -> dict[str, Any]:
    before = file.read()
    after = file.changed(before, name, entry)
    result: dict[str, Any] = {"host": file.host, "path": str(file.path), "changed": False}
    if after == before:
        out.note(f"{file.title}: {file.path} is as it should be")
        return result
    change = shown_change(out, file.path, before, after)
    result["change"] = change
    if not out.as_json:
        for line in change:
            click.echo(line, color=out.colour)
    if dry_run or not _agreed(file, yes or out.as_json):
        return result
    backup = write(file.path, after)
    kept = f"; a copy of the file before: {backup}" if backup else ""
    what = "has" if entry is not None else "no longer has"
    out.note(f"{file.title} {what} {name!r} when it is started again{kept}", fg="green")
    return {**result, "changed": True, "backup": str(backup) if backup else None}


def _agreed(file: HostFile, yes: bool) -> bool:
    if yes or not sys.stdin.isatty():
        return True
    return click.confirm(f"Change {file.path}?", default=True, err=True)
