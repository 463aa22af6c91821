"""Servers that Goose has are targets, as those of other hosts: its file is YAML."""

from pathlib import Path

import pytest

from mcpearl.cli.installing.goose import goose_servers
from tests.cli.running import WEATHER, mcpearl

WRITTEN_BY_HAND = """\
GOOSE_MODEL: some-model
extensions:
  # what Goose brings itself
  developer:
    enabled: true
    type: builtin
    timeout: 300
  files:
    name: files
    type: stdio
    cmd: npx   # starts it
    args:
    - -y
    - '@scope/files'
    - "a \\"b\\""
    envs:
      TOKEN: it''s
      LEVEL: '3'
    enabled: true
  "far away":
    type: streamable_http
    uri: https://example.com/mcp#part
    headers: {}
  off:
    type: stdio
    cmd: uvx
    args: [one, two]
    enabled: false
  folded:
    type: stdio
    cmd: >-
      not understood
  aliased: &name
    type: stdio
    cmd: x
after: 1
"""


def test_entries_are_read_as_those_of_other_hosts() -> None:
    assert goose_servers(WRITTEN_BY_HAND, "config.yaml") == {
        "files": {
            "enabled": True,
            "type": "stdio",
            "command": "npx",
            "args": ["-y", "@scope/files", 'a "b"'],
            "env": {"TOKEN": "it''s", "LEVEL": "3"},
        },
        "far away": {
            "enabled": True,
            "type": "streamable_http",
            "url": "https://example.com/mcp#part",
        },
        "off": {"enabled": False, "type": "stdio", "command": "uvx", "args": ["one", "two"]},
        "aliased": {"enabled": True, "type": "stdio", "command": "x"},
    }


@pytest.mark.parametrize("text", ["", "extensions:\n", "- a list\n", "extensions: [1]\n", "\tx: 1"])
def test_a_file_without_servers_has_none(text: str) -> None:
    assert goose_servers(text, "config.yaml") == {}


def test_a_server_installed_into_goose_is_a_target(tmp_path: Path) -> None:
    assert mcpearl("install", WEATHER, "goose", "--name", "sky", home=tmp_path).code == 0
    for target in ("sky", "goose:sky"):
        done = mcpearl("list", target, home=tmp_path)
        assert done.code == 0, done.err
        assert "forecast" in done.out
