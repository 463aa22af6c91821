"""Upstreams that are dead, slow, lying, flooding or gone: each costs its own tools and no more."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from mcpearl import Client, McpError, Reconnect, Server
from mcpearl.gateway.gateway import Gateway
from mcpearl.gateway.settings import UpstreamSettings
from mcpearl.testing.clock import MovableClock
from tests.gateway.upstream_server import LEGACY, MODERN, make
from tests.ports import free_port
from tests.server.wire import wire
from tests.waiting import eventually

SERVER = str(Path(__file__).with_name("upstream_server.py"))
LIAR = str(Path(__file__).with_name("liar.py"))
QUICK = UpstreamSettings(
    timeout=10.0,
    patience=0.5,
    connect_timeout=5.0,
    reconnect=Reconnect(delays=(0.05,)),
    failures=3,
)
PATIENT = replace(QUICK, patience=30.0)  # for upstreams that have to start first


def command(versions: tuple[str, ...] = MODERN) -> list[str]:
    return [sys.executable, SERVER, ",".join(versions)]


def liar(how: str) -> list[str]:
    return [sys.executable, LIAR, how]


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")
    return not status.exists() or status.read_text().rpartition(")")[2].split()[0] != "Z"


async def test_an_upstream_that_is_not_there_costs_its_own_tools() -> None:
    config = {
        "good": make(MODERN),
        "gone": f"http://127.0.0.1:{free_port()}/mcp",
        "none": ["/no/such/command"],
        "quits": [sys.executable, "-c", "raise SystemExit(3)"],
    }
    gateway = Gateway(config, upstreams=QUICK)
    async with Client(gateway) as client:
        assert (await client.call_tool("good__add", {"a": 1, "b": 2})).data == 3
        listed = await client.list_tools()
        assert {tool.name.partition("__")[0] for tool in listed.tools} == {"good"}
        missing = (listed.meta or {})["mcpearl/unavailable"]
        assert set(missing) == {"gone", "none", "quits"}
        with pytest.raises(McpError, match="`gone` is not there"):
            await client.call_tool("gone__x")
        states = {name: status.state for name, status in gateway.servers.items()}
        assert states == {"good": "ready", "gone": "down", "none": "down", "quits": "down"}


async def test_a_slow_upstream_is_left_out_of_lists_after_a_moment() -> None:
    gateway = Gateway({"good": make(MODERN), "mute": liar("silent")}, upstreams=QUICK)
    async with Client(gateway) as client:
        listed = await client.list_tools()
        assert "good__add" in [tool.name for tool in listed.tools]
        assert "mute" in (listed.meta or {})["mcpearl/unavailable"]


@pytest.mark.parametrize("versions", [LEGACY, MODERN], ids=["legacy", "modern"])
async def test_an_upstream_that_dies_comes_back_and_nothing_runs_twice(
    versions: tuple[str, ...], tmp_path: Path
) -> None:
    heard: list[str] = []
    gateway = Gateway({"up": command(versions)}, upstreams=PATIENT)
    async with Client(gateway, on_notification=lambda n: heard.append(n.method)) as client:
        await client.subscribe("note://one")
        with pytest.raises(McpError, match="the call may have run") as failed:
            await client.call_tool("up__crash")
        assert failed.value.data == {"server": "up", "mayHaveRun": True}

        async def works() -> bool:
            try:
                return (await client.call_tool("up__add", {"a": 1, "b": 2})).data == 3
            except McpError:
                return False

        await eventually(works)
        heard.clear()
        await client.call_tool("up__touch")
        await eventually(lambda: "notifications/resources/updated" in heard)


class _Hand:
    """The clock of breakers, which only the test moves: a machine under load changes nothing."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


async def test_a_breaker_opens_and_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    hand = _Hand()
    monkeypatch.setattr("mcpearl.runtime.breaker.clock", hand)
    port = free_port()
    gateway = Gateway({"up": f"tcp://127.0.0.1:{port}"}, upstreams=QUICK)
    upstream = make(MODERN)
    async with Client(gateway) as client:

        async def works() -> bool:
            hand.now += 120  # longer than a breaker is ever open
            try:
                result = await client.call_tool("up__add", {"a": 1, "b": 2})
            except McpError:
                return False
            # Not `data`: the gateway may not have the list yet that the client would read it by.
            return result.structured_content == {"result": 3}

        async def refusal() -> McpError:
            with pytest.raises(McpError, match="`up`") as refused:
                await client.call_tool("up__add", {"a": 1, "b": 2})
            return refused.value

        async with upstream.serving("tcp", port=port):
            await eventually(works)
        for _ in range(QUICK.failures):
            assert "keeps failing" not in (await refusal()).message
        for _ in range(3):
            refused = await refusal()
            assert "keeps failing" in refused.message
            assert 0 < refused.data["retryAfter"] <= 2
        hand.now += 120
        assert "keeps failing" not in (await refusal()).message  # a trial, which fails
        assert "keeps failing" in (await refusal()).message
        async with upstream.serving("tcp", port=port):
            await eventually(works)
            assert gateway.upstreams["up"].breaker.state == "closed"


@pytest.mark.parametrize("versions", [LEGACY, MODERN], ids=["legacy", "modern"])
async def test_no_process_session_or_parked_call_is_left(versions: tuple[str, ...]) -> None:
    gateway = Gateway({"up": command(versions)}, upstreams=PATIENT)
    pids: set[int] = set()
    asked: list[Any] = []

    async def never(params: Any) -> Any:
        asked.append(params)
        await asyncio.Event().wait()

    async with gateway.serving("http", port=0) as url:
        for number, protocol in enumerate((LEGACY[0], MODERN[0]), 1):
            async with Client(url, protocol=protocol, elicitation=never) as client:
                pids.add((await client.call_tool("up__who")).data["pid"])
                call = asyncio.create_task(client.call_tool("up__ask", {"question": "?"}))
                await eventually(lambda: len(asked) == number)  # noqa: B023
                call.cancel()
        await eventually(lambda: gateway.mounts["up"].calls == 0)
    await eventually(lambda: not any(alive(pid) for pid in pids))
    upstream = gateway.upstreams["up"]
    assert upstream.sessions == 0
    assert len(upstream.parked) == 0


async def test_clients_do_not_see_what_belongs_to_others() -> None:
    """A hostile client gets neither questions, states, log messages nor sessions of another."""
    gateway = Gateway({"old": command(LEGACY), "new": command(MODERN)}, upstreams=PATIENT)
    seen: list[Any] = []

    async def spy(params: Any) -> Any:
        seen.append(params)
        return True

    async def slowly(params: Any) -> Any:
        await asyncio.sleep(0.05)
        return {"value": "mine"}

    async with gateway.serving("http", port=0) as url:
        clients = [
            Client(url, protocol=each, elicitation=callback, on_log=log)
            for each in (LEGACY[0], MODERN[0])
            for callback, log in ((slowly, None), (spy, seen.append))
        ]
        for client in clients:
            await client.connect()
        try:
            honest, spies = clients[::2], clients[1::2]
            for up in ("old", "new"):
                calls = [c.call_tool(f"{up}__ask", {"question": "secret?"}) for c in honest]
                calls += [c.call_tool(f"{up}__slow", {"seconds": 0.1}) for c in spies]
                results = await asyncio.gather(*calls)
                assert [r.data for r in results[:2]] == ["secret? accept mine"] * 2
            assert seen == []
            pids = [(await c.call_tool("old__who")).data["pid"] for c in clients[:2]]
            assert pids[0] != pids[1]
        finally:
            for client in clients:
                await client.close()


async def test_nothing_of_the_caller_is_passed_on_unless_configured() -> None:

    upstream = make(MODERN)
    async with upstream.serving("http", port=0) as inner:
        gateway = Gateway({"up": {"url": inner, "headers": {"Authorization": "Bearer own"}}})
        async with (
            gateway.serving("http", port=0) as url,
            Client(url, headers={"Authorization": "Bearer callers"}) as client,
        ):
            who = (await client.call_tool("up__who")).data
            assert who["authorization"] == "Bearer own"


async def test_many_calls_at_once_each_have_one_outcome() -> None:
    app = Server("up")
    ran: list[int] = []

    @app.tool
    async def note(number: int) -> int:
        ran.append(number)
        await asyncio.sleep(0)
        return number

    gateway = Gateway({"up": app})
    async with Client(gateway) as client:
        results = await asyncio.gather(
            *(client.call_tool("up__note", {"number": n}) for n in range(2000))
        )
    assert [result.data for result in results] == list(range(2000))
    assert sorted(ran) == list(range(2000))


async def test_sessions_of_single_clients_are_bounded_and_end_when_idle() -> None:
    settings = replace(PATIENT, max_sessions=1, idle=0.2)
    gateway = Gateway({"up": command(LEGACY)}, upstreams=settings)
    async with gateway.serving("http", port=0) as url:
        options: dict[str, Any] = {"protocol": MODERN[0], "elicitation": lambda p: {"value": "x"}}
        async with Client(url, **options) as client:
            results = await asyncio.gather(
                *(client.call_tool("up__ask", {"question": "?"}) for _ in range(3)),
                return_exceptions=True,
            )
            refused = [each for each in results if isinstance(each, McpError)]
            assert len(refused) == 2
            assert "`max_sessions`" in refused[0].message
            upstream = gateway.upstreams["up"]
            await eventually(lambda: upstream.sessions == 0)
            assert not upstream._legs._idle
            assert (await client.call_tool("up__ask", {"question": "?"})).data == "? accept x"


async def test_an_upstream_is_not_to_blame_for_clients_that_do_not_answer(
    clock: MovableClock, caplog: pytest.LogCaptureFixture
) -> None:
    settings = UpstreamSettings(timeout=10.0, failures=2)
    gateway = Gateway({"up": make(LEGACY)}, upstreams=settings, state_ttl=100.0)
    async with wire(gateway, MODERN[0]) as client:
        for number in range(4):
            asked = await client.call("up__ask", {"question": f"{number}?"})
            assert asked["result"]["resultType"] == "input_required"
        await clock.advance(50)
        assert len(gateway.upstreams["up"].parked) == 4
        added = await client.call("up__add", {"a": 1, "b": 2})
        assert added["result"]["structuredContent"] == {"result": 3}
        await clock.advance(51)
        await eventually(lambda: len(gateway.upstreams["up"].parked) == 0)
        added = await client.call("up__add", {"a": 1, "b": 2})
        assert added["result"]["structuredContent"] == {"result": 3}
    assert not [each for each in caplog.records if each.levelname == "ERROR"]


async def test_parked_calls_are_bounded_and_given_up_when_no_answer_comes() -> None:
    settings = replace(PATIENT, max_parked=1)
    gateway = Gateway({"up": command(LEGACY)}, upstreams=settings, state_ttl=1.0)
    async with wire(gateway, MODERN[0]) as client:
        asked = await client.call("up__ask", {"question": "?"})
        assert asked["result"]["resultType"] == "input_required"
        refused = await client.call("up__ask", {"question": "another?"})
        assert "`max_parked`" in refused["error"]["message"]
        await eventually(lambda: len(gateway.upstreams["up"].parked) == 0)
        again = await client.call("up__ask", {"question": "another?"})
        assert again["result"]["resultType"] == "input_required"
