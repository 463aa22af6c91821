"""Tasks with the software of others: both shapes, both sides.

2025-11-25: `server-everything` and the client of the first TypeScript SDK. The extension of
2026-07-28: FastMCP, which has an environment of its own.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mcpearl import Client, TaskCancelled, UpstreamSettings, bridge
from mcpearl.types import CallToolResult, ElicitRequestParams, TextContent
from tests.interop.peers import (
    BRIDGE,
    EVERYTHING_SERVER,
    FASTMCP,
    HERE,
    INSPECTOR,
    LEGACY,
    MODERN,
    NODE,
    TASKS_SERVER,
    prepared,
    run,
    serving,
)

OURS = TASKS_SERVER
UPSTREAMS = pytest.mark.parametrize("upstream", [LEGACY[-1], MODERN])
FASTMCP_SERVER = prepared(FASTMCP, "fastmcp_tasks_server.py")
RESEARCH = "simulate-research-query"


@contextmanager
def reached(wire: str, command: list[str], *http: str) -> Iterator[Any]:
    """Have a server: the command that starts it on stdio, or its URL."""
    if wire == "stdio":
        yield command
        return
    with serving([*command, *http]) as url:
        yield url


def text_of(result: CallToolResult) -> str:
    (block, *_) = result.content
    assert isinstance(block, TextContent)
    return block.text


# Our client


@pytest.mark.parametrize("wire", ["stdio", "http"])
async def test_tasks_of_the_reference_server(wire: str) -> None:
    asked: list[str] = []

    def choose(form: ElicitRequestParams) -> dict[str, str]:
        asked.append(form.message)
        return {"interpretation": "snake"}

    with reached(wire, EVERYTHING_SERVER, "streamableHttp") as target:
        target = [*target, "stdio"] if wire == "stdio" else target
        async with Client(target, elicitation=choose, connect_timeout=60) as client:
            # The client does not know yet that the tool only runs as a task.
            report = await client.call_tool(RESEARCH, {"topic": "python", "ambiguous": True})
            assert "python (snake)" in text_of(report)
            assert len(asked) == 1
            task = await client.start_task(RESEARCH, {"topic": "tea", "ambiguous": False})
            seen = [state.status async for state in task]
            assert (seen[0], seen[-1]) == ("working", "completed")
            assert "tea" in text_of(await task.result())


async def test_the_reference_server_starts_tasks_at_our_client() -> None:
    target = [*EVERYTHING_SERVER, "stdio"]
    options: dict[str, Any] = {
        "sampling": lambda params: "a poem",
        "elicitation": lambda form: {"name": "Ada"},
        "connect_timeout": 60,
    }
    async with Client(target, **options) as client:
        sampled = await client.call_tool("trigger-sampling-request-async", {"prompt": "write"})
        assert "[COMPLETED]" in text_of(sampled)
        assert "a poem" in text_of(sampled)
        filled = await client.call_tool("trigger-elicitation-request-async")
        assert "[COMPLETED]" in text_of(filled)
        assert "Name: Ada" in str(filled.content)


@pytest.mark.parametrize("wire", ["stdio", "http"])
async def test_tasks_of_fastmcp(wire: str) -> None:
    with reached(wire, FASTMCP_SERVER) as target:
        async with Client(target, connect_timeout=60) as client:
            assert client.protocol_version == MODERN
            result = await client.call_tool("double", {"number": 4})
            assert result.structured_content == {"result": 8}
            task = await client.start_task("double", {"number": 5})
            assert (await task.status()).status in ("working", "completed")
            again = client.task(task.id)
            assert (await again.result(timeout=60)).structured_content == {"result": 10}
            failed = await client.call_tool("broken")
            assert failed.is_error
            endless = await client.start_task("endless")
            await endless.cancel()
            with pytest.raises(TaskCancelled):
                await endless.result(timeout=60)


# Our server


@pytest.mark.parametrize("wire", ["stdio", "http"])
def test_the_client_of_fastmcp(wire: str) -> None:
    with reached(wire, OURS) as target:
        words = target if wire == "stdio" else [target]
        done = run([*prepared(FASTMCP, "fastmcp_tasks_client.py"), *words])
    assert done.returncode == 0, done.stderr
    met = json.loads(done.stdout)
    assert met.pop("first") in ("working", "completed")
    assert met == {
        "called": 8,
        "result": 10,
        "greeting": "Hello, Ada!",
        "error": met["error"],
        "cancelled": "cancelled",
    }
    assert "the machine is on fire" in met["error"]


@pytest.mark.parametrize("wire", ["stdio", "http"])
def test_the_client_of_the_typescript_sdk(wire: str) -> None:
    with reached(wire, OURS) as target:
        words = target if wire == "stdio" else [target]
        done = run([NODE, str(HERE / "node" / "tasks_client.mjs"), *words])
    assert done.returncode == 0, done.stderr
    met = json.loads(done.stdout)
    assert met["errors"] == []
    support = {"double": "optional", "endless": "optional"}
    assert met["support"] == {**support, "greet": "required", "broken": "required"}
    assert met["double"][0] == "taskCreated working"
    assert met["double"][-1] == "10"
    assert met["greet"][-1] == "Hello, Ada!"
    assert met["asked"] == ["What is your name?"]
    assert met["broken"][-1].endswith("failed")  # the SDK does not fetch the error
    assert met["listed"] is (wire == "stdio")  # over HTTP, anyone could ask
    assert (met["cancelled"], met["after"]) == ("cancelled", "cancelled")


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_the_inspector(era: str, tmp_path: Path) -> None:
    def call(tool: str, *arguments: str) -> tuple[int, str]:
        words = ("--protocol-era", era, "--format", "json", "--method", "tools/call")
        done = run(
            [*INSPECTOR, "--cli", *OURS, *words, "--tool-name", tool, *arguments],
            env={"HOME": str(tmp_path)},
        )
        return done.returncode, done.stdout + done.stderr

    code, said = call("double", "--tool-arg", "number=4")
    assert code == 0, said
    assert '"structuredContent":{"result":8}' in said
    # It takes the tool for one that only runs as a task, and cannot answer what the task asks.
    code, said = call("greet")
    assert code == 1
    assert "did not declare the capability `elicitation.form`" in said


# Through a gateway: clients of either era with upstreams of either era


@UPSTREAMS
def test_the_client_of_fastmcp_through_a_gateway(upstream: str) -> None:
    words = [*BRIDGE, upstream, "tasks"]
    done = run([*prepared(FASTMCP, "fastmcp_tasks_client.py"), *words])
    assert done.returncode == 0, done.stderr
    met = json.loads(done.stdout)
    assert met.pop("first") in ("working", "completed")
    assert "the machine is on fire" in met.pop("error")
    greeting = "Hello, Ada!"
    assert met == {"called": 8, "result": 10, "greeting": greeting, "cancelled": "cancelled"}


@UPSTREAMS
def test_the_client_of_the_typescript_sdk_through_a_gateway(upstream: str) -> None:
    done = run([NODE, str(HERE / "node" / "tasks_client.mjs"), *BRIDGE, upstream, "tasks"])
    assert done.returncode == 0, done.stderr
    met = json.loads(done.stdout)
    assert met["errors"] == []
    assert met["support"]["double"] == "optional"
    assert met["double"][0] == "taskCreated working"
    assert met["double"][-1] == "10"
    assert met["greet"][-1] == "Hello, Ada!"
    assert met["asked"] == ["What is your name?"]
    assert (met["cancelled"], met["after"]) == ("cancelled", "cancelled")


@UPSTREAMS
@pytest.mark.parametrize("mode", ["legacy", MODERN])
def test_the_second_typescript_sdk_and_its_tasks_through_a_gateway(
    mode: str, upstream: str
) -> None:
    client = [NODE, str(HERE / "node" / "ext_tasks_client.mjs"), mode]
    done = run([*client, *BRIDGE, upstream, "tasks"])
    assert done.returncode == 0, done.stderr
    met = json.loads(done.stdout)
    assert met["errors"] == []
    assert met["double"] == ["task", "completed", "10"]
    if mode == MODERN:
        assert met["greet"] == ["task", "completed", "Hello, Ada!"]
        assert met["asked"] == ["What is your name?"]
    assert met["broken"][1] == "failed"
    assert (met["kind"], met["cancelled"]) == ("task", "cancelled")


@pytest.mark.parametrize("protocol", [LEGACY[-1], MODERN])
async def test_tasks_of_the_reference_server_through_a_gateway(protocol: str) -> None:
    settings = UpstreamSettings(protocol=LEGACY[-1], patience=60.0)
    gateway = bridge([*EVERYTHING_SERVER, "stdio"], upstreams=settings)
    async with gateway.serving("tcp", port=0) as url:
        choose = {"interpretation": "snake"}
        async with Client(url, protocol=protocol, elicitation=lambda form: choose) as client:
            report = await client.call_tool(RESEARCH, {"topic": "python", "ambiguous": True})
            assert "python (snake)" in text_of(report)
            task = await client.start_task(RESEARCH, {"topic": "tea", "ambiguous": False})
            assert "tea" in text_of(await task.result(timeout=60))


@pytest.mark.parametrize("protocol", [LEGACY[-1], MODERN])
async def test_tasks_of_fastmcp_through_a_gateway(protocol: str) -> None:
    settings = UpstreamSettings(protocol=MODERN, patience=60.0)
    gateway = bridge(FASTMCP_SERVER, upstreams=settings)
    async with gateway.serving("tcp", port=0) as url, Client(url, protocol=protocol) as client:
        result = await client.call_tool("double", {"number": 4})
        assert result.structured_content == {"result": 8}
        task = await client.start_task("double", {"number": 5})
        assert (await task.result(timeout=60)).structured_content == {"result": 10}
        assert (await client.call_tool("broken")).is_error
        endless = await client.start_task("endless")
        await endless.cancel()
        with pytest.raises(TaskCancelled):
            await endless.result(timeout=60)
