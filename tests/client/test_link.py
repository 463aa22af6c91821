"""Losing a connection and coming back: what the application sees, what is restored, what is repeated."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from mcpearl import (
    Client,
    ConnectionLost,
    Context,
    LimitReached,
    Limits,
    McpError,
    Phase,
    Reconnect,
    RequestTimeout,
    Server,
)
from mcpearl.types.tools import ToolAnnotations
from tests.waiting import eventually

from .peers import Script, client_of, modern_peer

BOTH = pytest.mark.parametrize("protocol", ["2025-11-25", "2026-07-28"])
HANGS = 60  # seconds after which a test has failed
QUICK = Reconnect(delays=(0.01,))
SLOW = Reconnect(delays=(30.0,))


class Ledger:
    """A server whose tools leave a trace, and can be held up until they are let go."""

    def __init__(self, **options: Any) -> None:
        self.app = Server("ledger", **options)
        self.ran: list[str] = []
        self.gate = asyncio.Event()
        app = self.app

        @app.tool
        async def charge() -> str:
            self.ran.append("charge")
            await self.gate.wait()
            return "charged"

        @app.tool(annotations=ToolAnnotations(idempotent_hint=True))
        async def put() -> str:
            self.ran.append("put")
            await self.gate.wait()
            return "put"

        @app.tool(annotations=ToolAnnotations(read_only_hint=True))
        async def look() -> str:
            self.ran.append("look")
            await self.gate.wait()
            return "seen"

        @app.tool
        async def note(ctx: Context) -> str:
            await ctx.debug("a detail")
            await ctx.warning("a warning")
            return "noted"

        @app.tool
        async def ask(ctx: Context) -> list[str]:
            return [root.uri for root in await ctx.roots()]

        @app.resource("x://one")
        async def one() -> str:
            return "1"

        @app.resource("x://two")
        async def two() -> str:
            return "2"

    async def cut(self) -> None:
        """Lose every client."""
        for connection in list(self.app.core.roster):
            await connection.transport.close()


# The policy


def test_the_delays_of_a_policy_grow_and_stay_at_the_last() -> None:
    policy = Reconnect()
    assert [policy.nominal(n) for n in range(8)] == [1, 2, 4, 8, 16, 30, 30, 30]
    for attempt in range(8):
        nominal = policy.nominal(attempt)
        assert all(0.75 * nominal <= policy.delay(attempt) <= 1.25 * nominal for _ in range(50))
    assert len({policy.delay(0) for _ in range(10)}) > 1


@pytest.mark.parametrize(
    "wrong", [{"delays": ()}, {"delays": (-1.0,)}, {"max_attempts": 0}, {"jitter": 2.0}]
)
def test_policies_with_impossible_figures_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="Reconnect"):
        Reconnect(**wrong)


async def test_a_transport_cannot_be_opened_twice() -> None:
    target = await modern_peer().target()
    with pytest.raises(ValueError, match="opened only once"):
        Client(target, reconnect=True)


# States


@BOTH
async def test_each_phase_of_a_reconnect_reaches_on_state(protocol: str) -> None:
    ledger = Ledger()
    states: list[Phase] = []
    client = Client(ledger.app, protocol=protocol, reconnect=QUICK, on_state=states.append)
    assert client.state is Phase.DISCONNECTED
    async with client:
        assert states == ["connecting", "initializing", "ready"]
        states.clear()
        await ledger.cut()
        assert client.state == "failed"
        await client.ping()
        assert states == ["failed", "connecting", "initializing", "ready"]
        assert client.protocol_version == protocol
        states.clear()
    assert states == ["closing", "closed"]


async def test_without_a_policy_a_lost_connection_closes_the_client() -> None:
    ledger = Ledger()
    states: list[Phase] = []
    async with Client(ledger.app, on_state=states.append) as client:
        await ledger.cut()
        assert states[-2:] == ["failed", "closed"]
        with pytest.raises(ConnectionLost, match="not sent") as caught:
            await client.call_tool("charge")
        assert not caught.value.maybe_executed
    assert not ledger.ran


async def test_a_state_callback_that_is_slow_or_raises() -> None:
    ledger = Ledger()
    seen: list[Phase] = []
    go_on = asyncio.Event()

    async def slowly(phase: Phase) -> None:
        await go_on.wait()
        seen.append(phase)
        raise RuntimeError("no")

    async with Client(ledger.app, reconnect=QUICK, on_state=slowly) as client:
        for _ in range(40):
            await ledger.cut()
            await client.ping()
    go_on.set()
    await eventually(lambda: seen and seen[-1] is Phase.CLOSED)
    assert len(seen) < 163  # some were skipped, the last was not


async def test_a_client_gives_up_after_max_attempts() -> None:
    ledger = Ledger()
    policy = Reconnect(delays=(0.01,), max_attempts=3)
    async with Client(ledger.app, reconnect=policy) as client, client.listen(tools=True) as changes:
        ledger.app.connect = _refuse  # type: ignore[method-assign, assignment]
        reading = asyncio.ensure_future(anext(changes))
        await ledger.cut()
        with pytest.raises(ConnectionLost, match="gave up after 3 attempts: not today"):
            await client.call_tool("charge")
        with pytest.raises(ConnectionLost, match="gave up"):
            await reading
        assert client.state is Phase.CLOSED
        with pytest.raises(ConnectionLost, match="gave up"):
            await client.list_tools()


async def _refuse(transport: object) -> None:
    raise ConnectionLost("not today")


async def test_a_connection_that_lasts_starts_the_delays_anew() -> None:
    ledger = Ledger()
    policy = Reconnect(delays=(0.0, 0.0, 3600.0), jitter=0, settled_after=0)
    async with asyncio.timeout(HANGS), Client(ledger.app, reconnect=policy) as client:
        for _ in range(5):
            await ledger.cut()
            await client.ping()
        assert client.state is Phase.READY


async def test_a_connection_that_does_not_last_makes_the_delays_grow() -> None:
    ledger = Ledger()
    policy = Reconnect(delays=(0.0, 0.0, 3600.0), jitter=0, settled_after=3600)
    async with asyncio.timeout(HANGS), Client(ledger.app, reconnect=policy) as client:
        for _ in range(2):
            await ledger.cut()
            await client.ping()
        await ledger.cut()
        with pytest.raises(ConnectionLost, match="not sent in time"):
            await client.ping(timeout=0.1)


async def test_closing_while_reconnecting_fails_waiting_calls() -> None:
    ledger = Ledger()
    before = asyncio.all_tasks()
    async with Client(ledger.app, reconnect=SLOW) as client:
        await ledger.cut()
        waiting = asyncio.ensure_future(client.call_tool("charge"))
        await asyncio.sleep(0)
        assert not waiting.done()
    with pytest.raises(ConnectionLost, match="closed"):
        await waiting
    assert client.state is Phase.CLOSED
    await eventually(lambda: asyncio.all_tasks() == before)
    async with client:  # and it can be used again
        await client.ping()


async def test_the_first_connection_is_not_tried_again() -> None:
    client = Client(["/nonexistent/server"], reconnect=QUICK)
    with pytest.raises(ConnectionLost, match="was not found"):
        await client.connect()
    assert client.state is Phase.CLOSED


# Waiting


async def test_a_call_waits_no_longer_than_its_own_time() -> None:
    ledger = Ledger()
    async with Client(ledger.app, reconnect=SLOW) as client:
        await ledger.cut()
        with pytest.raises(ConnectionLost, match="not sent in time") as caught:
            await client.call_tool("charge", timeout=0.05)
        assert not caught.value.maybe_executed


async def test_a_call_that_waited_for_a_connection_has_what_is_left_of_its_time() -> None:
    ledger = Ledger()
    policy = Reconnect(delays=(0.2,), jitter=0)
    async with Client(ledger.app, reconnect=policy) as client:
        await ledger.cut()
        calling = asyncio.ensure_future(client.call_tool("charge", timeout=2))
        await asyncio.sleep(0)
        latest = asyncio.get_running_loop().time() + 2
        await eventually(lambda: ledger.ran)
        assert client._link.connection.end.pending.next_deadline() <= latest
        with pytest.raises(RequestTimeout, match="within 2 s"):
            await calling
    assert ledger.ran == ["charge"]


async def test_calls_waiting_for_a_connection_are_bounded() -> None:
    ledger = Ledger()
    async with Client(ledger.app, reconnect=SLOW, limits=Limits(max_pending=3)) as client:
        await ledger.cut()
        waiting = [asyncio.ensure_future(client.ping()) for _ in range(3)]
        await asyncio.sleep(0)
        with pytest.raises(LimitReached, match="3 calls are already waiting"):
            await client.ping()
    assert await asyncio.gather(*waiting, return_exceptions=True)


# What may be asked again


@BOTH
@pytest.mark.parametrize("listed", [True, False])
async def test_a_tool_without_hints_is_not_called_again(protocol: str, listed: bool) -> None:
    ledger = Ledger()
    async with Client(ledger.app, protocol=protocol, reconnect=QUICK) as client:
        if listed:
            await client.list_tools()
        calling = asyncio.ensure_future(client.call_tool("charge"))
        await eventually(lambda: ledger.ran)
        await ledger.cut()
        with pytest.raises(ConnectionLost) as caught:
            await calling
        assert caught.value.maybe_executed
        await client.ping()
    assert ledger.ran == ["charge"]


async def test_a_call_that_must_not_run_twice_fails_at_once() -> None:
    ledger = Ledger()
    async with Client(ledger.app, reconnect=SLOW) as client:
        await client.list_tools()
        calling = asyncio.ensure_future(client.call_tool("charge"))
        await eventually(lambda: ledger.ran)
        await ledger.cut()
        with pytest.raises(ConnectionLost):
            await asyncio.wait_for(calling, 30)


@BOTH
@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize("tool", ["put", "look"])
async def test_a_tool_marked_idempotent_or_read_only_is_called_again(
    protocol: str, tool: str, listed: bool
) -> None:
    ledger = Ledger()
    async with Client(ledger.app, protocol=protocol, reconnect=QUICK) as client:
        if listed:
            await client.list_tools()
        calling = asyncio.ensure_future(client.call_tool(tool))
        await eventually(lambda: ledger.ran)
        await ledger.cut()
        await eventually(lambda: len(ledger.ran) == 2)
        ledger.gate.set()
        assert not (await calling).is_error
    assert ledger.ran == [tool, tool]


async def test_a_call_that_may_have_run_says_so_when_no_connection_comes() -> None:
    ledger = Ledger()
    policy = Reconnect(delays=(30.0,))
    async with Client(ledger.app, reconnect=policy) as client:
        await client.list_tools()
        calling = asyncio.ensure_future(client.call_tool("put", timeout=2))
        await eventually(lambda: ledger.ran)
        await ledger.cut()
        with pytest.raises(ConnectionLost) as caught:  # it could be repeated, but nobody came back
            await calling
        assert caught.value.maybe_executed


async def test_reads_are_sent_again() -> None:
    peer_cuts = 0
    app = Server("reads")

    @app.resource("x://one")
    async def one() -> str:
        nonlocal peer_cuts
        peer_cuts += 1
        if peer_cuts < 4:
            for connection in list(app.core.roster):
                await connection.transport.close()
        return "1"

    async with Client(app, reconnect=QUICK) as client:
        assert (await client.read_resource("x://one")).contents
    assert peer_cuts == 4


# What is restored


@BOTH
async def test_subscriptions_are_restored(protocol: str) -> None:
    ledger = Ledger()
    heard: list[str] = []
    async with Client(
        ledger.app,
        protocol=protocol,
        reconnect=QUICK,
        on_notification=lambda notice: heard.append(notice.params.uri),
    ) as client:
        for uri in ("x://one", "x://two"):
            await client.subscribe(uri)
        await client.unsubscribe("x://two")
        for turn in range(3):
            await ledger.cut()
            await eventually(lambda: client.state is Phase.READY)
            for uri in ("x://one", "x://two"):
                ledger.app.notify_resource_updated(uri)
            await eventually(lambda turn=turn: len(heard) == turn + 1)
    assert heard == ["x://one"] * 3
    assert ledger.app.core.subscriptions.counts()["uris"] == 0


async def test_a_listen_stream_continues_on_the_new_connection() -> None:
    ledger = Ledger()
    async with (
        Client(ledger.app, reconnect=QUICK) as client,
        client.listen(resources=["x://one"]) as changes,
    ):
        for _ in range(3):
            await ledger.cut()
            await eventually(lambda: client.state is Phase.READY)
            ledger.app.notify_resource_updated("x://one")
            assert (await anext(changes)).params.uri == "x://one"
        assert not changes.ended
    assert changes.ended


async def test_a_subscription_the_new_server_refuses_is_dropped() -> None:
    ledger = Ledger()

    async def refuse(uri: str, ctx: Context) -> None:
        raise McpError(-32602, "no such thing")

    async with Client(ledger.app, protocol="2025-11-25", reconnect=QUICK) as client:
        await client.subscribe("x://one")
        ledger.app.handler.subscribe = refuse  # type: ignore[method-assign]
        await ledger.cut()
        await client.ping()
        assert not len(client._subscriptions)


@BOTH
async def test_the_log_level_is_set_again(protocol: str) -> None:
    ledger = Ledger()
    said: list[Any] = []
    async with Client(
        ledger.app, protocol=protocol, reconnect=QUICK, on_log=lambda log: said.append(log.data)
    ) as client:
        await client.set_log_level("warning")
        await ledger.cut()
        await client.call_tool("note")
        await client.set_log_level("debug")
        await ledger.cut()
        await client.call_tool("note")
    assert said == ["a warning", "a detail", "a warning"]


@BOTH
async def test_the_new_session_can_ask_for_the_roots(protocol: str) -> None:
    ledger = Ledger()
    async with Client(
        ledger.app, protocol=protocol, reconnect=QUICK, roots=["file:///a"]
    ) as client:
        await ledger.cut()
        client.notify_roots_changed()  # nobody is there; the next one asks
        result = await client.call_tool("ask")
        assert result.structured_content == {"result": ["file:///a"]}


async def test_cached_results_are_dropped_on_reconnect() -> None:
    ledger = Ledger(list_ttl_ms=60_000)
    async with Client(ledger.app, reconnect=QUICK) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        await ledger.cut()
        ledger.app.remove_tool("charge")  # while nobody is there to be told
        await client.ping()
        assert "charge" in names
        assert "charge" not in [tool.name for tool in (await client.list_tools()).tools]


async def test_a_server_that_comes_back_as_one_of_the_other_era(tmp_path: Path) -> None:
    script = Script(
        tmp_path,
        """
        first = not os.path.exists(LOG + ".met")
        open(LOG + ".met", "w").close()
        welcome(modern=first)
        for message in messages():
            if message["method"] == "subscriptions/listen":
                meta = {"io.modelcontextprotocol/subscriptionId": message["id"]}
                wanted = message["params"]["notifications"]
                send(method="notifications/subscriptions/acknowledged",
                     params={"notifications": wanted, "_meta": meta})
            elif message["method"] == "tools/call":
                sys.exit(3)
            elif "id" in message:
                answer(message, {})
        """,
    )
    async with Client(str(script.path), reconnect=QUICK) as client:
        assert client.era == "modern"
        await client.subscribe("x://one")
        stream = client.listen(tools=True)
        await stream.open()
        with pytest.raises(ConnectionLost, match="code 3"):
            await client.call_tool("t", timeout=5)
        await client.ping()
        assert client.era == "legacy"
        assert "resources/subscribe" in script.methods()
        with pytest.raises(McpError, match="not part of protocol version"):
            await anext(stream)


async def test_a_request_that_was_not_sent_is_sent_on_the_next_connection(tmp_path: Path) -> None:
    # Between the end of a process and the news of it there is a moment to ask in.
    script = Script(tmp_path, "welcome()\nfor m in messages():\n    answer(m, {'content': []})\n")
    async with Client(str(script.path), reconnect=QUICK, validate_output=False) as client:
        transport: Any = client._link.connection.transport  # type: ignore[union-attr]
        transport._child._pipes[0].abort()
        await asyncio.sleep(0)
        result = await client.call_tool("t", timeout=20)  # not idempotent, yet sent: it never was
        assert not result.is_error
    assert script.methods().count("tools/call") == 1


async def test_a_peer_in_memory_is_not_pinged() -> None:
    peer = modern_peer()
    async with await client_of(peer) as client:
        assert client._link.connection._watch is None  # type: ignore[union-attr]


async def test_a_result_is_returned_although_the_connection_is_lost_before_its_check(
    tmp_path: Path,
) -> None:
    """What a tool promises is looked up after its first call, but not on another connection."""
    script = tmp_path / "once.py"
    script.write_text(
        "import asyncio, os\n"
        "from mcpearl import Server\n"
        "app = Server('once')\n"
        "@app.tool\n"
        "async def last() -> int:\n"
        "    asyncio.get_running_loop().call_later(0.02, os._exit, 1)\n"
        "    return 1\n"
        "@app.middleware\n"
        "async def slow_lists(ctx, call_next):\n"
        "    if ctx.method == 'tools/list':\n"
        "        await asyncio.sleep(60)\n"
        "    return await call_next()\n"
        "app.run()\n"
    )
    async with Client(str(script), reconnect=Reconnect(delays=(30.0,))) as client:
        async with asyncio.timeout(30):
            result = await client.call_tool("last")
        assert result.content[0].text == "1"
