"""What one client does, another one does not see: hostile clients in all combinations of eras."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mcpearl import Client, McpError
from mcpearl.auth import BearerToken, StaticTokens
from mcpearl.gateway.gateway import Gateway
from mcpearl.gateway.settings import UpstreamSettings
from mcpearl.types.progress import CancelledNotificationParams
from tests.gateway.upstream_server import LEGACY, MODERN, make
from tests.server.wire import wire
from tests.waiting import eventually, turns

OF = {"legacy": LEGACY, "modern": MODERN}
TOKENS = StaticTokens({"token-of-ada-1234": "ada", "token-of-bob-1234": "bob"})
ADA, BOB = BearerToken("token-of-ada-1234"), BearerToken("token-of-bob-1234")


@asynccontextmanager
async def gateway_to(
    versions: tuple[str, ...] = LEGACY, entry: dict[str, Any] | None = None, **options: Any
) -> AsyncIterator[tuple[str, Gateway]]:
    """A gateway over HTTP, in front of one upstream over HTTP."""
    async with make(versions).serving("http", port=0) as inner:
        gateway = Gateway({"up": {"url": inner, **(entry or {})}}, **options)
        async with gateway.serving("http", port=0) as url:
            yield url, gateway


async def recalled(client: Client) -> Any:
    return (await client.call_tool("up__recall")).text


ASKED: dict[str, Any] = {"elicitation": lambda params: {"value": "x"}}


@pytest.mark.parametrize("options", [{}, ASKED], ids=["quiet", "asked"])
@pytest.mark.parametrize("era", OF)
async def test_state_of_a_session_stays_with_its_client(era: str, options: dict[str, Any]) -> None:
    """Without a session or a principal, a client has no state to come back to, and sees no other's."""
    protocol = OF[era][0]
    async with gateway_to() as (url, gateway):
        async with (
            Client(url, protocol=protocol, **options) as ada,
            Client(url, protocol=protocol, **options) as bob,
        ):
            await ada.call_tool("up__remember", {"text": "secret"})
            assert await recalled(bob) == "nothing"
            assert await recalled(ada) == ("secret" if era == "legacy" else "nothing")
        await eventually(lambda: gateway.upstreams["up"].sessions == 0)


@pytest.mark.parametrize("options", [{}, ASKED], ids=["quiet", "asked"])
async def test_a_principal_has_its_own_sessions(options: dict[str, Any]) -> None:
    async with (
        gateway_to(auth=TOKENS) as (url, _),
        Client(url, protocol=MODERN[0], auth=ADA, **options) as ada,
        Client(url, protocol=MODERN[0], auth=BOB, **options) as bob,
    ):
        await ada.call_tool("up__remember", {"text": "secret"})
        assert await recalled(bob) == "nothing"
        assert await recalled(ada) == "secret"


@pytest.mark.parametrize("options", [{}, ASKED], ids=["quiet", "asked"])
async def test_a_connection_has_its_own_sessions(options: dict[str, Any]) -> None:
    gateway = Gateway({"up": make(LEGACY)})
    async with Client(gateway, protocol=MODERN[0], **options) as ada:
        async with Client(gateway, protocol=MODERN[0], **options) as bob:
            await ada.call_tool("up__remember", {"text": "secret"})
            assert await recalled(bob) == "nothing"
            assert await recalled(ada) == "secret"
        upstream = gateway.upstreams["up"]
        await eventually(lambda: upstream.sessions == 1)  # those of the one that left are closed


@pytest.mark.parametrize(
    "shared", [{"entry": {"stateless": True}}, {"upstreams": UpstreamSettings(stateless=True)}]
)
async def test_sessions_are_shared_where_the_configuration_says_so(shared: dict[str, Any]) -> None:
    async with gateway_to(**shared) as (url, gateway):
        async with Client(url, protocol=MODERN[0]) as ada, Client(url, protocol=MODERN[0]) as bob:
            await ada.call_tool("up__remember", {"text": "no secret"})
            assert await recalled(bob) == "no secret"
        assert gateway.upstreams["up"].sessions == 0


async def test_an_upstream_without_sessions_is_shared() -> None:
    async with make(LEGACY).serving("http", port=0, stateless=True) as inner:
        gateway = Gateway({"up": inner})
        async with gateway.serving("http", port=0) as url:
            async with Client(url, protocol=MODERN[0]) as client:
                assert (await client.call_tool("up__add", {"a": 1, "b": 2})).data == 3
            assert gateway.upstreams["up"].is_stateless
            assert gateway.upstreams["up"].sessions == 0


@pytest.mark.parametrize("upstream", OF)
@pytest.mark.parametrize("era", OF)
async def test_ids_and_tokens_of_another_client_reach_nothing(era: str, upstream: str) -> None:
    """Two clients have the same request ids, progress tokens and subscription ids all the time."""
    protocol = OF[era][0]
    heard: list[Any] = []
    steps: dict[str, list[Any]] = {"ada": [], "bob": []}
    async with (
        gateway_to(OF[upstream]) as (url, gateway),
        Client(url, protocol=protocol) as ada,
        Client(url, protocol=protocol, on_notification=heard.append) as bob,
        Client(url, protocol=protocol) as eve,
    ):
        victim = asyncio.create_task(ada.call_tool("up__slow", {"seconds": 0.3}))
        await eventually(lambda: gateway.mounts["up"].calls == 1)
        for number in range(-1, 20):  # ids that a client of this library uses
            eve._link.connection.notify(  # type: ignore[union-attr]
                "notifications/cancelled", CancelledNotificationParams(request_id=number)
            )
        bob_call = asyncio.create_task(
            bob.call_tool("up__steps", on_progress=lambda p: steps["bob"].append(p.message))
        )
        await ada.call_tool("up__steps", on_progress=lambda p: steps["ada"].append(p.message))
        await bob_call
        assert (await victim).data == "done"
        await ada.subscribe("note://one")
        await ada.call_tool("up__touch")
        await turns()
    expected = ["step 1", "step 2", "step 3"]
    assert steps == {"ada": expected, "bob": expected}
    assert not [each for each in heard if each.method == "notifications/resources/updated"]


@pytest.mark.parametrize("option", ["max_sessions", "max_parked"])
async def test_a_client_that_never_lets_go_leaves_room_for_others(option: str) -> None:
    """One that parks all the calls it can takes half of what there is; its calls are refused then."""
    settings = UpstreamSettings(**{option: 8, "patience": 30.0})
    async with gateway_to(auth=TOKENS, upstreams=settings) as (url, gateway):
        parked: list[asyncio.Future[None]] = []

        async def hold(params: Any) -> Any:
            parked.append(asyncio.get_running_loop().create_future())
            await parked[-1]
            return {"value": "late"}

        options: dict[str, Any] = {"protocol": MODERN[0], "max_timeout": 600}
        async with (
            Client(url, auth=ADA, elicitation=hold, **options) as ada,
            Client(url, auth=BOB, elicitation=lambda p: {"value": "soon"}, **options) as bob,
        ):
            calls = [
                asyncio.ensure_future(ada.call_tool("up__ask", {"question": f"{number}?"}))
                for number in range(20)
            ]
            await eventually(lambda: sum(call.done() for call in calls) == 16)
            await eventually(lambda: len(parked) == 4)
            for call in calls:
                if call.done():
                    with pytest.raises(
                        McpError, match=f"4 of 8 places .`{option}`., which is its share"
                    ):
                        call.result()
            assert len(gateway.upstreams["up"].parked) == 4
            assert (await bob.call_tool("up__ask", {"question": "?"})).data == "? accept soon"
            for each in parked:
                each.set_result(None)
            kept = [call for call in calls if not call.done()]
            assert [r.data.split()[-1] for r in await asyncio.gather(*kept)] == ["late"] * 4
            assert len(gateway.upstreams["up"].parked.places) == 0


@pytest.mark.parametrize("upstream", OF)
async def test_a_state_that_was_made_up_reaches_no_call(upstream: str) -> None:
    gateway = Gateway({"up": make(OF[upstream])})
    async with wire(gateway, MODERN[0]) as ada, wire(gateway, MODERN[0]) as eve:
        asked = (await ada.call("up__ask", {"question": "?"}))["result"]
        state = asked["requestState"]
        answers = {key: {"action": "cancel"} for key in asked["inputRequests"]}
        parked = list(gateway.upstreams["up"].parked._calls)
        for guess in ("", "AAAA", state[:-4] + "AAAA", state[::-1], *parked):
            params = {
                "name": "up__ask",
                "arguments": {"question": "?"},
                "requestState": guess,
                "inputResponses": answers,
            }
            refused = await eve.ask("tools/call", params)
            assert "error" in refused, guess


async def test_a_parked_call_is_answered_once() -> None:
    """Of many that bring an answer at once, one is heard, whether they stole the state or repeat it."""
    gateway = Gateway({"up": make(LEGACY)})
    async with wire(gateway, MODERN[0]) as ada, wire(gateway, MODERN[0]) as eve:
        asked = (await ada.call("up__ask_twice", {}))["result"]
        (key,) = asked["inputRequests"]

        def answer(text: str) -> dict[str, Any]:
            content = {"action": "accept", "content": {"value": text}}
            state = asked["requestState"]
            return {
                "name": "up__ask_twice",
                "requestState": state,
                "inputResponses": {key: content},
            }

        answers = await asyncio.gather(
            *(each.ask("tools/call", answer(f"{n}")) for n in range(3) for each in (ada, eve))
        )
        heard = [each for each in answers if "result" in each]
        for each in answers:
            if "error" in each:
                assert "already" in each["error"]["message"]
        assert len(heard) >= 1
        assert len(gateway.upstreams["up"].parked) == 1
        (second,) = heard[0]["result"]["inputRequests"]
        assert second != key


async def test_a_log_level_is_that_of_its_own_client() -> None:
    for upstream in OF.values():
        async with gateway_to(upstream) as (url, _):
            for era in OF.values():
                heard: dict[str, list[Any]] = {"loud": [], "quiet": []}
                options: dict[str, Any] = {"protocol": era[0]}
                async with (
                    Client(url, on_log=heard["loud"].append, log_level="debug", **options) as loud,
                    Client(
                        url, on_log=heard["quiet"].append, log_level="emergency", **options
                    ) as quiet,
                ):
                    await asyncio.gather(
                        *(each.call_tool("up__steps") for each in (loud, quiet) for _ in range(3))
                    )
                    await eventually(lambda heard=heard: len(heard["loud"]) == 6)
                assert heard["quiet"] == []


CHATTY = """
import asyncio
import json
import os
from pathlib import Path
from mcpearl import Context, Server

app = Server("up", versions=("2026-07-28",))
late = []
quiet = asyncio.Event()
quiet.set()

@app.tool
async def chatter(ctx: Context) -> str:
    quiet.clear()
    try:
        while True:
            await ctx.info("secret of ada")
            await asyncio.sleep(0)
    finally:
        quiet.set()

@app.tool
async def after(ctx: Context) -> str:
    late.append("secret of ada")  # to be said in the middle of the next call
    return "answered"

def app_say(text):
    params = {"level": "info", "data": text}
    message = {"jsonrpc": "2.0", "method": "notifications/message", "params": params}
    os.write(1, json.dumps(message).encode() + b"\\n")

@app.tool
async def wait(ctx: Context) -> str:
    await ctx.info("of bob")
    Path(__file__).with_name("waits").touch()
    await quiet.wait()
    while late:
        app_say(late.pop())
    return "done"

app.run()
"""


@asynccontextmanager
async def chatty_upstream(folder: Path, **options: Any) -> AsyncIterator[str]:
    """A gateway in front of an upstream on stdio, whose clients share one stream."""
    program = folder / "chatty.py"
    program.write_text(CHATTY)
    gateway = Gateway({"up": [sys.executable, str(program)]}, **options)
    async with gateway.serving("http", port=0) as url:
        yield url


def logging_to(heard: list[Any], **options: Any) -> dict[str, Any]:
    return {
        "protocol": MODERN[0],
        "log_level": "debug",
        "on_log": lambda message: heard.append(message.data),
        **options,
    }


async def test_messages_of_a_cancelled_call_reach_no_other_client(tmp_path: Path) -> None:
    heard: dict[str, list[Any]] = {"ada": [], "bob": []}
    async with (
        chatty_upstream(tmp_path) as url,
        Client(url, **logging_to(heard["ada"])) as ada,
        Client(url, **logging_to(heard["bob"])) as bob,
    ):
        call = asyncio.create_task(ada.call_tool("up__chatter"))
        await eventually(lambda: len(heard["ada"]) > 0)
        waiting = asyncio.create_task(bob.call_tool("up__wait"))
        await eventually((tmp_path / "waits").exists)
        assert not waiting.done()
        call.cancel()
        await waiting
        await bob.call_tool("up__wait")
    assert "secret of ada" not in heard["bob"]


async def test_messages_after_an_answer_reach_no_other_principal(tmp_path: Path) -> None:
    """The protocol does not allow them; an upstream may send them all the same."""
    heard: dict[str, list[Any]] = {"ada": [], "bob": []}
    async with (
        chatty_upstream(tmp_path, auth=TOKENS) as url,
        Client(url, **logging_to(heard["ada"], auth=ADA)) as ada,
        Client(url, **logging_to(heard["bob"], auth=BOB)) as bob,
    ):
        await bob.call_tool("up__wait")
        assert heard["bob"] == ["of bob"]
        await ada.call_tool("up__after")
        await bob.call_tool("up__wait")
    assert heard == {"ada": [], "bob": ["of bob"]}
