"""The hosts that servers can be installed into, and what an entry looks like in each."""

from pathlib import Path
from typing import Any, NamedTuple

import click

from mcpearl.cli.exits import CommandFailed, Exit
from mcpearl.cli.installing.goose import SECTION, goose_file
from mcpearl.cli.installing.json_text import with_member
from mcpearl.cli.installing.yaml_text import entry_names, with_entry
from mcpearl.host.jsonc import parse
from mcpearl.host.locations import Location, locations
from mcpearl.runtime.arguments import did_you_mean


class HostEntry(NamedTuple):
    """A server as it is to be installed."""

    name: str
    command: list[str] | None
    url: str | None
    env: dict[str, str]
    headers: dict[str, str]


class HostFile(NamedTuple):
    """The file of a host, and how its entries are written."""

    host: str
    title: str
    path: Path
    section: str

    @property
    def is_yaml(self) -> bool:
        """Whether the file is YAML."""
        return self.path.suffix in (".yaml", ".yml")

    def read(self) -> str:
        """Return the text of the file; a file that does not exist is empty."""
        try:
            return self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return ""
        except (OSError, UnicodeDecodeError) as error:
            raise CommandFailed(f"{self.path} cannot be read: {error}; it is unchanged") from None

    def names(self, text: str) -> list[str]:
        """Return the servers that a text of the file has."""
        if self.is_yaml:
            return entry_names(text, self.section, str(self.path))
        if not text.strip():
            return []
        content = parse(text, str(self.path))
        servers = content.get(self.section) if isinstance(content, dict) else None
        return list(servers) if isinstance(servers, dict) else []

    def changed(self, text: str, name: str, entry: HostEntry | None) -> str:
        """Return the text with a server set, or, for None, removed."""
        value = None if entry is None else self.written(entry)
        change = with_entry if self.is_yaml else with_member
        return change(text, self.section, name, value, str(self.path))

    def written(self, entry: HostEntry) -> dict[str, Any]:
        """Return a server's entry as this host has it."""
        if self.host == "goose":
            return _for_goose(entry)
        if entry.url is not None:
            return self._address(entry, entry.url)
        command, *arguments = entry.command or [""]
        kind = {"type": "stdio"} if self.host in ("claude-code", "vscode") else {}
        env = {"env": entry.env} if entry.env else {}
        return {**kind, "command": command, "args": arguments, **env}

    def _address(self, entry: HostEntry, url: str) -> dict[str, Any]:
        headers = {"headers": entry.headers} if entry.headers else {}
        match self.host:
            case "claude-desktop":
                raise CommandFailed(
                    "Claude Desktop starts servers itself, and has those at addresses as connectors",
                    Exit.USAGE,
                    f"add {url} under Settings → Connectors",
                )
            case "gemini":
                return {"httpUrl": url, **headers}
            case "windsurf":
                return {"serverUrl": url, **headers}
            case "claude-code" | "vscode":
                return {"type": "http", "url": url, **headers}
            case _:
                return {"url": url, **headers}


def _for_goose(entry: HostEntry) -> dict[str, Any]:
    common = {"enabled": True, "name": entry.name, "timeout": 300}
    if entry.url is not None:
        address = {"type": "streamable_http", "uri": entry.url, "headers": entry.headers}
        return {**common, **address}
    command, *arguments = entry.command or [""]
    return {**common, "type": "stdio", "cmd": command, "args": arguments, "envs": entry.env}


def host_files(project: bool = False) -> list[HostFile]:
    """Return the files of all hosts: those of the user, or those of the project in this directory."""
    scope = "project" if project else "user"
    found = [_host_file(each) for each in locations() if each.scope == scope]
    if not project:
        found.append(HostFile("goose", "Goose", goose_file(), SECTION))
    return found


def _host_file(location: Location) -> HostFile:
    return HostFile(location.host, location.title, location.path, location.section)


def host_file(name: str, project: bool) -> HostFile:
    """Return the file of a host by its name; the error lists the hosts."""
    files = {each.host: each for each in host_files(project)}
    if name not in files:
        where = " with a file for one project" if project else ""
        raise CommandFailed(
            f"there is no host {name!r}{where}{did_you_mean(name, files)}",
            Exit.USAGE,
            f"choose one of {', '.join(files)}",
        )
    return files[name]


def complete_host(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return the hosts whose names begin so, for a shell."""
    return [each.host for each in host_files() if each.host.startswith(incomplete)]


def complete_installed(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return the servers that hosts have and whose names begin so, for a shell."""
    from mcpearl.cli.completing import is_plain

    found: dict[str, None] = {}
    for file in host_files(bool(ctx.params.get("project"))):
        try:
            found.update(dict.fromkeys(file.names(file.read())))
        except (CommandFailed, ValueError):
            continue  # it is said when the command is run
    return [name for name in found if name.startswith(incomplete) and is_plain(name)]
