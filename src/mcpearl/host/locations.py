"""A table of the files in which hosts keep their configuration on this computer."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Literal

from msgspec import Struct

FileScope = Literal["user", "project"]
System = Literal["darwin", "win32", "linux"]

# Folders for the settings of programs (`{settings}` below): the variable that names the folder, and its
# path in the home directory if the variable is not set.
_SETTINGS: dict[System, tuple[str, str]] = {
    "darwin": ("", "Library/Application Support"),
    "win32": ("APPDATA", "AppData/Roaming"),
    "linux": ("XDG_CONFIG_HOME", ".config"),
}

# host, name for people, scope, path, member with the servers
_FILES: tuple[tuple[str, str, FileScope, str, str], ...] = (
    (
        "claude-desktop",
        "Claude Desktop",
        "user",
        "{settings}/Claude/claude_desktop_config.json",
        "mcpServers",
    ),
    ("claude-code", "Claude Code", "user", "{home}/.claude.json", "mcpServers"),
    ("claude-code", "Claude Code", "project", "{folder}/.mcp.json", "mcpServers"),
    ("vscode", "VS Code", "user", "{settings}/Code/User/mcp.json", "servers"),
    ("vscode", "VS Code", "project", "{folder}/.vscode/mcp.json", "servers"),
    ("cursor", "Cursor", "user", "{home}/.cursor/mcp.json", "mcpServers"),
    ("cursor", "Cursor", "project", "{folder}/.cursor/mcp.json", "mcpServers"),
    ("windsurf", "Windsurf", "user", "{home}/.codeium/windsurf/mcp_config.json", "mcpServers"),
    ("gemini", "Gemini CLI", "user", "{home}/.gemini/settings.json", "mcpServers"),
    ("gemini", "Gemini CLI", "project", "{folder}/.gemini/settings.json", "mcpServers"),
)


class Location(Struct, frozen=True, kw_only=True):
    """A file in which a host keeps its servers; it need not exist."""

    host: str
    """The host, such as `claude-desktop`, `claude-code`, `vscode` or `cursor`."""
    title: str
    """The host's name for people."""
    scope: FileScope
    """Whether the file is for all projects of a user, or for one project."""
    path: Path
    """The path of the file."""
    section: str
    """The member of the file that has the servers."""


def locations(
    folder: str | Path | None = None,
    *,
    home: str | Path | None = None,
    system: str = sys.platform,
    env: Mapping[str, str] | None = None,
) -> list[Location]:
    """Return the files of all hosts that are known here.

    Args:
        folder: The project; by default the current directory.
        home: The user's home directory; by default that of this process.
        system: The operating system, as `sys.platform` names it.
        env: Environment variables that move folders; by default those of this process.
    """
    known: System = "darwin" if system == "darwin" else "win32" if system == "win32" else "linux"
    home_path = Path.home() if home is None else Path(home)
    variable, usual = _SETTINGS[known]
    settings = (os.environ if env is None else env).get(variable)
    places: dict[str, PurePath] = {
        "home": home_path,
        "settings": Path(settings) if settings else home_path / usual,
        "folder": Path.cwd() if folder is None else Path(folder),
    }
    return [
        Location(host=host, title=title, scope=scope, path=Path(path.format(**places)), section=at)
        for host, title, scope, path, at in _FILES
    ]
