"""`install` and `uninstall`: files of hosts are changed, kept, and never broken."""

import json
import stat
import sys
from pathlib import Path

import pytest

from mcpearl.cli.exits import CommandFailed
from mcpearl.cli.installing.change import write
from mcpearl.cli.installing.json_text import with_member
from mcpearl.cli.installing.yaml_text import entry_names, with_entry
from mcpearl.host.config import read_config
from mcpearl.host.jsonc import parse
from tests.cli.running import WEATHER, Screen, mcpearl

PLACES = {
    "claude-desktop": ".config/Claude/claude_desktop_config.json",
    "claude-code": ".claude.json",
    "cursor": ".cursor/mcp.json",
    "vscode": ".config/Code/User/mcp.json",
    "gemini": ".gemini/settings.json",
    "windsurf": ".codeium/windsurf/mcp_config.json",
}


def test_into_every_host_and_out_again(tmp_path: Path):
    done = mcpearl("install", WEATHER, *PLACES, "--env", "KEY=a b", home=tmp_path)
    assert done.code == 0, done.err
    for place in PLACES.values():
        file = tmp_path / place
        entry = read_config(file).entries["weather"]  # as hosts would read it
        assert entry.command == (
            *(sys.executable, "-P", "-m", "mcpearl", "run"),
            *(str(WEATHER), "--stdio"),
        )
        assert entry.env == {"KEY": "a b"}
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert mcpearl("ping", "weather", home=tmp_path).code == 0
    assert mcpearl("uninstall", "weather", home=tmp_path).code == 0
    for place in PLACES.values():
        assert "weather" not in (tmp_path / place).read_text()


def test_an_address(tmp_path: Path):
    address = ["https://example.com/mcp", "--name", "far", "--header", "X-Key: 1"]
    for host in ("cursor", "vscode", "claude-code"):
        assert mcpearl("install", *address, host, home=tmp_path).code == 0
        entry = read_config(tmp_path / PLACES[host]).entries["far"]
        assert (entry.url, entry.headers) == ("https://example.com/mcp", {"X-Key": "1"})
    refused = mcpearl("install", *address, "claude-desktop", home=tmp_path)
    assert (refused.code, "Settings → Connectors" in refused.err) == (2, True)


def test_hosts_that_are_there_are_found_and_others_left_alone(tmp_path: Path):
    (tmp_path / ".cursor").mkdir()
    done = mcpearl("install", WEATHER, "--json", home=tmp_path).json
    assert [each["host"] for each in done["files"]] == ["cursor"]
    assert not (tmp_path / ".claude.json").exists()
    nowhere = tmp_path / "nowhere"
    assert "no host was found" in mcpearl("install", WEATHER, home=nowhere).err


def test_comments_layout_and_a_backup_are_kept(tmp_path: Path):
    file = tmp_path / ".cursor" / "mcp.json"
    file.parent.mkdir()
    text = (
        '{\n    // mine\n    "mcpServers": {\n'
        '        "old": {"command": "x"}, // last\n    },\n    "z": 1\n}\n'
    )
    file.write_text(text)
    file.chmod(0o640)
    done = mcpearl("install", WEATHER, "cursor", home=tmp_path)
    assert '+        "weather": {' in done.out
    changed = file.read_text()
    assert "// mine" in changed
    assert "// last" in changed
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    (backup,) = file.parent.glob("*.bak")
    assert backup.read_text() == text
    assert str(backup) in done.err
    assert "as it should be" in mcpearl("install", WEATHER, "cursor", home=tmp_path).err
    mcpearl("uninstall", "weather", home=tmp_path)
    assert parse(file.read_text(), "file") == parse(text, "file")
    assert "// mine" in file.read_text()


@pytest.mark.parametrize("comma", ["", ","])
def test_a_comment_stays_beside_what_it_is_about(comma: str):
    text = f'{{"mcpServers": {{\n  "old": {{}}{comma} // mine\n}}}}\n'
    with_n = with_member(text, "mcpServers", "n", {}, "file")
    assert '  "old": {}, // mine\n' in with_n
    assert '  "old": {} // mine\n' in with_member(with_n, "mcpServers", "n", None, "file")


BROKEN = [
    *('{"mcpServers": {', '{"mcpServers": []}', "[]", "nonsense", '{"mcpServers": {}} x', "\x00"),
]


@pytest.mark.parametrize("broken", BROKEN)
def test_what_cannot_be_read_is_refused(broken: str):
    with pytest.raises((CommandFailed, ValueError), match="file"):
        with_member(broken, "mcpServers", "n", {}, "file")


def test_a_file_that_cannot_be_read_is_left_alone(tmp_path: Path):
    file = tmp_path / ".cursor" / "mcp.json"
    file.parent.mkdir()
    file.write_text(BROKEN[0])
    done = mcpearl("install", WEATHER, "cursor", home=tmp_path)
    assert done.code == 1
    assert "mcp.json" in done.err
    assert "the file is unchanged" in done.err
    assert "Traceback" not in done.err
    assert file.read_text() == BROKEN[0]
    assert list(file.parent.iterdir()) == [file]


@pytest.mark.parametrize("end", ["\r\n", "\n"])
def test_lines_end_as_they_did(tmp_path: Path, end: str):
    for place in (".cursor/mcp.json", ".config/goose/config.yaml"):
        file = tmp_path / place
        file.parent.mkdir(parents=True)
        file.write_bytes(
            end.join(
                ["extensions:", "  one:", "    enabled: true", ""]
                if file.suffix == ".yaml"
                else ["{", '  "mcpServers": {', '    "one": {"command": "a"}', "  }", "}", ""]
            ).encode()
        )
        before = file.read_bytes()
        host = "goose" if file.suffix == ".yaml" else "cursor"
        assert mcpearl("install", WEATHER, host, "--name", "two", "-y", home=tmp_path).code == 0
        written = file.read_bytes()
        assert written.count(b"\n") > 5 and b"two" in written
        assert written.count(b"\r\n") == (written.count(b"\n") if end == "\r\n" else 0)
        assert mcpearl("uninstall", "two", host, "-y", home=tmp_path).code == 0
        assert file.read_bytes() == before


def test_what_several_hosts_would_have_is_printed_for_each(tmp_path: Path):
    url = "https://example.com/mcp"
    command = ("install", url, "gemini", "vscode", "goose", "--name", "far", "--print")
    done = mcpearl(*command, home=tmp_path)
    assert '"httpUrl"' in done.out and '"type": "http"' in done.out and "uri: " in done.out
    assert all(title in done.err for title in ("Gemini CLI", "VS Code", "Goose"))
    found = mcpearl(*command, "--json", home=tmp_path).json
    assert found["gemini"] == {"mcpServers": {"far": {"httpUrl": url}}}
    assert found["vscode"] == {"servers": {"far": {"type": "http", "url": url}}}
    assert found["goose"]["extensions"]["far"]["uri"] == url


def test_nothing_is_changed_when_it_is_only_shown(tmp_path: Path):
    printed = mcpearl("install", WEATHER, "--print", home=tmp_path).out
    assert json.loads(printed)["mcpServers"]["weather"]["command"] == sys.executable
    dry = mcpearl("install", WEATHER, "cursor", "--dry-run", home=tmp_path)
    assert "+" in dry.out
    assert list(tmp_path.iterdir()) == []


def test_the_change_is_in_the_json_too(tmp_path: Path):
    done = mcpearl("install", WEATHER, "cursor", "--dry-run", "--json", home=tmp_path)
    (file,) = done.json["files"]
    assert not file["changed"]
    assert '+  "mcpServers": {' in file["change"]


def test_on_a_terminal_it_is_asked_for(tmp_path: Path):
    env = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / ".config")}
    for answer, exists in (("n\n", False), ("\n", True)):
        with Screen("install", WEATHER, "cursor", **env) as screen:
            screen.until("mcp.json? [Y/n]")
            screen.type(answer)
            assert screen.ended() == 0
        assert (tmp_path / ".cursor" / "mcp.json").exists() is exists


def test_a_link_is_followed_and_a_project_has_its_own_file(tmp_path: Path):
    real = tmp_path / "dotfiles.json"
    real.write_text("{}")
    (tmp_path / ".cursor").mkdir()
    (tmp_path / ".cursor" / "mcp.json").symlink_to(real)
    mcpearl("install", WEATHER, "cursor", home=tmp_path)
    assert "weather" in real.read_text()
    assert (tmp_path / ".cursor" / "mcp.json").is_symlink()
    project = tmp_path / "project"
    project.mkdir()
    mcpearl("install", WEATHER, "vscode", "--project", cwd=project, home=tmp_path)
    assert "weather" in json.loads((project / ".vscode" / "mcp.json").read_text())["servers"]


def test_mistyped_hosts_and_servers(tmp_path: Path):
    assert "did you mean `cursor`?" in mcpearl("install", WEATHER, "cursr", home=tmp_path).err
    mcpearl("install", WEATHER, "cursor", home=tmp_path)
    done = mcpearl("uninstall", "wether", home=tmp_path)
    assert (done.code, "did you mean `weather`?" in done.err) == (4, True)


def test_a_project_without_files_of_hosts_is_named_as_such(tmp_path: Path):
    (tmp_path / ".cursor").mkdir()
    (tmp_path / "project").mkdir()
    done = mcpearl("install", WEATHER, "--project", home=tmp_path, cwd=tmp_path / "project")
    assert done.code == 1
    assert "no host has a file in this project" in done.err
    assert "name one: claude-code" in done.err


def test_into_goose_and_out_again(tmp_path: Path):
    file = tmp_path / ".config" / "goose" / "config.yaml"
    file.parent.mkdir(parents=True)
    text = (
        "GOOSE_MODE: auto  # mine\nextensions:\n"
        "  developer:\n    enabled: true\n    type: builtin\nlast: 1\n"
    )
    file.write_text(text)
    assert mcpearl("install", WEATHER, "goose", home=tmp_path).code == 0
    changed = file.read_text()
    assert changed.startswith(text.partition("last")[0])
    assert changed.endswith("last: 1\n")
    assert f'    cmd: "{sys.executable}"\n' in changed
    assert mcpearl("uninstall", "weather", "goose", home=tmp_path).code == 0
    assert file.read_text() == text


JSON = [
    "",
    "{}",
    '{"a": 1}',
    '{"mcpServers": {}}',
    '{"mcpServers": {"b": {"c": [1, "}"]}}}',
    '{\n  "mcpServers": {\n    "b": {}, // x, "y": {\n  }, /* } */\n}\n',
    '{ // first\n "mcpServers": { /* none , */ }, "z": "\\"}{" }',
    '\ufeff{"mcpServers":{"n":1,"b":2}}',
    '{"mcpServers": {"n": {"x": 1}, "b": 2,},}',
    '{"other": {"mcpServers": {}}, "mcpServers": {"ü": {}}}',
]


@pytest.mark.parametrize("text", JSON)
def test_json_is_changed_in_the_text(text: str):
    before = parse(text, "file") if text else {}
    with_n = with_member(text, "mcpServers", "n", {"command": "x", "args": ["ä"]}, "file")
    servers = {**before.get("mcpServers", {}), "n": {"command": "x", "args": ["ä"]}}
    assert parse(with_n, "file") == {**before, "mcpServers": servers}
    assert with_n.count("//") == text.count("//")
    without = with_member(with_n, "mcpServers", "n", None, "file")
    servers.pop("n")
    assert parse(without, "file") == {**before, "mcpServers": servers}


YAML = [
    "",
    "a: 1\n",
    "extensions: {}\n",
    "extensions:\n  b:\n    c: 1\n",
    "---\nm: [1, 2]  # two\nn: {x: 1}\no: 'it''s'\np: \"#\" # c\nq: a b\nextensions:\n  b:\n    c: 1\n",
    "extensions:\n    b:\n        c: 1\n    # the end\nz: 1\n",
    "# top\nextensions:\n  'quoted name':\n    c: |\n      text: here\n  \"n\":\n    x: 1\n\nz:\n  - 1\n",
    "z:\n- 1\n-\n  a: 2\n# c\n- 3\nextensions:\n  b: {}\ny:  # two\n- 1\n- 2\n",
]


@pytest.mark.parametrize("text", YAML)
def test_yaml_is_changed_in_the_text(text: str):
    before = entry_names(text, "extensions", "file")
    with_n = with_entry(text, "extensions", "n", {"cmd": "x: y", "args": ["#"]}, "file")
    assert entry_names(with_n, "extensions", "file") == [*dict.fromkeys([*before, "n"])]
    assert 'cmd: "x: y"' in with_n
    without = with_entry(with_n, "extensions", "n", None, "file")
    assert entry_names(without, "extensions", "file") == [each for each in before if each != "n"]


@pytest.mark.parametrize(
    "text",
    [
        "extensions: {a: {b: 1}}\n",
        "extensions: &x\n  a: 1\n",
        "extensions:\n\ta: 1\n",
        "extensions:\n  - a\n",
        "extensions:\n  a: 1\nextensions:\n  b: 1\n",
        "extensions:\n    a:\n      x: 1\n  b: 1\n",
        "model: [1\nother: {\n",
        'model: "gpt\nextensions:\n  a: 1\n',
        "not a mapping\n",
        "- extensions\n",
        "a: 1\n- extensions\n",
        "extensions:\n- a\n",
        "extensions:\n# none\n\n- a\n",
        'extensions:\n  "\\x41": {}\n',
        "a" + 1_000_000 * " " + "b\n",
        '"' + 500_000 * "\\\\",
    ],
)
def test_yaml_that_is_not_understood_is_refused(text: str):
    with pytest.raises(CommandFailed):
        with_entry(text, "extensions", "n", {}, "file")


def test_only_the_last_backups_are_kept(tmp_path: Path):
    file = tmp_path / "mcp.json"
    file.write_text("{}")
    for day in range(10, 31):
        (tmp_path / f"mcp.json.202501{day}-000000.bak").write_text(str(day))
    (tmp_path / "mcp.json.mine.bak").write_text("not ours")
    written = write(file, '{"a": 1}')
    kept = sorted(each.name for each in tmp_path.glob("mcp.json.2*.bak"))
    assert (len(kept), kept[0]) == (20, "mcp.json.20250112-000000.bak")
    assert written is not None
    assert written.read_text() == "{}"
    assert (tmp_path / "mcp.json.mine.bak").exists()
