"""Where hosts keep their files."""

from pathlib import Path

from mcpearl.host.config import read_config
from mcpearl.host.locations import locations


def test_the_files_of_each_system() -> None:
    def path(host: str, scope: str, system: str, **env: str) -> str:
        found = locations("/project", home="/home/me", system=system, env=env)
        (only,) = (each for each in found if (each.host, each.scope) == (host, scope))
        return only.path.as_posix()

    name = "Claude/claude_desktop_config.json"
    assert path("claude-desktop", "user", "linux") == f"/home/me/.config/{name}"
    assert path("claude-desktop", "user", "linux", XDG_CONFIG_HOME="/etc/x") == f"/etc/x/{name}"
    assert (
        path("claude-desktop", "user", "darwin") == f"/home/me/Library/Application Support/{name}"
    )
    assert path("claude-desktop", "user", "win32", APPDATA="/roaming") == f"/roaming/{name}"
    assert path("vscode", "project", "linux") == "/project/.vscode/mcp.json"
    assert path("claude-code", "project", "linux") == "/project/.mcp.json"


def test_a_file_at_each_place_can_be_read(tmp_path: Path) -> None:
    for place in locations(tmp_path / "work", home=tmp_path / "{odd} name", env={}):
        place.path.parent.mkdir(parents=True, exist_ok=True)
        place.path.write_text(f'{{"{place.section}": {{"a": {{"command": "x"}}}}}}')
        assert list(read_config(place.path).entries) == ["a"]
