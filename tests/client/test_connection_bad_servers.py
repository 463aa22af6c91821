"""Servers that break the rules cost themselves an answer, never the client its life."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mcpearl import (
    Client,
    ConnectionLost,
    InvalidResult,
    LimitReached,
    Limits,
    McpError,
    RequestTimeout,
)
from mcpearl.types import Result
from tests.waiting import eventually

from .peers import Message, Script, client_of, legacy_peer, modern_peer

DONE: Message = {"content": [{"type": "text", "text": "done"}]}


async def test_only_the_first_answer_to_a_request_counts() -> None:
    peer = modern_peer()

    def twice(message: Message) -> Message:
        peer.send(id=message["id"], result=DONE)
        peer.send(id=message["id"], error={"code": 1, "message": "or not"})
        return {"content": []}

    peer["tools/call"] = twice
    async with await client_of(peer, validate_output=False) as client:
        for _ in range(3):
            assert (await client.call_tool("t")).content[0].text == "done"


@pytest.mark.parametrize(
    "id", [0, -1, 99, 10**30, 1.0, "1", "", None, True, [1], {"id": 1}], ids=repr
)
async def test_answers_with_an_unknown_id_are_ignored(id: Any) -> None:
    peer = modern_peer(tools_call=lambda _: None)
    async with await client_of(peer, validate_output=False) as client:
        calling = asyncio.ensure_future(client.call_tool("t"))
        await eventually(lambda: peer.asked("tools/call"))
        peer.send(id=id, result={"content": "stolen"})
        peer.send(id=id, error={"code": 1, "message": "stolen"})
        peer.send(id=peer.asked("tools/call")[0]["id"], result=DONE)
        assert (await calling).content[0].text == "done"


async def test_an_answer_with_both_result_and_error_or_neither_is_ignored() -> None:
    peer = modern_peer(tools_call=lambda _: None)
    async with await client_of(peer, validate_output=False) as client:
        calling = asyncio.ensure_future(client.call_tool("t"))
        await eventually(lambda: peer.asked("tools/call"))
        id = peer.asked("tools/call")[0]["id"]
        peer.send(id=id, result=DONE, error={"code": 1, "message": "both"})
        peer.send(id=id)
        await asyncio.sleep(0)
        assert not calling.done()
        peer.send(id=id, result=DONE)
        await calling


@pytest.mark.parametrize(
    ("number", "outcome"),
    [
        ("9" * 400, "read"),
        ("1e400", "refused"),
        ("-1e400", "refused"),
        ("9" * 5000, "refused"),
        ("1E+99999999", "refused"),
        ("NaN", "not a message"),
        ("Infinity", "not a message"),
        ("0x10", "not a message"),
        ("01", "not a message"),
    ],
)
async def test_structured_content_with_numbers_out_of_range(number: str, outcome: str) -> None:
    """Numbers that Python cannot hold fail their call; what is not JSON is not an answer at all."""
    peer = modern_peer()

    def huge(message: Message) -> None:
        peer.send_raw(
            b'{"jsonrpc":"2.0","id":%d,"result":{"content":[],"structuredContent":{"n":%b}}}'
            % (message["id"], number.encode())
        )

    peer["tools/call"] = huge
    async with await client_of(peer, validate_output=False, timeout=2) as client:
        if outcome == "read":
            assert (await client.call_tool("t")).structured_content == {"n": int(number)}
        elif outcome == "refused":
            with pytest.raises(InvalidResult):
                await client.call_tool("t")
        else:
            with pytest.raises(RequestTimeout):
                await client.call_tool("t", timeout=0.1)
        peer["tools/call"] = lambda _: DONE
        await client.call_tool("t")


async def test_progress_and_log_messages_with_absurd_numbers() -> None:
    peer = modern_peer(tools_call=lambda _: None)
    heard: list[Any] = []
    async with await client_of(peer, validate_output=False) as client:
        calling = asyncio.ensure_future(client.call_tool("t", on_progress=heard.append))
        await eventually(lambda: peer.asked("tools/call"))
        id = peer.asked("tools/call")[0]["id"]
        for number in (b"1e400", b"-1", b"9" * 400, b'"1"', b"null", b"[]"):
            peer.send_raw(
                b'{"jsonrpc":"2.0","method":"notifications/progress",'
                b'"params":{"progressToken":%d,"progress":%b}}' % (id, number)
            )
        peer.send(id=id, result=DONE)
        await calling


async def test_an_answer_that_is_not_utf8_fails_its_call_only() -> None:
    peer = modern_peer()

    def broken(message: Message) -> None:
        peer.send_raw(
            b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"\xff\xfe"}]}}'
            % message["id"]
        )

    peer["tools/call"] = broken
    async with await client_of(peer, validate_output=False, timeout=2) as client:
        with pytest.raises((InvalidResult, TimeoutError)):
            await client.call_tool("t")
        await client.ping()


async def test_an_answer_nested_too_deeply_fails_its_call_only() -> None:
    peer = modern_peer()

    def deep(message: Message) -> None:
        peer.send_raw(
            b'{"jsonrpc":"2.0","id":%d,"result":{"content":[],"structuredContent":%b}}'
            % (message["id"], b"[" * 100_000 + b"]" * 100_000)
        )

    peer["tools/call"] = deep
    async with await client_of(peer, validate_output=False, timeout=2) as client:
        with pytest.raises((InvalidResult, TimeoutError)):
            await client.call_tool("t")
        await client.ping()


@pytest.mark.parametrize(
    "method", ["sampling/createMessage", "roots/list", "ping", "tools/call", "x"]
)
async def test_a_modern_server_that_sends_requests_gets_no_answer(method: str) -> None:
    """Responses of a client are not part of the modern era."""
    peer = modern_peer(tools_call=lambda _: DONE)
    async with await client_of(
        peer, sampling=lambda _: "x", roots=["file:///"], validate_output=False
    ) as client:
        peer.send(id=1, method=method, params={})
        await client.call_tool("t")
    assert all("method" in message for message in peer.received)


async def test_invalid_requests_of_a_legacy_server_get_errors() -> None:
    peer = legacy_peer(tools_call=lambda _: DONE)
    async with await client_of(peer, sampling=lambda _: "x", validate_output=False) as client:
        peer.send(id="a", method="no/such")
        peer.send(id="b", method="sampling/createMessage", params={"messages": 3})
        peer.send(id="c", method="initialize", params={})
        peer.send(id="d", method="sampling/createMessage", params=[1])
        await client.call_tool("t")
    codes = {id: peer.answered(id)["error"]["code"] for id in "abcd"}
    assert codes["a"] == -32601
    assert codes["b"] == codes["d"] == -32602
    assert codes["c"] in (-32600, -32601)


async def test_a_request_id_used_twice_is_answered_once() -> None:
    gate = asyncio.Event()

    async def slow(params: Any) -> str:
        await gate.wait()
        return "x"

    peer = legacy_peer()
    async with await client_of(peer, sampling=slow):
        for _ in range(2):
            params = {"messages": [], "maxTokens": 1}
            peer.send(id=7, method="sampling/createMessage", params=params)
        await asyncio.sleep(0)
        gate.set()
        await eventually(lambda: len([m for m in peer.received if m.get("id") == 7]) == 2)
    kinds = [set(m) & {"result", "error"} for m in peer.received if m.get("id") == 7]
    assert sorted(map(sorted, kinds)) == [["error"], ["result"]]


async def test_questions_beyond_the_limit_are_refused() -> None:
    gate = asyncio.Event()

    async def slow(params: Any) -> str:
        await gate.wait()
        return "x"

    peer = legacy_peer(tools_call=lambda _: DONE)
    limits = Limits(max_in_flight_hard=10)
    async with await client_of(peer, sampling=slow, limits=limits, validate_output=False) as client:
        for number in range(50):
            params = {"messages": [], "maxTokens": 1}
            peer.send(id=f"q{number}", method="sampling/createMessage", params=params)
        await client.call_tool("t")
        assert len(client._link.connection.end.in_flight) == 10
        gate.set()
        await eventually(lambda: len([m for m in peer.received if "result" in m]) == 10)
    refused = [m for m in peer.received if "error" in m]
    assert len(refused) == 40


async def test_calls_beyond_max_pending_are_refused() -> None:
    peer = modern_peer(tools_call=lambda _: None)
    async with await client_of(peer, limits=Limits(max_pending=5)) as client:
        calls = [asyncio.ensure_future(client.call_tool("t")) for _ in range(5)]
        await eventually(lambda: len(peer.asked("tools/call")) == 5)
        with pytest.raises(LimitReached, match="max_pending"):
            await client.call_tool("t")
        for call in calls:
            call.cancel()


async def test_a_connection_that_ends_fails_every_call_at_once() -> None:
    peer = modern_peer(tools_call=lambda _: None, prompts_get=lambda _: None)
    async with await client_of(peer) as client:
        calls = [asyncio.ensure_future(client.call_tool("t")) for _ in range(10)]
        calls.append(asyncio.ensure_future(client.get_prompt("p")))
        await eventually(lambda: len(peer.asked("prompts/get")) == 1)
        await peer.close()
        for error in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(error, ConnectionLost)
            assert error.maybe_executed
        with pytest.raises(ConnectionLost, match="not sent") as caught:
            await client.call_tool("t")
        assert not caught.value.maybe_executed
        with pytest.raises(ConnectionLost, match="not sent"):
            await client.listen(tools=True).open()


async def test_a_flood_of_pings_is_answered_and_calls_go_on(tmp_path: Path) -> None:
    """The server reads nothing while it pings, so the answers wait on the client's side."""
    script = Script(
        tmp_path,
        """
        welcome(modern=False)
        waiting = 0
        for message in messages():
            if message.get("method") == "tools/call":
                for n in range(5_000):
                    send(id="p%d" % n, method="ping")
                answer(message, {"content": []})
                break
        while True:
            line = sys.stdin.readline()
            waiting += 1
            if waiting == 5_000:
                note("all answered")
        """,
    )
    async with Client(script.path, validate_output=False) as client:
        await asyncio.wait_for(client.call_tool("t"), 60)
        await eventually(lambda: "all answered" in script.lines(), 60)


async def test_a_flood_of_lines_that_are_not_messages(tmp_path: Path) -> None:
    script = Script(
        tmp_path,
        """
        welcome()
        for message in messages():
            for n in range(20_000):
                sys.stdout.write("DEBUG: processing %d\\n" % n)
            answer(message, {"content": []})
        """,
    )
    async with Client(script.path, validate_output=False) as client:
        answer = await asyncio.wait_for(client.call_tool("t"), 30)
    assert answer.content == []


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["jsonrpc", "id", "method", "params", "result", "error", "content", "_meta", "code"]
            )
            | st.text(max_size=8),
            inner,
            max_size=5,
        )
    ),
    max_leaves=20,
)
METHODS = st.sampled_from(
    [
        "notifications/progress",
        "notifications/message",
        "notifications/cancelled",
        "notifications/resources/updated",
        "notifications/tools/list_changed",
        "notifications/subscriptions/acknowledged",
        "sampling/createMessage",
        "elicitation/create",
        "roots/list",
        "ping",
    ]
)
MESSAGES = st.lists(
    st.fixed_dictionaries({"method": METHODS, "params": JSON})
    | st.fixed_dictionaries({"id": st.integers(0, 5) | JSON, "method": METHODS, "params": JSON})
    | st.fixed_dictionaries({"id": st.integers(2, 9), "error": JSON})
    | st.dictionaries(st.sampled_from(["id", "method", "params", "result", "error"]), JSON),
    max_size=15,
)


@pytest.mark.parametrize("peer_of", [modern_peer, legacy_peer])
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(noise=MESSAGES, raw=st.lists(st.binary(max_size=40), max_size=5))
def test_a_client_survives_any_noise(peer_of: Any, noise: list[Message], raw: list[bytes]) -> None:
    async def hear() -> None:
        peer = peer_of()
        options: dict[str, Any] = {
            "sampling": lambda _: "x",
            "elicitation": lambda _: None,
            "roots": ["file:///"],
            "on_log": lambda _: None,
            "on_notification": lambda _: None,
            "validate_output": False,
        }
        async with await client_of(peer, **options) as client:
            for message in noise:
                peer.send(**message)
            for line in raw:
                peer.send_raw(line)
            await asyncio.sleep(0)
            peer["tools/call"] = lambda _: DONE
            assert (await client.call_tool("t", timeout=10)).content[0].text == "done"

    asyncio.run(hear())


@settings(max_examples=100, deadline=None)
@given(result=JSON)
def test_any_result_is_a_result_or_an_error(result: Any) -> None:
    async def ask() -> None:
        peer = modern_peer()
        for method in ("tools/call", "tools/list", "resources/read", "prompts/get"):
            peer[method] = lambda message: peer.send(id=message["id"], result=result)
        async with await client_of(peer, max_rounds=0, timeout=1) as client:
            outcomes = await asyncio.gather(
                client.call_tool("t"),
                client.list_tools(),
                client.read_resource("x://"),
                client.get_prompt("p"),
                return_exceptions=True,
            )
        for outcome in outcomes:
            assert isinstance(outcome, Result | InvalidResult | McpError)

    asyncio.run(ask())
