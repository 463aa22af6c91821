"""Sampling and elicitation that a server of 2025-11-25 starts as tasks at the client."""

import asyncio
from typing import Any

from mcpearl.client.tasks import held
from tests.waiting import eventually

from ..peers import Message, Peer, client_of, legacy_peer

SAMPLE = {
    "messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}],
    "maxTokens": 9,
}


class Asking(Peer):
    """A server that asks and waits for the answer."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = legacy_peer().answers
        self._count = 0

    async def ask(self, method: str, **params: Any) -> Message:
        self._count += 1
        id = f"q{self._count}"
        self.send(id=id, method=method, params=params)

        def answers() -> list[Message]:
            return [m for m in self.received if m.get("id") == id and "method" not in m]

        (answer,) = await eventually(answers)
        return dict(answer)

    async def start(self, **task: Any) -> str:
        answer = await self.ask("sampling/createMessage", **SAMPLE, task=task)
        assert answer["result"]["task"]["status"] == "working"
        return str(answer["result"]["task"]["taskId"])


async def test_a_question_runs_as_a_task_whose_result_is_fetched_later() -> None:
    peer = Asking()
    release = asyncio.Event()

    async def sampling(params: Any) -> str:
        await release.wait()
        return "a poem"

    async with await client_of(peer, sampling=sampling):
        declared = peer.asked("initialize")[0]["params"]["capabilities"]["tasks"]
        requests = {"sampling": {"createMessage": {}}}
        assert declared == {"list": {}, "cancel": {}, "requests": requests}
        id = await peer.start(ttl=5_000)
        got = (await peer.ask("tasks/get", taskId=id))["result"]
        assert (got["status"], got["ttl"]) == ("working", 5_000)
        listed = (await peer.ask("tasks/list"))["result"]["tasks"]
        assert [task["taskId"] for task in listed] == [id]
        result = asyncio.ensure_future(peer.ask("tasks/result", taskId=id))
        release.set()
        answer = (await result)["result"]
        assert answer["content"]["text"] == "a poem"
        assert answer["_meta"]["io.modelcontextprotocol/related-task"] == {"taskId": id}
        told = await eventually(lambda: peer.asked("notifications/tasks/status"))
        assert told[-1]["params"]["status"] == "completed"
        again = await peer.ask("tasks/cancel", taskId=id)
        assert again["error"]["code"] == -32602


async def test_cancelling_ends_the_callback() -> None:
    peer = Asking()
    begun, ended = asyncio.Event(), asyncio.Event()

    async def sampling(params: Any) -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return ""

    async with await client_of(peer, sampling=sampling):
        id = await peer.start()
        await begun.wait()
        answer = await peer.ask("tasks/cancel", taskId=id)
        assert answer["result"]["status"] == "cancelled"
        await ended.wait()
        result = await peer.ask("tasks/result", taskId=id)
        assert result["error"]["message"] == "The task was cancelled"


async def test_a_callback_that_raises_fails_the_task() -> None:
    peer = Asking()

    def sampling(params: Any) -> str:
        raise RuntimeError("no model")

    async with await client_of(peer, sampling=sampling):
        id = await peer.start()
        result = await peer.ask("tasks/result", taskId=id)
        assert "raised RuntimeError" in result["error"]["message"]
        assert (await peer.ask("tasks/get", taskId=id))["result"]["status"] == "failed"


async def test_bad_ids_and_times_are_named() -> None:
    peer = Asking()
    async with await client_of(peer, sampling=lambda p: "x"):
        for method in ("tasks/get", "tasks/result", "tasks/cancel"):
            error = (await peer.ask(method, taskId="nope"))["error"]
            assert (error["code"], error["message"][:19]) == (-32602, "Unknown task 'nope'")
        asked = await peer.ask("sampling/createMessage", **SAMPLE, task={"ttl": 0})
        assert asked["error"]["message"] == "`task.ttl` is 0; it has to be over 0"
        cursor = await peer.ask("tasks/list", cursor="x")
        assert cursor["error"]["code"] == -32602


async def test_their_number_and_their_life_are_bounded() -> None:
    peer = Asking()
    async with await client_of(peer, sampling=lambda p: "x"):
        short = await peer.start(ttl=1)
        await eventually(lambda: _is_unknown(peer, short))
        for _ in range(held.MAX_HELD):
            await peer.start()
        over = await peer.ask("sampling/createMessage", **SAMPLE, task={})
        assert over["error"]["message"] == "Too many tasks: this client holds 100 for the server"
        year = await peer.ask("sampling/createMessage", **SAMPLE)
        assert year["result"]["content"]["text"] == "x"  # plain requests are answered as before


async def _is_unknown(peer: Asking, id: str) -> bool:
    return "error" in await peer.ask("tasks/get", taskId=id)


async def test_a_ttl_of_a_year_becomes_the_maximum() -> None:
    peer = Asking()
    async with await client_of(peer, sampling=lambda p: "x"):
        id = await peer.start(ttl=365 * 24 * 3600 * 1000)
        state = (await peer.ask("tasks/get", taskId=id))["result"]
        assert state["ttl"] == held.MAX_TTL * 1000
