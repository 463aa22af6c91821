"""Configuration files of hosts: every form they come in, and everything that can be wrong."""

import json
from pathlib import Path
from typing import Any

import pytest

from mcpearl import Server
from mcpearl.client.entries import ConfigError
from mcpearl.host.config import read_config
from mcpearl.host.jsonc import MAX_SIZE

CLAUDE_DESKTOP = """{
  "globalShortcut": "",
  "mcpServers": {
    "filesystem": {"command": "npx", "args": ["-y", "server-filesystem", "/data"]},
    "memory": {"command": "docker", "args": ["run", "-i"], "env": {"A": "1"}}
  }
}"""
CLAUDE_CODE = """{
  "numStartups": 7,
  "mcpServers": {
    "api": {
      "type": "http",
      "url": "${API_URL:-https://api.example.com}/mcp",
      "headers": {"Authorization": "Bearer ${API_KEY}"}
    },
    "local": {"type": "stdio", "command": "server", "args": [], "env": {}}
  },
  "projects": {"%s": {"mcpServers": {"local": {"command": "of-project"}}, "history": []}}
}"""
VSCODE = """{
  // The servers of this project.
  "inputs": [{"type": "promptString", "id": "key", "description": "API key", "password": true}],
  "servers": {
    "github": {"type": "http", "url": "https://example.com/mcp/"}, /* remote // */
    "perplexity": {"type": "stdio", "command": "npx", "env": {"KEY": "${input:key}"}},
    "play": {"command": "npx", "args": ["http://not-a-comment", "a,]"], "cwd": "${workspaceFolder}",
             "dev": {"watch": "src/**"},},
  },
}"""
CURSOR = """{"mcpServers": {
  "remote": {"url": "https://example.com/mcp", "headers": {"K": "${env:API_KEY}"}},
  "off": {"command": "anything ${NOT_SET}", "disabled": true}
}}"""
ENV = {"API_KEY": "s3cret"}


def written(path: Path, text: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_claude_desktop(tmp_path: Path) -> None:
    config = read_config(written(tmp_path / "claude_desktop_config.json", CLAUDE_DESKTOP))
    assert list(config.entries) == ["filesystem", "memory"]
    assert config.entries["memory"].env == {"A": "1"}
    assert not config.problems
    assert config.source.endswith("claude_desktop_config.json")


def test_claude_code_with_the_servers_of_a_project(tmp_path: Path) -> None:
    text = CLAUDE_CODE % tmp_path.as_posix()
    file = written(tmp_path / "home" / ".claude.json", text)
    config = read_config(file, folder=tmp_path, env=ENV)
    assert config.entries["api"].url == "https://api.example.com/mcp"
    assert config.entries["api"].headers == {"Authorization": "Bearer s3cret"}
    assert config.entries["local"].command == ("of-project",)
    elsewhere = read_config(file, env=ENV)
    assert elsewhere.entries["local"].command == ("server",)


def test_vscode_with_comments_and_inputs(tmp_path: Path) -> None:
    config = read_config(written(tmp_path / ".vscode" / "mcp.json", VSCODE), env=ENV)
    assert list(config.entries) == ["github", "play"]
    play = config.entries["play"]
    assert play.command == ("npx", "http://not-a-comment", "a,]")
    assert play.cwd == str(tmp_path)
    assert play.extra == {"dev": {"watch": "src/**"}}
    (problem,) = config.problems
    assert problem.server == "perplexity"
    assert "VS Code asks its user" in problem.message


def test_settings_of_vscode() -> None:
    config = read_config({"mcp": {"servers": {"a": {"command": "x"}}}, "editor.fontSize": 12})
    assert list(config.entries) == ["a"]


def test_cursor_with_a_disabled_server() -> None:
    config = read_config(CURSOR, env=ENV)
    assert config.entries["remote"].headers == {"K": "s3cret"}
    assert config.entries["off"].disabled
    assert not config.problems


def test_an_object_with_servers_by_name() -> None:
    app = Server("own")
    config = read_config({"weather": "http://h/mcp", "files": ["npx", "files"], "own": app})
    assert config.entries["weather"].url == "http://h/mcp"
    assert config.entries["files"].command == ("npx", "files")
    assert config.entries["own"].target is app
    assert read_config({"servers": app}).entries["servers"].target is app


def test_a_bad_entry_costs_only_itself() -> None:
    config = read_config(
        {
            "mcpServers": {
                "good": {"command": "x"},
                "number": 5,
                "empty": {},
                "no-scheme": {"url": "example.com"},
                "gopher": {"url": "gopher://h/"},
                "portless": {"url": "tcp://h"},
                "gone": "/nowhere/server.py",
                "": {"command": "x"},
                "n" * 300: {"command": "x"},
                "fine": {"url": "http://h/mcp", "never": {"heard": "of"}},
            }
        }
    )
    assert list(config.entries) == ["good", "fine"]
    problems = {problem.server: problem.message for problem in config.problems}
    assert "`command` or `url`" in problems["empty"]
    assert "addresses begin with" in problems["gopher"]
    assert "no such file" in problems["gone"]
    assert "1 to 256 characters" in problems[""]
    assert len(problems) == 8


def test_names_that_are_there_twice_are_noted() -> None:
    text = '{"mcpServers": {"a": {"command": "x"}, "a": {"command": "y", "command": "z"}}}'
    config = read_config(text)
    assert config.entries["a"].command == ("z",)
    assert "two servers have the name `a`" in config.notes[0].message
    assert "`command` is there twice" in config.notes[1].message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("  \n", "is empty"),
        ("{", "not JSON: line 1, column 2"),
        ('{\n  // comment\n  "a": nope\n}', "line 3, column 8"),
        ('{"mcpServers": {"a": /* ', "not JSON"),
        ("[]", "it has to be an object"),
        ('"text"', "it has to be an object"),
        ("{}", "has no servers"),
        ('{"theme": "dark"}', "has no servers"),
        ('{"mcpServers": []}', "something else than an object as `mcpServers`"),
        ('{"servers": 5}', "something else than an object as `servers`"),
        ('{"command": "x"}', "entry of one server; give it a name"),
        ("[" * 100_000, "nested too deeply"),
        ('{"a": ' + "9" * 10_000 + "}", "not JSON"),
        (b"\xff\xfe\xfd", "UTF-8"),
        (b'{"a": "\x80"}', "UTF-8"),
        ("x" * (MAX_SIZE + 1), "more than"),
    ],
    ids=range(17),
)
def test_a_file_that_is_wrong_as_a_whole(tmp_path: Path, text: str | bytes, said: str) -> None:
    file = written(tmp_path / "mcp.json", text)
    with pytest.raises(ConfigError, match=said) as caught:
        read_config(file)
    assert str(file) in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no file .*gone\.json"):
        read_config(tmp_path / "gone.json")
    with pytest.raises(ConfigError, match=r"no file gone\.json in"):
        read_config("gone.json")
    with pytest.raises(ConfigError, match="is a directory"):
        read_config(tmp_path)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_config("a\0b")
    file = written(tmp_path / "mcp.json", CURSOR)
    with pytest.raises(ConfigError, match="cannot be read: Not a directory"):
        read_config(file / "mcp.json")
    wrong: Any = 5
    with pytest.raises(ConfigError, match="not a int"):
        read_config(wrong)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le"])
def test_encodings_that_editors_write(tmp_path: Path, encoding: str) -> None:
    text = json.dumps({"mcpServers": {"wetter-ü": {"command": "x"}}}, ensure_ascii=False)
    config = read_config(written(tmp_path / "mcp.json", text.encode(encoding)))
    assert list(config.entries) == ["wetter-ü"]


@pytest.mark.parametrize("piece", ["/*", "//", '"\\', ",", ", ", '"', "/", "{", "\\"])
def test_reading_is_linear(piece: str) -> None:
    text = "{" + piece * (MAX_SIZE // len(piece) // 4)
    with pytest.raises(ConfigError):
        read_config(text)
