"""What a client does when a server asks or tells: the application's functions, in both eras."""

import asyncio
import functools
import logging
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mcpearl import Client, Context, McpError, RequestTimeout, Server
from mcpearl.client import connection as connection_module
from mcpearl.client import progress as progress_module
from mcpearl.types import CreateMessageResult, ElicitResult, Root, TextContent
from tests.waiting import eventually

from .peers import INITIALIZED, Peer, client_of, legacy_peer

BOTH = pytest.mark.parametrize("protocol", ["2025-11-25", "2026-07-28"])


@dataclass
class Trip:
    city: str
    days: int = 3


def an_app(ask_timeout: float = 300.0) -> Server:
    app = Server("asker", ask_timeout=ask_timeout)

    @app.tool
    async def sample(ctx: Context) -> str:
        answer = await ctx.sample("Say something")
        return answer.content.text

    @app.tool
    async def elicit(ctx: Context) -> str:
        answer = await ctx.elicit("Where to?", Trip)
        return f"{answer.action} {answer.data}"

    @app.tool
    async def visit(ctx: Context) -> str:
        return (await ctx.elicit_url("Log in", "https://example.com/login")).action

    @app.tool
    async def roots(ctx: Context) -> list[str]:
        return [root.uri for root in await ctx.roots()]

    @app.tool
    async def quick() -> str:
        return "quick"

    return app


async def text_of(client: Client, tool: str) -> str:
    result = await client.call_tool(tool, timeout=20)
    assert not result.is_error, result.content
    return result.content[0].text


# Sampling


async def async_sampling(params: Any) -> str:
    return f"heard {params.messages[0].content.text}"


def sync_sampling(params: Any) -> str:
    return f"heard {params.messages[0].content.text}"


def whole_sampling(params: Any) -> CreateMessageResult:
    return CreateMessageResult(
        role="assistant", content=TextContent(text="heard Say something"), model="tiny"
    )


class AsyncObject:
    async def __call__(self, params: Any) -> str:
        return await async_sampling(params)


@BOTH
@pytest.mark.parametrize(
    "callback",
    [
        async_sampling,
        sync_sampling,
        whole_sampling,
        AsyncObject(),
        functools.partial(async_sampling),
        lambda params: async_sampling(params),
    ],
    ids=["async", "sync", "whole", "object", "partial", "lambda"],
)
async def test_sampling_with_every_kind_of_function(protocol: str, callback: Any) -> None:
    async with Client(an_app(), protocol=protocol, sampling=callback) as client:
        assert await text_of(client, "sample") == "heard Say something"


# Elicitation


class TripStruct(msgspec.Struct):
    city: str


@BOTH
@pytest.mark.parametrize(
    ("given", "understood"),
    [
        ({"city": "Oslo", "days": 5}, "accept Trip(city='Oslo', days=5)"),
        ({"city": "Oslo"}, "accept Trip(city='Oslo', days=3)"),
        (TripStruct("Oslo"), "accept Trip(city='Oslo', days=3)"),
        (
            ElicitResult(action="accept", content={"city": "Oslo"}),
            "accept Trip(city='Oslo', days=3)",
        ),
        (False, "decline None"),
        (None, "cancel None"),
        (ElicitResult(action="decline"), "decline None"),
    ],
)
async def test_elicitation_is_answered_in_many_ways(
    protocol: str, given: Any, understood: str
) -> None:
    async with Client(an_app(), protocol=protocol, elicitation=lambda _: given) as client:
        assert await text_of(client, "elicit") == understood


async def ask_the_client(params: dict[str, Any], **options: Any) -> tuple[Peer, dict[str, Any]]:
    """Send one `elicitation/create` to a client; give its answer."""
    peer = legacy_peer()
    async with await client_of(peer, **options):
        peer.send(id="ask", method="elicitation/create", params=params)
        await eventually(lambda: any(m.get("id") == "ask" for m in peer.received))
    return peer, peer.answered("ask")


FORM = {
    "message": "?",
    "requestedSchema": {
        "type": "object",
        "properties": {
            "city": {"type": "string", "default": "Oslo"},
            "days": {"type": "integer", "default": 3},
            "sure": {"type": "boolean"},
        },
        "required": ["city", "sure"],
    },
}


async def test_defaults_of_the_form_are_filled_in() -> None:
    _, answer = await ask_the_client(FORM, elicitation=lambda _: {"sure": True, "days": 1})
    assert answer["result"] == {
        "action": "accept",
        "content": {"city": "Oslo", "days": 1, "sure": True},
    }


@pytest.mark.parametrize("given", [{}, True, {"city": "Rome"}])
async def test_a_form_accepted_without_what_it_requires_is_an_error(given: Any) -> None:
    _, answer = await ask_the_client(FORM, elicitation=lambda _: given)
    assert "sure" in answer["error"]["message"]


@pytest.mark.parametrize("given", [False, None])
async def test_a_form_that_is_not_accepted_has_no_content(given: Any) -> None:
    _, answer = await ask_the_client(FORM, elicitation=lambda _: given)
    assert "content" not in answer["result"]


async def test_a_url_elicitation_is_accepted_without_content() -> None:
    visit = {"mode": "url", "message": "?", "url": "https://x.example", "elicitationId": "1"}
    _, answer = await ask_the_client(visit, elicitation=lambda _: True)
    assert answer["result"] == {"action": "accept"}


@BOTH
async def test_a_url_elicitation_reaches_the_callback(protocol: str) -> None:
    seen = []

    def visit(params: Any) -> bool:
        seen.append((params.mode, params.url))
        return True

    async with Client(an_app(), protocol=protocol, elicitation=visit) as client:
        assert await text_of(client, "visit") == "accept"
    assert seen == [("url", "https://example.com/login")]


# Roots


@BOTH
@pytest.mark.parametrize(
    "roots",
    [
        ["file:///srv"],
        [Path("/srv")],
        ["/srv"],
        "/srv",
        Path("/srv"),
        [Root(uri="file:///srv")],
        lambda: ["file:///srv"],
    ],
)
async def test_roots_in_every_form(protocol: str, roots: Any) -> None:
    async with Client(an_app(), protocol=protocol, roots=roots) as client:
        for _ in range(2):
            result = await client.call_tool("roots")
            assert result.structured_content == {"result": ["file:///srv"]}


async def test_roots_that_can_be_walked_over_only_once() -> None:
    async with Client(an_app(), roots=iter(["file:///srv"])) as client:
        for _ in range(2):
            result = await client.call_tool("roots")
            assert result.structured_content == {"result": ["file:///srv"]}


async def test_async_roots_and_announcing_that_they_changed() -> None:
    async def roots() -> list[str]:
        return ["file:///srv"]

    peer = legacy_peer()
    async with await client_of(peer, roots=roots) as client:
        client.notify_roots_changed()
        peer.send(id=1, method="roots/list")
        await eventually(lambda: any(m.get("id") == 1 and "result" in m for m in peer.received))
    assert peer.asked("notifications/roots/list_changed")


# What a client can do is what it was given


async def test_only_what_was_given_is_declared() -> None:
    for given, declared in (
        ({}, set()),
        ({"sampling": async_sampling}, {"sampling", "tasks"}),
        ({"elicitation": lambda _: None}, {"elicitation", "tasks"}),
        ({"roots": []}, {"roots"}),
    ):
        peer = legacy_peer()
        async with await client_of(peer, **given):
            capabilities = peer.asked("initialize")[0]["params"]["capabilities"]
            assert set(capabilities) == declared | {"extensions"}


@pytest.mark.parametrize("method", ["sampling/createMessage", "elicitation/create", "roots/list"])
async def test_a_question_the_client_did_not_declare_is_refused(method: str) -> None:
    peer = legacy_peer()
    async with await client_of(peer):
        peer.send(id=1, method=method, params={})
    assert peer.answered(1)["error"]["code"] == -32601


# Callbacks that go wrong


def raising(params: Any) -> None:
    raise RuntimeError("secret of the application")


async def async_raising(params: Any) -> None:
    raise RuntimeError("secret of the application")


async def cancelling(params: Any) -> None:
    raise asyncio.CancelledError


def nonsense(params: Any) -> int:
    return 7


def not_json(params: Any) -> dict[str, Any]:
    return {"city": object(), "sure": True}


@pytest.mark.parametrize("callback", [raising, async_raising, cancelling, nonsense, not_json])
async def test_a_legacy_server_gets_an_error_when_a_callback_fails(
    callback: Any, caplog: pytest.LogCaptureFixture
) -> None:
    _, answer = await ask_the_client(FORM, elicitation=callback)
    assert answer["error"]["code"] == -32603
    assert "secret" not in str(answer)
    assert any(r.levelno == logging.ERROR and r.exc_info for r in caplog.records)


@pytest.mark.parametrize("callback", [raising, async_raising, cancelling, nonsense, not_json])
async def test_a_modern_caller_gets_the_error_and_the_client_goes_on(callback: Any) -> None:
    async with Client(an_app(), elicitation=callback) as client:
        with pytest.raises((McpError, TypeError)):
            await client.call_tool("elicit")
        assert await text_of(client, "quick") == "quick"


async def test_a_refusal_of_the_user_travels_as_it_is() -> None:
    def refuse(params: Any) -> None:
        raise McpError(-1, "User rejected sampling request")

    peer = legacy_peer()
    async with await client_of(peer, sampling=refuse):
        params = {"messages": [], "maxTokens": 5}
        peer.send(id=1, method="sampling/createMessage", params=params)
        await eventually(lambda: any(m.get("id") == 1 and "error" in m for m in peer.received))
    assert peer.answered(1)["error"]["code"] == -1


@BOTH
async def test_a_callback_that_never_answers_is_given_up_and_others_go_on(protocol: str) -> None:
    asked = asyncio.Event()

    async def never(params: Any) -> None:
        asked.set()
        await asyncio.Event().wait()

    client = Client(an_app(), protocol=protocol, sampling=never, callback_timeout=2)
    async with client:
        asking = asyncio.ensure_future(client.call_tool("sample"))
        await asyncio.wait_for(asked.wait(), 30)
        assert await text_of(client, "quick") == "quick"
        assert not asking.done()
        # A legacy server is told, and tells its caller; a modern one was only waiting to be asked.
        with pytest.raises((RequestTimeout, McpError), match="sampling/createMessage"):
            await asking
        assert await text_of(client, "quick") == "quick"


@BOTH
async def test_a_blocking_callback_does_not_block_the_loop(protocol: str) -> None:
    entered, release = threading.Event(), threading.Event()

    def blocking(params: Any) -> str:
        entered.set()
        assert release.wait(20)
        return "at last"

    async with Client(an_app(), protocol=protocol, sampling=blocking) as client:
        asking = asyncio.ensure_future(client.call_tool("sample"))
        await eventually(entered.is_set)
        assert await text_of(client, "quick") == "quick"
        release.set()
        assert (await asking).content[0].text == "at last"


async def test_blocking_callbacks_work_again_after_a_reconnect() -> None:
    client = Client(an_app(), sampling=sync_sampling)
    for _ in range(3):
        async with client:
            assert await text_of(client, "sample") == "heard Say something"


async def test_a_question_withdrawn_by_the_server_stops_its_callback() -> None:
    started, stopped = asyncio.Event(), asyncio.Event()

    async def slow(params: Any) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    peer = legacy_peer()
    async with await client_of(peer, elicitation=slow):
        peer.send(id=5, method="elicitation/create", params=FORM)
        await started.wait()
        peer.send(method="notifications/cancelled", params={"requestId": 5})
        await asyncio.wait_for(stopped.wait(), 30)
        await asyncio.sleep(0)
    assert not [m for m in peer.received if m.get("id") == 5]  # nobody waits for an answer


async def test_a_withdrawn_question_of_a_batch_lets_the_others_be_answered() -> None:
    started = asyncio.Event()

    async def slow(params: Any) -> None:
        started.set()
        await asyncio.Event().wait()

    peer = legacy_peer()
    peer["initialize"] = lambda _: INITIALIZED | {"protocolVersion": "2025-03-26"}
    batches: list[Any] = []
    heard = peer.heard
    peer.heard = lambda m: batches.append(m) if isinstance(m, list) else heard(m)  # type: ignore
    async with await client_of(peer, protocol="2025-03-26", sampling=slow, roots=["file:///a"]):
        sampling = {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1}}
        peer.send_raw(
            msgspec.json.encode(
                [
                    {"jsonrpc": "2.0", "id": 1, **sampling},
                    {"jsonrpc": "2.0", "id": 2, "method": "roots/list"},
                ]
            )
        )
        await asyncio.wait_for(started.wait(), 30)
        peer.send(method="notifications/cancelled", params={"requestId": 1})
        await eventually(lambda: batches)
    assert [part["id"] for part in batches[0]] == [2]


# Being told


def a_talker() -> Server:
    app = Server("talker")

    @app.tool
    async def talk(count: int, ctx: Context) -> str:
        for number in range(count):
            await ctx.info(number)
        return "said"

    return app


@BOTH
@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_log_messages_come_in_order(protocol: str, kind: str) -> None:
    heard: list[Any] = []

    async def slowly(params: Any) -> None:
        await asyncio.sleep(0.001 if params.data % 3 else 0)
        heard.append(params.data)

    def at_once(params: Any) -> None:
        heard.append(params.data)

    async with Client(
        a_talker(),
        protocol=protocol,
        log_level="debug",
        on_log=at_once if kind == "sync" else slowly,
    ) as client:
        await client.call_tool("talk", {"count": 50})
        await eventually(lambda: len(heard) == 50)
    assert heard == list(range(50))


@BOTH
async def test_messages_below_the_level_are_not_sent(protocol: str) -> None:
    heard: list[Any] = []
    async with Client(
        a_talker(), protocol=protocol, log_level="error", on_log=heard.append
    ) as client:
        await client.call_tool("talk", {"count": 3})
        await client.set_log_level("info")
        await client.call_tool("talk", {"count": 1})
    assert [params.data for params in heard] == [0]


async def test_notifications_of_all_kinds_reach_the_application() -> None:
    peer = legacy_peer()
    heard: list[str] = []
    async with await client_of(peer, on_notification=lambda n: heard.append(n.method)):
        for method, params in (
            ("notifications/tools/list_changed", {}),
            ("notifications/resources/updated", {"uri": "x://"}),
            ("notifications/message", {"level": "info", "data": 1}),
            ("notifications/nobody/knows", {}),
            ("notifications/resources/updated", {"no": "uri"}),
            ("notifications/prompts/list_changed", {}),
        ):
            peer.send(method=method, params=params)
    assert heard == [
        "notifications/tools/list_changed",
        "notifications/resources/updated",
        "notifications/message",
        "notifications/prompts/list_changed",
    ]


@pytest.mark.parametrize("kind", ["sync", "async", "cancelled"])
async def test_a_notification_callback_that_raises_is_logged_and_the_next_runs(kind: str) -> None:
    heard: list[int] = []

    def sync(params: Any) -> None:
        heard.append(params.data)
        raise RuntimeError("no")

    async def later(params: Any) -> None:
        await asyncio.sleep(0)
        sync(params)

    async def cancelled(params: Any) -> None:
        heard.append(params.data)
        await asyncio.sleep(0)
        raise asyncio.CancelledError

    callback = {"sync": sync, "async": later, "cancelled": cancelled}[kind]
    async with Client(a_talker(), log_level="info", on_log=callback) as client:
        await client.call_tool("talk", {"count": 10})
        await eventually(lambda: len(heard) == 10)
    assert heard == list(range(10))


async def test_a_flood_waits_for_a_slow_callback_and_nothing_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection_module, "MAX_WAITING_NOTICES", 100)
    peer = legacy_peer()
    gate = asyncio.Event()
    heard: list[int] = []

    async def slow(params: Any) -> None:
        await gate.wait()
        heard.append(params.data)

    client = await client_of(peer, on_log=slow)
    async with client:
        for number in range(1000):
            peer.send(method="notifications/message", params={"level": "info", "data": number})
            if number % 50 == 0:
                await asyncio.sleep(0)
        connection = client._link.connection
        assert len(connection._notices) <= 100 + 50  # a read's worth over the limit at most
        gate.set()
        await eventually(lambda: len(heard) == 1000)
    assert heard == list(range(1000))


async def test_reading_goes_on_only_when_every_queue_has_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Log messages and progress wait in queues of their own; one that drains must not undo the other."""
    monkeypatch.setattr(connection_module, "MAX_WAITING_NOTICES", 10)
    monkeypatch.setattr(progress_module, "MAX_WAITING_NOTICES", 10)
    peer = legacy_peer(tools_call=lambda _: None)
    logs, steps = asyncio.Event(), asyncio.Event()

    async def on_log(params: Any) -> None:
        await logs.wait()

    async def on_progress(params: Any) -> None:
        await steps.wait()

    client = await client_of(peer, on_log=on_log, on_progress=on_progress, validate_output=False)
    async with client:
        calling = asyncio.ensure_future(client.call_tool("x"))
        await eventually(lambda: peer.asked("tools/call"))
        id = peer.asked("tools/call")[0]["id"]
        connection = client._link.connection
        wire: Any = connection.transport
        wire.pause()
        for number in range(11):  # one at work and ten waiting, which is all a queue takes
            step = {"progressToken": id, "progress": number}
            peer.send(method="notifications/progress", params=step)
            peer.send(method="notifications/message", params={"level": "info", "data": number})
        wire.resume()  # one read that fills both
        assert wire._paused
        logs.set()
        await eventually(lambda: not len(connection._notices))
        assert wire._paused
        steps.set()
        await eventually(lambda: not wire._paused)
        peer.send(id=id, result={"content": []})
        await calling


async def test_callbacks_still_running_when_the_client_closes_are_stopped() -> None:
    stopped = asyncio.Event()

    async def on_log(params: Any) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    started = time.monotonic()
    async with Client(a_talker(), log_level="info", on_log=on_log) as client:
        await client.call_tool("talk", {"count": 3})
    await asyncio.wait_for(stopped.wait(), 30)
    assert time.monotonic() - started < 20


@BOTH
@pytest.mark.parametrize("refusal", [None, False])
async def test_a_refused_sampling_request_fails_the_call_with_its_code(
    protocol: str, refusal: Any
) -> None:
    async with Client(an_app(), protocol=protocol, sampling=lambda params: refusal) as client:
        with pytest.raises(McpError, match="refused") as refused:
            await client.call_tool("sample")
        assert refused.value.code == -1
        assert await text_of(client, "quick") == "quick"
