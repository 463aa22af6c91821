"""Questions inside a task: asked by what the client looks at, answered once per key, run again."""

import asyncio
from typing import Any

import pytest

from mcpearl import Context, Server, Tasks
from mcpearl.testing.clock import MovableClock
from tests.server.tasks.apps import (
    EXTENSION,
    WITH,
    Name,
    look,
    outcome,
    start,
    status,
    task_of,
    tasks_app,
)
from tests.server.wire import LEGACY, MODERN, Wire, text_of, wire
from tests.waiting import eventually

RELATED = "io.modelcontextprotocol/related-task"


def accept(name: str) -> dict[str, Any]:
    return {"action": "accept", "content": {"name": name}}


async def update(client: Wire, id: str, **answers: Any) -> dict[str, Any]:
    params = {"taskId": id, "inputResponses": {k.replace("_", "-"): v for k, v in answers.items()}}
    answer: dict[str, Any] = await client.ask("tasks/update", params)
    return answer


# The extension


async def test_a_question_is_part_of_the_task_until_it_is_answered() -> None:
    app, _ = tasks_app()
    async with wire(app, MODERN, WITH) as client:
        id = await start(client, "greets")
        task = await status(client, id, "input_required")
        (key,) = task["inputRequests"]
        assert task["inputRequests"][key]["method"] == "elicitation/create"
        assert (await look(client, id))["inputRequests"] == task["inputRequests"]
        answer = await update(client, id, elicitation_1=accept("ann"))
        assert set(answer["result"]) == {"resultType", "_meta"}
        assert answer["result"]["resultType"] == "complete"
        assert text_of(await outcome(client, id)) == "hello ann"


async def test_answers_may_come_one_by_one() -> None:
    app, _ = tasks_app()
    async with wire(app, MODERN, WITH) as client:
        id = await start(client, "asks_both")
        task = await status(client, id, "input_required")
        assert set(task["inputRequests"]) == {"first", "second"}
        await update(client, id, first=accept("ann"))
        task = await look(client, id)
        assert (task["status"], set(task["inputRequests"])) == ("input_required", {"second"})
        # What was answered stays answered; what was never asked is ignored.
        await update(client, id, first=accept("eve"), third=accept("eve"))
        assert set((await look(client, id))["inputRequests"]) == {"second"}
        await update(client, id, second=accept("bob"))
        assert text_of(await outcome(client, id)) == "ann and bob"


async def test_an_answer_of_the_wrong_type_is_refused_and_the_question_stays() -> None:
    app, _ = tasks_app()
    async with wire(app, MODERN, WITH) as client:
        id = await start(client, "asks_both")
        await status(client, id, "input_required")
        wrong = await update(client, id, first={"action": "perhaps"}, second=accept("bob"))
        assert wrong["error"]["code"] == -32602 and "first" in wrong["error"]["message"]
        not_an_object = await update(client, id, first=[1])
        assert not_an_object["error"]["code"] == -32602
        assert set((await look(client, id))["inputRequests"]) == {"first", "second"}


async def test_keys_are_never_used_twice() -> None:
    app = Server("x", grace=0)

    @app.tool(task=True)
    async def asks(ctx: Context) -> str:
        names = [(await ctx.elicit(f"Name {n}?", Name)).data.name for n in range(3)]
        again = await ctx.elicit("Name?", Name, key="elicitation-1")
        return " ".join([*names, again.data.name])

    async with wire(app, MODERN, WITH) as client:
        id = await start(client, "asks")
        seen = []
        for name in ("a", "b", "c"):
            task = await status(client, id, "input_required")
            (key,) = task["inputRequests"]
            seen.append(key)
            await client.ask("tasks/update", {"taskId": id, "inputResponses": {key: accept(name)}})
        assert seen == ["elicitation-1", "elicitation-2", "elicitation-3"]
        # A key that was answered is not asked again.
        assert text_of(await outcome(client, id)) == "a b c a"


async def test_sampling_and_roots_are_asked_too() -> None:
    app = Server("x", grace=0)

    @app.tool(task=True)
    async def asks(ctx: Context) -> str:
        answer, roots = await asyncio.gather(ctx.sample("Say hi"), ctx.roots())
        return f"{answer.model} {roots[0].uri}"

    async with wire(app, MODERN, WITH) as client:
        id = await start(client, "asks")
        task = await status(client, id, "input_required")
        methods = {request["method"] for request in task["inputRequests"].values()}
        assert methods == {"sampling/createMessage", "roots/list"}
        said = {"role": "assistant", "model": "m", "content": {"type": "text", "text": "hi"}}
        await update(client, id, sampling_1=said, roots_1={"roots": [{"uri": "file:///a"}]})
        assert text_of(await outcome(client, id)) == "m file:///a"


async def test_a_capability_that_the_client_lacks_fails_the_task() -> None:
    app, _ = tasks_app()
    async with wire(app, MODERN, {"extensions": {EXTENSION: {}}}) as client:
        id = await start(client, "greets")
        task = await status(client, id, "failed")
        assert task["error"]["code"] == -32021


# 2025-11-25: the question is sent to a client that waits for the result


async def test_a_legacy_client_is_asked_while_it_waits_for_the_result() -> None:
    app, _ = tasks_app()
    async with wire(app, LEGACY, WITH) as client:
        id = await start(client, "greets")
        await status(client, id, "input_required")
        waiting = client.request("tasks/result", {"taskId": id})
        question = await until_asked(client)
        assert question["method"] == "elicitation/create"
        assert question["params"]["_meta"][RELATED] == {"taskId": id}
        client.raw({"jsonrpc": "2.0", "id": question["id"], "result": accept("ann")})
        answer = await client.answer_to(waiting)
        assert text_of(answer) == "hello ann"
        assert answer["result"]["_meta"][RELATED] == {"taskId": id}


async def until_asked(client: Wire) -> dict[str, Any]:
    while True:
        message = await client.next()
        if "id" in message and "method" in message:
            return message


async def test_a_legacy_client_that_goes_away_is_asked_again_when_it_is_back() -> None:
    app, _ = tasks_app()
    async with wire(app, LEGACY, WITH) as first:
        id = await start(first, "greets")
        await status(first, id, "input_required")
        async with wire(app, LEGACY, WITH) as second:
            second.request("tasks/result", {"taskId": id})
            await until_asked(second)
        async with wire(app, LEGACY, WITH) as third:
            waiting = third.request("tasks/result", {"taskId": id})
            question = await until_asked(third)
            third.raw({"jsonrpc": "2.0", "id": question["id"], "result": accept("ann")})
            assert text_of(await third.answer_to(waiting)) == "hello ann"


async def test_two_that_wait_for_one_result_are_not_both_asked() -> None:
    app, _ = tasks_app()
    async with wire(app, LEGACY, WITH) as client:
        id = await start(client, "greets")
        await status(client, id, "input_required")
        waiting = [client.request("tasks/result", {"taskId": id}) for _ in range(2)]
        question = await until_asked(client)
        assert [m for m in await client.silence() if "id" in m] == []
        client.raw({"jsonrpc": "2.0", "id": question["id"], "result": accept("ann")})
        for each in waiting:
            assert text_of(await client.answer_to(each)) == "hello ann"


async def test_a_legacy_client_that_refuses_is_heard() -> None:
    app, _ = tasks_app()
    async with wire(app, LEGACY, WITH) as client:
        id = await start(client, "greets")
        waiting = client.request("tasks/result", {"taskId": id})
        question = await until_asked(client)
        error = {"code": -1, "message": "User rejected it"}
        client.raw({"jsonrpc": "2.0", "id": question["id"], "error": error})
        answer = await client.answer_to(waiting)
        assert answer["error"] == error


async def test_a_legacy_task_hears_of_its_status_and_progress() -> None:
    app, gates = tasks_app()
    async with wire(app, LEGACY, WITH) as client:
        answer = await client.ask(
            "tools/call", {"name": "reports", "arguments": {}, "task": {}}, token="t"
        )
        id = task_of(answer)["taskId"]
        progress = await client.next()
        assert progress["method"] == "notifications/progress"
        assert progress["params"]["progressToken"] == "t"
        assert progress["params"]["_meta"][RELATED] == {"taskId": id}
        await eventually(lambda: message_of(client, id))
        gates.open.set()
        while (message := await client.next()).get("method") != "notifications/tasks/status":
            pass
        assert message["params"]["status"] == "completed"
        assert RELATED not in message["params"].get("_meta", {})


async def message_of(client: Wire, id: str) -> bool:
    return (await look(client, id)).get("statusMessage") == "one third"


async def test_an_extension_task_sends_no_progress() -> None:
    app, gates = tasks_app()
    async with wire(app, MODERN, WITH) as client:
        answer = await client.call("reports", token="t")
        id = task_of(answer)["taskId"]
        await eventually(lambda: message_of(client, id))
        gates.open.set()
        await outcome(client, id)
        assert await client.silence() == []


# Running again


@pytest.mark.parametrize("kind", ["async", "plain"])
async def test_a_question_that_waits_long_is_parked(clock: MovableClock, kind: str) -> None:
    app = Server("x", grace=0)
    runs: list[str] = []
    once: list[str] = []

    async def asks(ctx: Context) -> str:
        runs.append("run")
        number = await ctx.once("number", lambda: once.append("once") or 7)
        answer = await ctx.elicit("Who?", Name)
        return f"{answer.data.name} {number}"

    def asks_in_a_thread(ctx: Context) -> str:
        return ctx.wait(asks(ctx))

    asks_tool = asks if kind == "async" else asks_in_a_thread
    app.add_tool(asks_tool, name="asks", task=Tasks(park=5.0))
    async with wire(app, MODERN, WITH) as client:
        id = await start(client, "asks")
        await status(client, id, "input_required")
        await clock.advance(6.0)
        assert (await look(client, id))["status"] == "input_required"
        await update(client, id, elicitation_1=accept("ann"))
        assert text_of(await outcome(client, id)) == "ann 7"
        assert (runs, once) == (["run", "run"], ["once"])


@pytest.mark.parametrize("version", [LEGACY, MODERN])
async def test_once_is_done_once_in_a_task(version: str) -> None:
    app = Server("x", grace=0)
    done: list[int] = []

    @app.tool(task=True)
    async def works(ctx: Context) -> int:
        for _ in range(3):
            await ctx.once("step", lambda: done.append(1))
        return len(done)

    async with wire(app, version, WITH) as client:
        assert text_of(await outcome(client, await start(client, "works"))) == "1"
