"""Shedding over HTTP and sockets: what is refused, what passes, and what an attacker costs others."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from mcpearl import Http, Observer, Server, Shedding, Tcp
from mcpearl.auth import StaticTokens
from mcpearl.types.jsonrpc import OVERLOADED
from tests.faults.test_budget import Attacker, posting, status_of
from tests.ports import free_port
from tests.transports.raw_http import LEGACY, Raw, message, modern, until_open

LAG = 0.4


class Bounds(Observer):
    def __init__(self) -> None:
        self.reached: set[str] = set()

    def bound_reached(self, bound: str, detail: str) -> None:
        self.reached.add(bound)


def make_app(lag: float = LAG, **options: Any) -> Server:
    app = Server("busy", shedding=Shedding(lag=lag, retry_after=2.5), grace=0.1, **options)

    @app.tool
    async def work(seconds: float = 0.005) -> str:
        time.sleep(seconds)  # of the loop's time
        return "done"

    @app.tool(task=True)
    async def later() -> str:
        await asyncio.Event().wait()
        return "never"

    return app


@asynccontextmanager
async def serving(app: Server, wire: Any) -> AsyncIterator[Raw]:
    task = asyncio.create_task(app.serve(wire))
    try:
        await until_open(wire.port, task)
        yield Raw(wire.port)
    finally:
        task.cancel()
        await asyncio.wait([task])


def calls(client: Raw, count: int, session: str | None = None) -> list[bytes]:
    """POSTs that call the tool, each with an id of its own."""
    params = {"name": "work", "arguments": {}}
    if session is None:
        asked = [modern("tools/call", params, 1000 + n) for n in range(count)]
    else:
        headers = {"MCP-Protocol-Version": LEGACY, "Mcp-Session-Id": session}
        asked = [(headers, message("tools/call", params, 1000 + n)) for n in range(count)]
    return [posting(client, json.dumps(body).encode(), dict(head)) for head, body in asked]


async def outcomes(
    attacker: Attacker, requests: list[bytes]
) -> tuple[list[dict[str, Any]], list[tuple[str, dict[str, Any]]]]:
    """Send each request on a connection of its own; return the results, and refusals with heads."""
    readers = [(await attacker.connect())[0] for _ in requests]
    for (_, writer), request in zip(attacker.lines[-len(requests) :], requests, strict=True):
        writer.write(request)
    answers = await asyncio.gather(*map(status_of, readers))
    served, refused = [], []
    for status, text in answers:
        head, _, body = text.partition("\r\n\r\n")
        if status == 200:
            served.append(json.loads(body))
        else:
            assert status == 503, text
            refused.append((head, json.loads(body)))
    return served, refused


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_of_too_many_calls_some_are_served_and_the_others_told_to_come_back(era: str) -> None:
    bounds = Bounds()
    app = make_app(0.1, observer=bounds)
    async with serving(app, Http(port=free_port(), health="/health")) as client:
        session = (await client.initialize()).id if era == "legacy" else None
        attacker = Attacker(client.port)
        warm = calls(client, 2, session)
        await outcomes(attacker, warm)  # their head is known from now on
        polled = await task_of(client)
        requests = calls(client, 150, session)
        flood = asyncio.ensure_future(outcomes(attacker, requests))
        passing = await passed(client, polled, flood.done)
        served, refused = await flood
        attacker.leave()
    assert served
    assert refused
    assert passing > 0
    ids = [answer["id"] for answer in served] + [answer["id"] for _, answer in refused]
    assert sorted(ids) == list(range(1000, 1150))
    for head, answer in refused:
        assert "retry-after: 3" in head
        assert answer["error"]["code"] == OVERLOADED
        assert answer["error"]["data"] == {"retryAfter": 2.5}
    assert "Server.shedding" in bounds.reached


async def task_of(client: Raw) -> str:
    """Have a task begun, and return its id."""
    extension = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
    asked = {"io.modelcontextprotocol/clientCapabilities": extension}
    headers, body = modern("tools/call", {"name": "later", "arguments": {}}, **asked)
    answer = await client.post(body, headers)
    id: str = answer.json["result"]["taskId"]
    return id


async def passed(client: Raw, task: str, over: Callable[[], bool]) -> int:
    """Ping, ask for the health and for a task until the flood is over; none of that may be refused.

    The server may say that it is not ready, since its loop is held up; that it lives, it always says.
    """
    extension = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
    asked = {"io.modelcontextprotocol/clientCapabilities": extension}
    count = 0
    while not over():
        headers, body = modern("tasks/get", {"taskId": task}, **asked)
        got = await client.post(body, headers | {"Mcp-Name": task})
        assert got.status == 200, got.body
        assert (await client.request("GET", {}, path="/health/live")).status == 200
        ready = await client.request("GET", {}, path="/health/ready")
        assert ready.json["status"] in ("ready", "not ready"), ready.body
        headers, body = modern("server/discover", {})
        assert (await client.post(body, headers)).status == 200
        count += 1
    return count


ATTACKS = ["calls", "pings", "principals", "pipelined", "halves"]


@pytest.mark.parametrize("attack", ATTACKS)
async def test_a_client_that_floods_costs_others_nothing(attack: str) -> None:
    tokens = StaticTokens({f"{n:032}": f"user {n}" for n in range(200)} | {"h" * 32: "honest"})
    app = make_app(auth=tokens)
    async with serving(app, Http(port=free_port())) as client:
        attacker = Attacker(client.port)
        for _ in range(60):
            await attacker.connect()
        for n, (_, writer) in enumerate(attacker.lines):
            writer.write(attack_of(attack, client, n))
        honest = {"Authorization": f"Bearer {'h' * 32}"}
        for _ in range(10):
            headers, body = modern("tools/call", {"name": "work", "arguments": {}})
            answer = await client.post(body, headers | honest)
            assert answer.status == 200, answer.body
        attacker.leave()


def attack_of(kind: str, client: Raw, number: int) -> bytes:
    token = number if kind == "principals" else 0
    permit = {"Authorization": f"Bearer {token:032}"}
    if kind == "pings":
        headers, body = modern("server/discover", {})
    else:
        headers, body = modern("tools/call", {"name": "work", "arguments": {}})
    request = posting(client, json.dumps(body).encode(), dict(headers) | permit)
    if kind == "halves":
        return request[: len(request) // 2]
    return request * (10 if kind in ("pings", "pipelined") else 1)


async def test_a_flood_on_sockets_costs_other_addresses_nothing() -> None:
    app = make_app()
    wire = Tcp(port=free_port())
    async with serving(app, wire):
        attacker = Attacker(wire.port)
        for _ in range(20):
            await attacker.connect()
        for _, flooding in attacker.lines:
            flooding.write(lines("work", 15))
        readers = [reader for reader, _ in attacker.lines]
        reader, writer = await asyncio.open_connection("127.0.0.1", wire.port)
        for n in range(10):
            writer.write(lines("work", 1, first=n))
            answer = json.loads(await asyncio.wait_for(reader.readline(), 30))
            assert "result" in answer, answer
        answers = [json.loads(await each.readline()) for each in readers for _ in range(15)]
        writer.close()
        attacker.leave()
    refused = [each for each in answers if "error" in each]
    assert 0 < len(refused) < len(answers)
    assert {each["error"]["code"] for each in refused} == {OVERLOADED}


def lines(tool: str, count: int, first: int = 0) -> bytes:
    asked = (
        modern("tools/call", {"name": tool, "arguments": {}}, first + n)[1] for n in range(count)
    )
    return b"".join(json.dumps(each).encode() + b"\n" for each in asked)
