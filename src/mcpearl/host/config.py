"""Reads the configuration of a host: the servers that can be used, and what is wrong with the others.

It reads files of Claude Desktop, Claude Code, VS Code, Cursor and similar hosts; `locations` knows where
they are. An entry that cannot be used becomes a `Problem`; the other entries are not affected.
"""

from collections.abc import Mapping
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import Any

from msgspec import Struct

from mcpearl.client.entries import (
    FIELDS,
    ConfigError,
    ServerEntry,
    Surroundings,
    is_entry,
    read_entry,
    servers_in,
    surroundings,
)
from mcpearl.client.targets import ReachOptions, find_target
from mcpearl.host.jsonc import MAX_SIZE, JsonObject, parse
from mcpearl.protocol.errors import brief

MAX_NAME = 256
ConfigSource = str | Path | Mapping[str, Any]
"""A path, the text of a file, or an object."""

# Folders inside a project in which hosts keep their files.
_OF_HOSTS = {".vscode", ".cursor", ".gemini"}


class Problem(Struct, frozen=True):
    """Something wrong with one server's entry."""

    server: str
    """The server's name."""
    message: str
    """What is wrong, and what to do."""


class HostConfig(Struct, frozen=True, kw_only=True):
    """The servers of a configuration."""

    source: str
    """What the configuration is called in messages: usually its path."""
    entries: dict[str, ServerEntry]
    """The servers that can be used, and those that are disabled, by name."""
    problems: tuple[Problem, ...] = ()
    """Entries that cannot be used, and why."""
    notes: tuple[Problem, ...] = ()
    """Doubts about entries that are used nevertheless, such as a name that occurs twice."""


def read_config(
    source: ConfigSource,
    *,
    folder: str | Path | None = None,
    env: Mapping[str, str] | None = None,
    trusted: bool = True,
) -> HostConfig:
    """Read a configuration.

    >>> config = read_config("~/.cursor/mcp.json")
    >>> config = read_config({"weather": "https://example.com/mcp", "files": ["npx", "files"]})

    Args:
        source: The path of a file, its text, or an object: `{"mcpServers": {…}}`, `{"servers": {…}}`, or
            servers by name.
        folder: The folder of the project, for `${workspaceFolder}` and relative directories; by default
            that of the file, or the current one.
        env: The values of variables; by default the environment of this process.
        trusted: Whether the author of the configuration may start programs here and read variables. If
            not, entries with commands or variables are problems.

    Raises:
        ConfigError: No entry can be read: there is no such file, it is not JSON, or has no servers.
    """
    content, name, place = _content(source)
    around = surroundings(Path(folder) if folder is not None else place)
    around = Surroundings(around.env if env is None else env, around.folder, trusted)
    servers = _servers(content, name, around.folder)
    entries: dict[str, ServerEntry] = {}
    problems: list[Problem] = []
    for each, value in servers.items():
        try:
            entries[each] = _entry(each, value, around)
        except (ValueError, TypeError, OSError) as error:
            problems.append(Problem(brief(str(each), MAX_NAME), str(error)))
    return HostConfig(
        source=name,
        entries=entries,
        problems=tuple(problems),
        notes=tuple(_notes(servers, entries)),
    )


def _content(source: ConfigSource) -> tuple[Any, str, Path | None]:
    """Return the content of a configuration, its name for messages, and the folder it belongs to."""
    if isinstance(source, Mapping):
        return source, "the configuration", None
    if isinstance(source, str) and source.lstrip("\ufeff \t\r\n")[:1] in ("{", "["):
        return parse(source, "the configuration"), "the configuration", None
    if not isinstance(source, str | Path):
        raise ConfigError(
            "a configuration is the path of a file, its text, or an object with servers, "
            f"not a {type(source).__name__}"
        )
    path = Path(source).expanduser()
    return parse(_bytes_of(path), str(path)), str(path), _project(path)


def _bytes_of(path: Path) -> bytes:
    try:
        if path.is_dir():
            raise ConfigError(f"{path} is a directory; name the file in it")
        with path.open("rb") as file:
            return file.read(MAX_SIZE + 1)
    except FileNotFoundError:
        where = "" if path.is_absolute() else f" in {Path.cwd()}"
        raise ConfigError(f"there is no file {path}{where}") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"{brief(str(path))} cannot be read: {reason}") from None


def _project(path: Path) -> Path:
    folder = path.absolute().parent
    return folder.parent if folder.name in _OF_HOSTS else folder


def _servers(content: Any, source: str, folder: Path) -> Mapping[str, Any]:
    """Return the entries of a configuration by name."""
    if not isinstance(content, Mapping):
        raise ConfigError(
            f'{source} is a {type(content).__name__}; it has to be an object: {{"mcpServers": {{…}}}}'
        )
    servers = servers_in(content)
    local = _of_project(content, folder)
    if servers is not None or local is not None:
        return {**(servers or {}), **local} if local else servers or {}
    if is_entry(content):
        raise ConfigError(
            f'{source} is the entry of one server; give it a name: {{"mcpServers": {{"name": …}}}}'
        )
    for section in ("mcpServers", "servers"):
        if section in content and (section == "mcpServers" or isinstance(content, JsonObject)):
            raise ConfigError(f"{source} has something else than an object as `{section}`")
    if isinstance(content, JsonObject):
        raise ConfigError(f"{source} has no servers: neither `mcpServers` nor `servers` is in it")
    return content  # an object of this program: servers by name


def _of_project(content: Mapping[str, Any], folder: Path) -> Mapping[str, Any] | None:
    """Return the servers that Claude Code keeps for one project, in its file for all projects."""
    projects = content.get("projects")
    project = projects.get(str(folder)) if isinstance(projects, Mapping) else None
    return servers_in(project) if isinstance(project, Mapping) else None


def _entry(name: Any, value: Any, around: Surroundings) -> ServerEntry:
    if not isinstance(name, str) or not name.strip() or len(name) > MAX_NAME:
        raise ConfigError(f"a server's name is text of 1 to {MAX_NAME} characters")
    entry = read_entry(name, value, around)
    if not entry.disabled:
        find_target(entry, ReachOptions())  # raises if no client could be made for it
    return entry


def _notes(servers: Mapping[str, Any], entries: Mapping[str, ServerEntry]) -> list[Problem]:
    again = "; the last one is used, as other hosts do"
    notes = [
        Problem(brief(name, MAX_NAME), f"two servers have the name `{brief(name, 64)}`{again}")
        for name in getattr(servers, "repeated", ())
    ]
    for name, value in servers.items():
        notes += [
            Problem(name, f"`{brief(member, 64)}` is there twice{again}")
            for member in getattr(value, "repeated", ())
        ]
    for name, entry in entries.items():
        for field in islice((each for each in entry.extra if len(each) < 32), 20):
            for meant in get_close_matches(field, FIELDS, n=1, cutoff=0.8):
                notes.append(Problem(name, f"`{field}` is not known; is `{meant}` meant?"))
    return notes
