"""Asking the client, message by message: forms, and the sealed rounds of the modern era.

What a caller sees of it, which is the same in both eras, is in `test_asking`.
"""

import asyncio
import copy
import dataclasses
from typing import Annotated, Any, Literal

import msgspec
import pytest

from mcpearl import Context, McpError, Server
from mcpearl.auth import Principal
from tests.server.journeys import SCHEMA, Journey, JourneyModel
from tests.server.wire import ERAS, LEGACY, MODERN, Wire, text_of, wire


async def retry(client: Wire, asked: Any, params: dict[str, Any], answers: dict[str, Any]) -> Any:
    """Do what a client does with an `input_required` result."""
    state = asked["result"]["requestState"]
    return await client.ask(
        "tools/call", {**params, "inputResponses": answers, "requestState": state}
    )


# Forms on the wire


@pytest.mark.parametrize("version", ERAS)
@pytest.mark.parametrize("kind", [Journey, JourneyModel, SCHEMA])
@pytest.mark.parametrize("content", [{}, {"city": 5}, {"city": "Oslo", "days": "many"}])
async def test_answers_that_do_not_fit_the_form(kind: Any, version: str, content: Any) -> None:
    app = Server("asking")

    @app.tool
    async def book(ctx: Context) -> str:
        return str((await ctx.elicit("Where to?", kind)).data)

    async with wire(app, version) as client:
        params = {"name": "book", "arguments": {}}
        answer = {"action": "accept", "content": content}
        if version == MODERN:
            asked = await client.ask("tools/call", params)
            outcome = await retry(client, asked, params, {"elicitation-1": answer})
        else:
            id = client.request("tools/call", params)
            question = await client.next()
            client.raw({"jsonrpc": "2.0", "id": question["id"], "result": answer})
            outcome = await client.answer_to(id)
    assert outcome["error"]["code"] == -32602
    assert "form" in outcome["error"]["message"]


async def test_forms_a_client_cannot_show_are_the_handlers_mistake() -> None:
    app = Server("asking")

    @dataclasses.dataclass
    class Nested:
        trip: Journey

    @app.tool
    async def nested(ctx: Context) -> str:
        await ctx.elicit("?", Nested)
        return "x"

    @app.tool
    async def no_fields(ctx: Context) -> str:
        await ctx.elicit("?", list[int])
        return "x"

    async with wire(app) as client:
        assert "form field `trip`" in text_of(await client.call("nested"))
        assert "form field `value`" in text_of(await client.call("no_fields"))


async def test_what_a_form_looks_like_on_the_wire() -> None:
    app = Server("asking")

    class Form(msgspec.Struct):
        name: Annotated[str, msgspec.Meta(title="Your name", min_length=1)]
        size: Literal["s", "m"]
        agree: bool = False
        weight: float | None = None

    @app.tool
    async def fill(ctx: Context) -> str:
        await ctx.elicit("Please", Form)
        return "x"

    async with wire(app) as client:
        asked = (await client.call("fill"))["result"]
    request = asked["inputRequests"]["elicitation-1"]
    assert request["method"] == "elicitation/create"
    assert request["params"]["message"] == "Please"
    assert request["params"]["mode"] == "form"
    schema = request["params"]["requestedSchema"]
    assert schema["type"] == "object"
    assert schema["required"] == ["name", "size"]
    assert schema["properties"]["name"] == {"type": "string", "title": "Your name", "minLength": 1}
    assert schema["properties"]["size"] == {"type": "string", "enum": ["s", "m"]}
    assert schema["properties"]["agree"] == {"type": "boolean", "default": False}
    assert schema["properties"]["weight"] == {"type": "number"}


async def test_wait_in_an_async_function_is_an_error_not_a_deadlock() -> None:
    app = Server("asking")

    @app.tool
    async def book(ctx: Context) -> str:
        return ctx.wait(ctx.elicit("Where to?")).action

    async with wire(app) as client:
        assert "`await` it" in text_of(await client.call("book"))


@pytest.mark.parametrize(
    ("ask", "required"),
    [
        (lambda ctx: ctx.elicit("?"), {"elicitation": {"form": {}}}),
        (lambda ctx: ctx.elicit_url("?", "https://x"), {"elicitation": {"url": {}}}),
        (lambda ctx: ctx.sample("?"), {"sampling": {}}),
        (lambda ctx: ctx.roots(), {"roots": {}}),
    ],
    ids=["form", "url", "sampling", "roots"],
)
@pytest.mark.parametrize("grouped", [False, True])
async def test_a_client_that_cannot_is_told_what_it_takes(
    ask: Any, required: Any, grouped: bool
) -> None:
    app = Server("asking")

    @app.tool
    async def needs(ctx: Context) -> str:
        if grouped:
            async with asyncio.TaskGroup() as group:
                group.create_task(ask(ctx))
        await ask(ctx)
        return "x"

    async with wire(app, MODERN, {}) as client:
        error = (await client.call("needs"))["error"]
        assert error["code"] == -32021
        assert error["data"] == {"requiredCapabilities": required}
    async with wire(app, LEGACY, {}) as client:
        answer = await client.call("needs")
        assert answer["result"]["isError"]
        assert next(iter(required)) in text_of(answer)


# Rounds


def booking(**options: Any) -> tuple[Server, list[str]]:
    """A handler that asks twice, one after the other, and books once."""
    app = Server("asking", **options)
    booked: list[str] = []

    @app.tool
    async def book(guest: str, ctx: Context) -> str:
        city = (await ctx.elicit("Where to?", Journey)).data.city

        def reserve() -> int:
            booked.append(city)
            return len(booked)

        number = await ctx.once("reserve", reserve)
        sure = await ctx.elicit("Sure?")
        return f"{guest} {city} {number} {sure.action}"

    return app, booked


ARGUMENTS = {"name": "book", "arguments": {"guest": "Ada"}}
OSLO = {"action": "accept", "content": {"city": "Oslo"}}


async def test_one_ask_after_the_other_takes_several_rounds() -> None:
    app, booked = booking()
    async with wire(app) as client:
        first = await client.ask("tools/call", ARGUMENTS)
        assert first["result"]["resultType"] == "input_required"
        assert list(first["result"]["inputRequests"]) == ["elicitation-1"]
        second = await retry(client, first, ARGUMENTS, {"elicitation-1": OSLO})
        assert list(second["result"]["inputRequests"]) == ["elicitation-2"]
        assert booked == ["Oslo"]
        last = await retry(client, second, ARGUMENTS, {"elicitation-2": {"action": "accept"}})
        assert text_of(last) == "Ada Oslo 1 accept"
        assert booked == ["Oslo"], "what `once` did, it did once"


@pytest.mark.parametrize("way", ["gather", "group"])
async def test_asks_of_one_turn_leave_together(way: str) -> None:
    app = Server("asking")

    @app.tool
    async def both(ctx: Context) -> list[str]:
        if way == "gather":
            one, two, roots = await asyncio.gather(
                ctx.elicit("One?", key="one"), ctx.elicit("Two?"), ctx.roots()
            )
        else:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(ctx.elicit("One?", key="one")),
                    group.create_task(ctx.elicit("Two?")),
                ]
                rooted = group.create_task(ctx.roots())
            one, two, roots = tasks[0].result(), tasks[1].result(), rooted.result()
        return [one.action, two.action, roots[0].uri]

    async with wire(app) as client:
        params = {"name": "both", "arguments": {}}
        asked = await client.ask("tools/call", params)
        assert set(asked["result"]["inputRequests"]) == {"one", "elicitation-1", "roots-1"}
        answers = {
            "one": {"action": "accept"},
            "elicitation-1": {"action": "decline"},
            "roots-1": {"roots": [{"uri": "file:///x"}]},
        }
        partly = await retry(client, asked, params, {"one": answers["one"]})
        assert set(partly["result"]["inputRequests"]) == {"elicitation-1", "roots-1"}
        answer = await retry(client, partly, params, answers)
        assert answer["result"]["structuredContent"] == {
            "result": ["accept", "decline", "file:///x"]
        }


@pytest.mark.parametrize("catches", ["and returns", "and raises", "and asks again", "everything"])
async def test_a_handler_that_catches_being_stopped_still_asks(catches: str) -> None:
    app = Server("asking")

    @app.tool
    async def book(ctx: Context) -> str:
        try:
            return (await ctx.elicit("Where to?")).action
        except asyncio.CancelledError:
            if catches == "and raises":
                raise RuntimeError("interrupted") from None
            if catches == "and asks again":
                return (await ctx.elicit("Where to, really?")).action
            if catches == "everything":
                await asyncio.sleep(0.01)
            return "made up"

    async with wire(app) as client:
        params = {"name": "book", "arguments": {}}
        asked = await client.ask("tools/call", params)
        assert list(asked["result"]["inputRequests"]) == ["elicitation-1"]
        answer = await retry(client, asked, params, {"elicitation-1": {"action": "decline"}})
        assert text_of(answer) == "decline"


async def test_answers_to_other_questions_are_ignored() -> None:
    app, _ = booking()
    async with wire(app) as client:
        foreign = {**ARGUMENTS, "inputResponses": {"something-else": OSLO}}
        answer = await client.ask("tools/call", foreign)
        assert list(answer["result"]["inputRequests"]) == ["elicitation-1"]
        early = {"elicitation-1": OSLO, "elicitation-2": {"action": "decline"}}
        second = await retry(client, answer, ARGUMENTS, early)
        assert list(second["result"]["inputRequests"]) == ["elicitation-2"]
        changed = {"elicitation-1": {"action": "decline"}, "elicitation-2": {"action": "accept"}}
        last = await retry(client, second, ARGUMENTS, changed)
        assert text_of(last) == "Ada Oslo 1 accept", "an answer once given stays"


async def test_a_client_may_answer_what_it_knows_will_be_asked() -> None:
    app, _ = booking()
    async with wire(app) as client:
        known = {
            **ARGUMENTS,
            "inputResponses": {"elicitation-1": OSLO, "more": {"action": "accept"}},
        }
        answer = await client.ask("tools/call", known)
        assert list(answer["result"]["inputRequests"]) == ["elicitation-2"]


@pytest.mark.parametrize("answer", [{}, {"action": "maybe"}, {"action": 5}])
async def test_answers_that_are_none(answer: Any) -> None:
    app, _ = booking()
    async with wire(app) as client:
        asked = await client.ask("tools/call", ARGUMENTS)
        error = (await retry(client, asked, ARGUMENTS, {"elicitation-1": answer}))["error"]
        assert error["code"] == -32602
        assert "elicitation-1" in error["message"]


# The state


def spoiled(state: str) -> list[Any]:
    middle = len(state) // 2
    flipped = "A" if state[middle] != "A" else "B"
    return [
        "",
        "garbage",
        state[:-1],
        state + "A",
        state[:middle] + flipped + state[middle + 1 :],
        state.swapcase(),
        state + "=",
        " " + state,
        "x" * 1_000_000,
        "é",
    ]


async def test_a_state_that_was_tampered_with_is_refused() -> None:
    app, booked = booking()
    async with wire(app) as client:
        asked = await client.ask("tools/call", ARGUMENTS)
        for state in spoiled(asked["result"]["requestState"]):
            bad = copy.deepcopy(asked)
            bad["result"]["requestState"] = state
            error = (await retry(client, bad, ARGUMENTS, {"elicitation-1": OSLO}))["error"]
            assert error["code"] == -32602
            assert "requestState" in error["message"]
        assert booked == []


async def test_a_state_of_another_call_is_refused() -> None:
    app, _ = booking()
    app.add_tool(lambda guest: "x", name="other")
    app.add_prompt(lambda: "x", name="book")
    async with wire(app) as client:
        asked = await client.ask("tools/call", ARGUMENTS)
        for params in (
            {"name": "book", "arguments": {"guest": "Eve"}},
            {"name": "book", "arguments": {}},
            {"name": "other", "arguments": {"guest": "Ada"}},
        ):
            error = (await retry(client, asked, params, {"elicitation-1": OSLO}))["error"]
            assert (error["code"], "another call" in error["message"]) == (-32602, True)
        state = asked["result"]["requestState"]
        error = (await client.ask("prompts/get", {"name": "book", "requestState": state}))["error"]
        assert error["code"] == -32602


async def test_the_spelling_of_the_arguments_does_not_matter() -> None:
    app = Server("asking")

    @app.tool
    async def two(a: int, b: str, ctx: Context) -> str:
        return (await ctx.elicit("?")).action

    async with wire(app) as client:
        asked = await client.ask("tools/call", {"name": "two", "arguments": {"a": 1, "b": "é"}})
        params = {"name": "two", "arguments": {"b": "\u00e9", "a": 1}}
        answer = await retry(client, asked, params, {"elicitation-1": {"action": "accept"}})
        assert text_of(answer) == "accept"


async def test_a_state_of_another_principal_is_refused() -> None:
    from mcpearl.transports.memory import memory_pair

    app, _ = booking()
    clients = []
    async with app.running():
        for principal in ("ada", "eve"):
            transport, other = memory_pair()
            await app.connect(other, Principal(principal))
            client = Wire(transport, MODERN)
            await transport.open(client)
            clients.append(client)
        ada, eve = clients
        asked = await ada.ask("tools/call", ARGUMENTS)
        error = (await retry(eve, asked, ARGUMENTS, {"elicitation-1": OSLO}))["error"]
        assert "another principal" in error["message"]
        assert "result" in await retry(ada, asked, ARGUMENTS, {"elicitation-1": OSLO})
        for client in clients:
            await client.transport.close()


async def test_a_state_that_is_too_old_is_refused() -> None:
    app, _ = booking(state_ttl=-1.0)
    async with wire(app) as client:
        asked = await client.ask("tools/call", ARGUMENTS)
        error = (await retry(client, asked, ARGUMENTS, {"elicitation-1": OSLO}))["error"]
        assert error["code"] == -32602
        assert "expired" in error["message"]


async def test_workers_with_the_same_keys_take_each_others_rounds() -> None:
    key, old = b"k" * 32, b"o" * 32
    outcomes = []
    for first_keys, second_keys in (
        ([key], [key]),
        ([old], [key, old]),
        ([key], [old]),
        (None, None),
    ):
        apps = [booking(state_keys=keys)[0] for keys in (first_keys, second_keys)]
        async with wire(apps[0]) as one, wire(apps[1]) as other:
            asked = await one.ask("tools/call", ARGUMENTS)
            outcomes.append(
                "result" in await retry(other, asked, ARGUMENTS, {"elicitation-1": OSLO})
            )
    assert outcomes == [True, True, False, False]


async def test_a_state_that_grows_too_large_is_a_clear_error() -> None:
    app = Server("asking")

    @app.tool
    async def hoards(ctx: Context) -> str:
        await ctx.once("much", lambda: "x" * 1_000_000)
        return (await ctx.elicit("?")).action

    async with wire(app) as client:
        assert "max_request_state" in text_of(await client.call("hoards"))


async def test_a_legacy_request_state_means_nothing() -> None:
    app = Server("asking")
    app.add_tool(lambda: 1, name="one")
    async with wire(app, LEGACY) as client:
        answer = await client.ask("tools/call", {"name": "one", "requestState": "whatever"})
        assert text_of(answer) == "1"


# Legacy asks


async def test_a_client_that_refuses_or_fails() -> None:
    app = Server("asking", ask_timeout=1)

    @app.tool
    async def asks(ctx: Context) -> str:
        try:
            return (await ctx.elicit("?")).action
        except McpError as error:
            return f"refused {error.code}"

    async with wire(app, LEGACY) as client:
        for answer, said in (
            ({"error": {"code": -1, "message": "no"}}, "refused -1"),
            ({"result": {"action": "maybe"}}, "is not valid"),
            ({"result": 5}, "is not valid"),
            (None, "not answered within"),
        ):
            id = client.request("tools/call", {"name": "asks", "arguments": {}})
            question = await client.next()
            assert question["method"] == "elicitation/create"
            if answer is not None:
                client.raw({"jsonrpc": "2.0", "id": question["id"], **answer})
            assert said in text_of(await client.answer_to(id))
        told = await client.next()
        assert told["method"] == "notifications/cancelled"
        assert told["params"]["requestId"] == question["id"]


@pytest.mark.parametrize("plain", [True, False])
async def test_a_cancelled_call_takes_its_question_back(plain: bool) -> None:
    app = Server("asking", threads=1)

    def asks_plainly(ctx: Context) -> str:
        return ctx.wait(ctx.elicit("?")).action

    async def asks(ctx: Context) -> str:
        return (await ctx.elicit("?")).action

    app.add_tool(asks_plainly if plain else asks, name="asks")
    app.add_tool(lambda: "free", name="free")
    async with wire(app, LEGACY) as client:
        id = client.request("tools/call", {"name": "asks", "arguments": {}})
        question = await client.next()
        client.cancel(id)
        told = await client.next()
        assert told["method"] == "notifications/cancelled"
        assert told["params"]["requestId"] == question["id"]
        assert text_of(await client.call("free")) == "free", "and its thread is free again"
