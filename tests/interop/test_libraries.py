"""Libraries that people build agents with use our server: on stdio, over HTTP, and with a token.

The Python ones need other versions of the SDKs than the tests, so they are run by a Python of their
own (`requirements/peers.txt`), one after the other.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from mcpearl import Client
from tests.interop.peers import HERE, LIBRARIES, NODE, run, serving

SERVER = HERE / "library_server.py"
MODULES = HERE / "node" / "node_modules"
TOKEN = "a-token-of-the-interop-tests-0123456789"
FAILURE = "Tool `fail` failed: ValueError: on purpose"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The address of a server for everybody."""
    with serving(library_server()) as url:
        yield url


@pytest.fixture(scope="module")
def guarded() -> Iterator[str]:
    """The address of a server that wants a token."""
    with serving(library_server(), env={"TOKEN": TOKEN}) as url:
        yield url


def library_server() -> list[str]:
    import sys

    return [sys.executable, str(SERVER)]


def targets(url: str, guarded: str) -> str:
    return json.dumps([library_server(), {"url": url}, {"url": guarded, "token": TOKEN}])


def check(met: list[dict[str, Any]]) -> None:
    assert len(met) == 3
    for each in met:
        assert each["tools"] == ["add", "greet", "fail"]
        assert str(each["add"]) == "5"
        assert each["greet"] == "Hello, Ada"
        assert FAILURE in str(each["fail"])


@pytest.mark.parametrize(
    "library", ["pydantic-ai", "langchain-mcp-adapters", "openai-agents", "llama-index-tools-mcp"]
)
@pytest.mark.timeout(300)
def test_python(library: str, url: str, guarded: str) -> None:
    script = str(HERE / "library_client.py")
    done = run([LIBRARIES, script, library, targets(url, guarded)], timeout=280)
    assert done.returncode == 0, done.stderr
    check(json.loads(done.stdout))


def test_ai_sdk(url: str, guarded: str) -> None:
    done = run([NODE, str(HERE / "node" / "ai_sdk.mjs"), targets(url, guarded)])
    assert done.returncode == 0, done.stderr
    check(json.loads(done.stdout))


# Proxies: our client, the proxy, our server


async def through(command: list[str]) -> None:
    async with Client(command, inherit_env=True) as client:
        assert [tool.name for tool in await client.list_tools()] == ["add", "greet", "fail"]
        assert (await client.call_tool("add", {"a": 2, "b": 3})).text == "5"
        failed = await client.call_tool("fail")
        assert failed.is_error
        assert FAILURE in failed.text


def proxy(*arguments: str) -> list[str]:
    return [LIBRARIES, "-m", "mcp_proxy", "--transport", "streamablehttp", *arguments]


@pytest.mark.timeout(120)
async def test_mcp_proxy_in_front_of_http(url: str) -> None:
    await through(proxy(url))


@pytest.mark.timeout(120)
async def test_mcp_proxy_with_a_token(guarded: str) -> None:
    await through(proxy("-H", "Authorization", f"Bearer {TOKEN}", guarded))


@pytest.mark.timeout(120)
async def test_mcp_proxy_shares_a_stdio_server_over_http() -> None:
    command = [LIBRARIES, "-m", "mcp_proxy", "--port", "{port}", "--", *library_server()]
    with serving(command) as url:
        for _ in range(2):
            async with Client(url) as client:
                assert (await client.call_tool("greet", {"name": "Ada"})).text == "Hello, Ada"


def remote(*arguments: str) -> list[str]:
    return [NODE, str(MODULES / "mcp-remote" / "dist" / "proxy.js"), *arguments]


@pytest.mark.timeout(120)
async def test_mcp_remote(url: str) -> None:
    await through(remote(url, "--transport", "http-only"))


@pytest.mark.timeout(120)
async def test_mcp_remote_with_a_token(guarded: str) -> None:
    header = f"Authorization: Bearer {TOKEN}"
    await through(remote(guarded, "--transport", "http-only", "--header", header))
