"""Multi round-trip requests: a modern server answers with questions, and is asked again."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from mcpearl import Client, Context, InvalidResult, McpError, Server
from tests.waiting import eventually

from .peers import Message, Peer, client_of, modern_peer

DONE = {"resultType": "complete", "content": [{"type": "text", "text": "done"}]}
READ = {"resultType": "complete", "contents": [{"uri": "x://", "text": "done"}]}
PROMPT = {"resultType": "complete", "messages": []}


def elicit(message: str = "?") -> Message:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    return {
        "method": "elicitation/create",
        "params": {"message": message, "requestedSchema": schema},
    }


def sample(text: str = "hi") -> Message:
    content = {"role": "user", "content": {"type": "text", "text": text}}
    return {"method": "sampling/createMessage", "params": {"messages": [content], "maxTokens": 9}}


def required(requests: Any = None, state: str | None = None, **more: Any) -> Message:
    result: Message = {"resultType": "input_required", **more}
    if requests is not None:
        result["inputRequests"] = requests
    if state is not None:
        result["requestState"] = state
    return result


def in_turn(*results: Any) -> Callable[[Message], Any]:
    """Answer with one result after the other, and with the last one for ever."""
    waiting = list(results)
    return lambda _: waiting.pop(0) if len(waiting) > 1 else waiting[0]


def calls(peer: Peer) -> list[Message]:
    return peer.asked("tools/call")


async def test_several_questions_in_one_round_and_several_rounds() -> None:
    peer = modern_peer(
        tools_call=in_turn(
            required({"a": elicit(), "b": sample("one"), "c": {"method": "roots/list"}}, "s1"),
            required({"a": elicit("again")}, "s2"),
            DONE,
        )
    )
    asked: list[str] = []

    def fill(params: Any) -> dict[str, int]:
        asked.append(params.message)
        return {"n": len(asked)}

    async with await client_of(
        peer,
        elicitation=fill,
        sampling=lambda p: p.messages[0].content.text.upper(),
        roots=["file:///srv"],
        validate_output=False,
    ) as client:
        result = await client.call_tool("t", {"x": 1}, meta={"example.com/k": "v"})
    assert result.content[0].text == "done"
    assert asked == ["?", "again"]
    first, second, third = (message["params"] for message in calls(peer))
    assert "inputResponses" not in first
    assert "requestState" not in first
    assert second["inputResponses"] == {
        "a": {"action": "accept", "content": {"n": 1}},
        "b": {
            "role": "assistant",
            "content": {"type": "text", "text": "ONE"},
            "model": "unknown",
            "stopReason": "endTurn",
        },
        "c": {"roots": [{"uri": "file:///srv"}]},
    }
    assert third["inputResponses"] == {"a": {"action": "accept", "content": {"n": 2}}}
    assert [second["requestState"], third["requestState"]] == ["s1", "s2"]
    for params in (first, second, third):  # each stands for itself
        assert (params["name"], params["arguments"]) == ("t", {"x": 1})
        assert params["_meta"]["example.com/k"] == "v"
        assert "io.modelcontextprotocol/protocolVersion" in params["_meta"]
    assert len({message["id"] for message in calls(peer)}) == 3


@pytest.mark.parametrize(
    ("method", "ask", "result"),
    [
        ("resources/read", lambda c: c.read_resource("x://"), READ),
        ("prompts/get", lambda c: c.get_prompt("p"), PROMPT),
    ],
)
async def test_reading_and_prompts_have_rounds_too(method: str, ask: Any, result: Message) -> None:
    peer = modern_peer()
    peer[method] = in_turn(required({"a": elicit()}, "s"), result)
    async with await client_of(peer, elicitation=lambda _: {"n": 1}) as client:
        await ask(client)
    assert peer.asked(method)[1]["params"]["requestState"] == "s"


@pytest.mark.parametrize("state", ["", " ", "ünïcödé \u2028 \x00 😀", '{"a": "\\"}', "x" * 100_000])
async def test_the_state_is_echoed_exactly(state: str) -> None:
    peer = modern_peer(tools_call=in_turn(required({"a": elicit()}, state), DONE))
    async with await client_of(peer, elicitation=lambda _: None, validate_output=False) as client:
        await client.call_tool("t")
    assert calls(peer)[1]["params"]["requestState"] == state


async def test_no_state_is_sent_where_none_was_given() -> None:
    peer = modern_peer(
        tools_call=in_turn(required({"a": elicit()}, "old"), required({"a": elicit()}), DONE)
    )
    async with await client_of(peer, elicitation=lambda _: None, validate_output=False) as client:
        await client.call_tool("t")
    assert calls(peer)[1]["params"]["requestState"] == "old"
    assert "requestState" not in calls(peer)[2]["params"]


@pytest.mark.parametrize("requests", [None, {}])
async def test_a_round_without_questions_is_repeated_after_a_pause(requests: Any) -> None:
    peer = modern_peer(
        tools_call=in_turn(required(requests, "wait"), required(requests, "wait"), DONE)
    )
    started = asyncio.get_running_loop().time()
    async with await client_of(peer, validate_output=False) as client:
        await client.call_tool("t")
    assert asyncio.get_running_loop().time() - started >= 0.1  # 0.05 s, then 0.1 s
    assert [m["params"].get("requestState") for m in calls(peer)] == [None, "wait", "wait"]
    assert not calls(peer)[1]["params"].get("inputResponses")


@pytest.mark.parametrize("limit", [0, 1, 3])
async def test_at_the_limit_of_rounds_no_question_is_asked_any_more(limit: int) -> None:
    asked: list[Any] = []
    peer = modern_peer(tools_call=lambda _: required({"a": elicit()}, "s"))

    def fill(params: Any) -> None:
        asked.append(params)

    async with await client_of(peer, elicitation=fill, max_rounds=limit) as client:
        with pytest.raises(InvalidResult, match="max_rounds"):
            await client.call_tool("t")
    assert len(calls(peer)) == limit + 1
    assert len(asked) == limit


@pytest.mark.parametrize(
    ("result", "said"),
    [
        ({"resultType": "later", "content": []}, "unknown resultType 'later'"),
        ({"resultType": "INPUT_REQUIRED", "inputRequests": {}}, "unknown resultType"),
        ({"resultType": "input_required"}, "neither"),
        (
            {"resultType": "input_required", "inputRequests": {"a": {"method": "tools/call"}}},
            "valid",
        ),
        ({"resultType": "input_required", "inputRequests": [1], "requestState": "s"}, "valid"),
        ({"resultType": "input_required", "requestState": 7}, "valid"),
    ],
)
async def test_invalid_input_required_results_are_refused(result: Message, said: str) -> None:
    peer = modern_peer(tools_call=lambda _: result)
    async with await client_of(peer, elicitation=lambda _: None) as client:
        with pytest.raises(InvalidResult, match=said):
            await client.call_tool("t")
    assert len(calls(peer)) == 1


async def test_a_question_the_client_did_not_declare_is_an_error_of_the_call() -> None:
    peer = modern_peer(tools_call=lambda _: required({"a": sample()}, "s"))
    async with await client_of(peer) as client:
        with pytest.raises(McpError, match="sampling/createMessage"):
            await client.call_tool("t")
    assert len(calls(peer)) == 1


async def test_when_one_question_fails_the_others_are_withdrawn() -> None:
    withdrawn = asyncio.Event()

    async def dialog(params: Any) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            withdrawn.set()

    def broken(params: Any) -> None:
        raise RuntimeError("no model")

    peer = modern_peer(tools_call=lambda _: required({"a": elicit(), "b": sample()}, "s"))
    async with await client_of(peer, elicitation=dialog, sampling=broken) as client:
        with pytest.raises(McpError, match="sampling/createMessage"):
            await client.call_tool("t")
        await asyncio.wait_for(withdrawn.wait(), 30)


async def test_a_call_cancelled_between_rounds_withdraws_its_questions() -> None:
    opened, withdrawn = asyncio.Event(), asyncio.Event()

    async def dialog(params: Any) -> None:
        opened.set()
        try:
            await asyncio.Event().wait()
        finally:
            withdrawn.set()

    peer = modern_peer(tools_call=lambda _: required({"a": elicit()}, "s"))
    async with await client_of(peer, elicitation=dialog) as client:
        calling = asyncio.ensure_future(client.call_tool("t"))
        await opened.wait()
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        await asyncio.wait_for(withdrawn.wait(), 30)
        assert not peer.asked("notifications/cancelled")  # nothing was in flight


async def test_questions_of_one_round_are_asked_side_by_side() -> None:
    both = asyncio.Barrier(2)

    async def meet(params: Any) -> dict[str, int]:
        await both.wait()
        return {"n": 1}

    peer = modern_peer(tools_call=in_turn(required({"a": elicit(), "b": elicit()}, "s"), DONE))
    async with await client_of(peer, elicitation=meet, validate_output=False) as client:
        await asyncio.wait_for(client.call_tool("t"), 30)
    assert len(peer.asked("tools/call")) == 2


async def test_answers_belong_to_their_own_call_only() -> None:
    def tell(message: Message) -> Any:
        params = message["params"]
        if "requestState" not in params:
            return required({"a": elicit(params["name"])}, f"state of {params['name']}")
        assert params["requestState"] == f"state of {params['name']}"
        assert params["inputResponses"]["a"]["content"]["n"] == len(params["name"])
        return DONE

    peer = modern_peer(tools_call=tell)

    async def fill(params: Any) -> dict[str, int]:
        await asyncio.sleep(0.001 * (30 - len(params.message)))
        return {"n": len(params.message)}

    async with await client_of(peer, elicitation=fill, validate_output=False) as client:
        await asyncio.gather(*(client.call_tool("t" * n) for n in range(1, 30)))


async def test_with_a_server_of_this_package() -> None:
    app = Server("rounds")

    @app.tool
    async def converse(ctx: Context) -> str:
        first = await ctx.elicit(
            "name?", {"type": "object", "properties": {"n": {"type": "string"}}}
        )
        second, third = await asyncio.gather(ctx.sample("a"), ctx.sample("b"))
        return f"{first.data['n']} {second.content.text} {third.content.text}"

    async with Client(
        app,
        elicitation=lambda _: {"n": "Ada"},
        sampling=lambda p: p.messages[0].content.text * 2,
    ) as client:
        assert (await client.call_tool("converse")).content[0].text == "Ada aa bb"


async def test_a_legacy_result_that_looks_like_a_question_is_just_wrong() -> None:
    from .peers import legacy_peer

    peer = legacy_peer(tools_call=lambda _: required({"a": elicit()}, "s"))
    async with await client_of(peer, elicitation=lambda _: None) as client:
        with pytest.raises(InvalidResult):
            await client.call_tool("t")
    await eventually(lambda: len(calls(peer)) == 1)
