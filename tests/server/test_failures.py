"""Handlers that go wrong in every way: each costs its own call, and the next one is answered."""

import asyncio
import decimal
import socket
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from mcpearl import Client, Context, Limits, McpError, Server, ToolError
from mcpearl.types import CallToolResult
from tests.server.wire import ERAS, LEGACY, text_of, wire
from tests.waiting import eventually


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this works")


class NotText(Exception):
    def __str__(self) -> Any:  # type: ignore[override]
        return 5


def recurse() -> Any:
    return recurse()


def loop() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


def deep() -> Any:
    value: Any = 1
    for _ in range(50_000):
        value = [value]
    return value


def raising(error: BaseException) -> Any:
    def fails() -> Any:
        raise error

    return fails


FAILING = {
    "exit": lambda: sys.exit(1),
    "exit message": raising(SystemExit("bye")),
    "interrupt": raising(KeyboardInterrupt()),
    "generator exit": raising(GeneratorExit()),
    "cancelled": raising(asyncio.CancelledError()),
    "stop iteration": raising(StopIteration(1)),
    "recursion": recurse,
    "memory": raising(MemoryError()),
    "unspeakable": raising(Unspeakable()),
    "not text": raising(NotText()),
    "surrogate": raising(ValueError("\ud800")),
    "group": raising(ExceptionGroup("several", [ValueError("a"), ValueError("b")])),
    "tool error": raising(ToolError("\udfff")),
    "a socket": lambda: socket.socket(),
    "a loop": loop,
    "a loop in a dict": lambda: {"a": loop()},
    "too deep": deep,
    "a surrogate": lambda: "\ud800",
    "a surrogate in a dict": lambda: {"a": "\ud800"},
    "a surrogate as key": lambda: {"\ud800": 1},
    "a lock": lambda: [threading.Lock()],
    "a class": lambda: int,
    "a complex number": lambda: 1j,
    "an object": lambda: object(),
    "keys that are no text": lambda: {(1, 2): 3},
    "a result with a socket": lambda: CallToolResult(
        content=[], structured_content={"a": socket.socket()}
    ),
    "a result that is none": lambda: CallToolResult(content=5),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("version", ERAS)
@pytest.mark.parametrize("what", FAILING)
async def test_a_call_that_fails(what: str, version: str) -> None:
    app = Server("failing")
    app.add_tool(FAILING[what], name="fails", input_schema={"type": "object"})
    app.add_resource("a://1", FAILING[what], name="fails")
    app.add_prompt(FAILING[what], name="fails")
    app.add_tool(lambda: "fine", name="works")
    async with wire(app, version) as client:
        answer = await client.call("fails")
        if what == "a result that is none":
            assert "content" in answer["result"]  # nothing stops a handler that insists
        else:
            assert answer["result"]["isError"] is True
            assert text_of(answer)
        if what not in ("a result that is none", "a result with a socket"):
            answer = await client.ask("resources/read", {"uri": "a://1"})
            assert answer["error"]["code"] == -32603
            answer = await client.ask("prompts/get", {"name": "fails"})
            assert answer["error"]["code"] == -32603
        assert text_of(await client.call("works")) == "fine"
        (connection,) = app.core.roster
        assert not connection.end.in_flight


@pytest.mark.parametrize("version", ERAS)
@pytest.mark.parametrize(
    "what", ["exit", "recursion", "unspeakable", "surrogate", "a loop", "stop iteration", "group"]
)
async def test_async_handlers_fail_alike(what: str, version: str) -> None:
    app = Server("failing")

    async def fails() -> Any:
        return FAILING[what]()

    app.add_tool(fails)
    async with wire(app, version) as client:
        assert (await client.call("fails"))["result"]["isError"] is True


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({"n": float("nan")}, {"n": None}),
        ({"n": float("inf")}, {"n": None}),
        ({"b": b"\x00\xff"}, {"b": "AP8="}),
        ({"d": decimal.Decimal("1.5")}, {"d": "1.5"}),
        ({"s": {1}}, {"s": [1]}),
        ({1: 2}, {"1": 2}),
        ({"n": 2**70}, {"n": 2**70}),
    ],
    ids=repr,
)
async def test_values_json_has_no_word_for(value: Any, told: Any) -> None:
    """They travel in the nearest form JSON has, or the call says that they cannot."""
    app = Server("failing")
    app.add_tool(lambda: value, name="give")
    async with wire(app) as client:
        result = (await client.call("give"))["result"]
    assert result.get("isError") or result["structuredContent"] == told


async def test_a_number_that_is_none_does_not_pass_for_one() -> None:
    app = Server("failing")

    @app.tool
    def ratio() -> float:
        return float("nan")

    async with wire(app) as client:
        assert (await client.call("ratio"))["result"]["isError"]


async def test_an_answer_that_is_too_large_is_a_clear_error() -> None:
    app = Server("failing", limits=Limits(max_outgoing=1_000_000))
    app.add_tool(lambda size: "x" * int(size), name="give")
    async with wire(app, LEGACY) as client:
        error = (await client.call("give", {"size": 2_000_000}))["error"]
        assert error["code"] == -32603
        assert "max_outgoing" in error["message"]
        assert len(text_of(await client.call("give", {"size": 900_000}))) == 900_000


async def test_long_messages_are_cut() -> None:
    app = Server("failing")
    app.add_tool(raising(ValueError("x" * 10_000_000)), name="fails")
    async with wire(app) as client:
        assert len(text_of(await client.call("fails"))) < 10_000


async def test_errors_whose_data_has_no_json_form_are_still_errors() -> None:
    app = Server("failing")
    app.add_tool(raising(McpError(-32099, "\ud800 bad", {"a": socket.socket()})), name="fails")
    async with wire(app) as client:
        assert (await client.call("fails"))["error"]["code"] == -32099


async def test_a_group_of_one_is_that_one() -> None:
    app = Server("failing")

    @app.tool
    async def fails() -> str:
        async with asyncio.TaskGroup() as group:
            group.create_task(refuse())
        return "never"

    async def refuse() -> None:
        raise ToolError("as I said")

    async with wire(app) as client:
        assert text_of(await client.call("fails")) == "as I said"


# Threads


async def test_more_calls_than_threads_are_all_answered() -> None:
    app = Server("busy", threads=3)
    at_once, most, lock = 0, 0, threading.Lock()
    all_there = threading.Barrier(3)

    @app.tool
    def work(number: int) -> int:
        nonlocal at_once, most
        with lock:
            at_once += 1
            most = max(most, at_once)
        all_there.wait(30)
        with lock:
            at_once -= 1
        return number

    async with wire(app) as client:
        ids = [
            client.request("tools/call", {"name": "work", "arguments": {"number": number}})
            for number in range(51)
        ]
        for number, id in enumerate(ids):
            assert text_of(await client.answer_to(id)) == str(number)
    assert most == 3


async def test_a_backlog_that_is_full_is_a_clear_error() -> None:
    app = Server("busy", threads=1)
    app._pool.backlog = 2
    let_go, begun = threading.Event(), threading.Event()

    @app.tool
    def wait() -> bool:
        begun.set()
        return let_go.wait(60)

    async with wire(app) as client:
        ids = [client.request("tools/call", {"name": "wait", "arguments": {}}) for _ in range(2)]
        assert await asyncio.to_thread(begun.wait, 30)  # one has the thread now
        ids += [client.request("tools/call", {"name": "wait", "arguments": {}}) for _ in range(2)]
        refused = await client.answer_to(ids[-1])
        assert refused["result"]["isError"]
        assert "threads are busy" in text_of(refused)
        let_go.set()
        for id in ids[:-1]:
            assert text_of(await client.answer_to(id)) == "true"


async def test_async_calls_are_never_behind_blocking_ones() -> None:
    app = Server("busy", threads=1)
    let_go = threading.Event()
    app.add_tool(lambda: let_go.wait(60), name="wait")

    @app.tool
    async def quick(ctx: Context) -> str:
        await ctx.progress(1)
        return "quick"

    async with wire(app) as client:
        ids = [client.request("tools/call", {"name": "wait", "arguments": {}}) for _ in range(10)]
        for _ in range(10):
            assert text_of(await client.call("quick")) == "quick"
        let_go.set()
        for id in ids:
            await client.answer_to(id)


async def test_handlers_that_never_return_cost_their_thread_only() -> None:
    app = Server("busy", threads=4)
    never = threading.Event()
    app.add_tool(lambda: never.wait(60), name="hang")
    app.add_tool(lambda: "fine", name="works")
    async with wire(app) as client:
        for _ in range(3):
            client.request("tools/call", {"name": "hang", "arguments": {}})
        for _ in range(20):
            assert text_of(await client.call("works")) == "fine"
    never.set()


async def test_a_server_without_free_descriptors_answers_failures(tmp_path: Path) -> None:
    """It has loaded what an answer to a failure needs before it is needed."""
    script = tmp_path / "server.py"
    script.write_text(
        "import resource, sys\n"
        "from mcpearl import Server\n"
        "app = Server('exhausted')\n"
        "@app.tool\n"
        "async def settled() -> bool:\n"
        "    return {'mcpearl.server.failures', 'mcpearl.types.content'} <= set(sys.modules)\n"
        "@app.tool\n"
        "async def exhaust() -> bool:\n"
        "    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n"
        "    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))\n"
        "    return True\n"
        "@app.tool\n"
        "async def fail() -> bool:\n"
        "    raise ValueError('no bread')\n"
        "@app.tool\n"
        "async def slice(width: int) -> int:\n"
        "    return width\n"
        "app.run()\n"
    )
    async with Client(script) as client:

        async def settled() -> bool:
            return (await client.call_tool("settled")).structured_content == {"result": True}

        await eventually(settled)
        await client.call_tool("exhaust")
        failed = await client.call_tool("fail")
        assert failed.is_error
        assert "no bread" in failed.text
        refused = await client.call_tool("slice", {"width": "thin"})
        assert "`width`" in refused.text
