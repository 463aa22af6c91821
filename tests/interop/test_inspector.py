"""The command line of the MCP Inspector against our server on stdio and over HTTP, in both eras."""

import json
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.interop.demo_server import NOTE, PIXEL
from tests.interop.peers import DEMO_SERVER, INSPECTOR, run, serving

BOTH = pytest.mark.parametrize("era", ["legacy", "modern"])
TOOL_FAILED = 5


class Inspector:
    """One run of the program per request, as its users do it."""

    def __init__(self, home: Path, target: list[str]) -> None:
        self._home = home  # it keeps files there, and no test shall find another's
        self._target = target

    def ask(self, era: str, method: str, *options: str, exit_code: int = 0) -> dict[str, Any]:
        done = run(
            [
                *INSPECTOR,
                "--cli",
                *self._target,
                *("--protocol-era", era, "--format", "json", "--method", method),
                *options,
            ],
            env={"HOME": str(self._home)},
        )
        assert done.returncode == exit_code, done.stderr
        result = json.loads(done.stdout)["result"]
        assert isinstance(result, dict)
        return result


@pytest.fixture(scope="module", params=["stdio", "http"])
def target(request: pytest.FixtureRequest) -> Iterator[list[str]]:
    """What to tell the program of the server."""
    if request.param == "stdio":
        yield DEMO_SERVER
        return
    with serving(DEMO_SERVER) as url:
        yield ["--transport", "http", "--server-url", url]


@pytest.fixture
def inspector(tmp_path: Path, target: list[str]) -> Inspector:
    return Inspector(tmp_path, target)


@BOTH
def test_tools(inspector: Inspector, era: str):
    # `--strict` has it complain of schemas that hosts are known to stumble over.
    tools = inspector.ask(era, "tools/list", "--strict")["tools"]
    assert len(tools) == 18
    assert tools[0]["name"] == "add" and tools[0]["annotations"]["readOnlyHint"] is True
    assert tools[0]["inputSchema"]["required"] == ["a", "b"]

    named = ("--tool-name", "forecast", "--tool-arg", "city=Lisbon", "days=1")
    result = inspector.ask(era, "tools/call", *named)
    weather = {"city": "Lisbon", "days": ["sun"], "warm": True}
    assert result["structuredContent"] == weather
    assert json.loads(result["content"][0]["text"]) == weather


def test_tool_that_fails(inspector: Inspector):
    named = ("--tool-name", "fail", "--tool-arg", "reason=because")
    result = inspector.ask("legacy", "tools/call", *named, exit_code=TOOL_FAILED)
    assert result["isError"] is True
    assert result["content"] == [{"type": "text", "text": "failed: because"}]


@BOTH
def test_resources(inspector: Inspector, era: str):
    resources = inspector.ask(era, "resources/list")["resources"]
    assert [resource["uri"] for resource in resources] == [NOTE, "demo://pixel"]
    (note,) = inspector.ask(era, "resources/read", "--uri", NOTE)["contents"]
    assert note == {"uri": NOTE, "mimeType": "text/plain", "text": "first"}
    (pixel,) = inspector.ask(era, "resources/read", "--uri", "demo://pixel")["contents"]
    assert b64decode(pixel["blob"]) == PIXEL


@BOTH
def test_prompts(inspector: Inspector, era: str):
    prompts = inspector.ask(era, "prompts/list")["prompts"]
    assert [prompt["name"] for prompt in prompts] == ["brief", "dialogue", "personal", "visit"]
    named = ("--prompt-name", "brief", "--prompt-args", "city=Oslo", "tone=long")
    (message,) = inspector.ask(era, "prompts/get", *named)["messages"]
    text = "Give me a long weather briefing for Oslo."
    assert message == {"role": "user", "content": {"type": "text", "text": text}}
