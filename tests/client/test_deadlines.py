"""Whatever a server does, a call ends in its time, and the client asks and dials with pauses.

`call_tool(timeout=t)` returns at the latest after `t` and a moment, over every wire and in both eras.
Three things move its end, and each has a limit of its own: progress, where the caller wants to hear of
it (`max_timeout`); a login (its own timeout); a callback of the application (`callback_timeout`).
"""

import asyncio
import itertools
import json
import textwrap
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from mcpearl import Client, McpearlError, Reconnect, RequestTimeout
from tests.client.hostile import (
    ERAS,
    WIRES,
    Channel,
    Hostile,
    Relay,
    Time,
    Trick,
    run_with_time,
    serve,
)
from tests.client.peers import Message, Script

TIMEOUT = 20.0
MOMENT = 1.0
FEW = settings(
    max_examples=8,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


# What a server may do when it is asked something


async def nothing(message: Message, channel: Channel) -> None:
    """Never answer."""


async def answer(message: Message, channel: Channel) -> None:
    """Answer as an honest server does."""
    tools = [{"name": "t", "inputSchema": {"type": "object"}}]
    result = {"tools": tools} if message["method"] == "tools/list" else {"content": []}
    extra = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    channel.send(id=message["id"], result={**result, **extra})
    if channel.http is not None:
        channel.http.end()


async def close(message: Message, channel: Channel) -> None:
    """Close the connection."""
    channel.close()


async def fail(message: Message, channel: Channel) -> None:
    """Answer with the error that has the client list the tools and call again."""
    channel.send(id=message["id"], error={"code": -32020, "message": "other headers"})


async def mumble(message: Message, channel: Channel) -> None:
    """Send what is not an answer: another id, another version, no result, no JSON."""
    channel.send(id="other", result={})
    channel.send(id=message["id"])
    channel.raw(b'{"jsonrpc":"1.0","id":1,"result":{}}')
    channel.raw(b"[]")
    channel.raw(b"nonsense")


async def progress(message: Message, channel: Channel) -> None:
    """Report progress for ever."""

    async def report() -> None:
        token = message.get("params", {}).get("_meta", {}).get("progressToken", message["id"])
        for step in itertools.count():
            params = {"progressToken": token, "progress": step}
            channel.send(method="notifications/progress", params=params)
            await asyncio.sleep(0.5)

    channel.keep(report())


async def trickle(message: Message, channel: Channel) -> None:
    """Send log messages for ever, a few each second."""

    async def talk() -> None:
        while True:
            params = {"level": "info", "data": "still there"}
            channel.send(method="notifications/message", params=params)
            await asyncio.sleep(0.25)

    channel.keep(talk())


async def storm(message: Message, channel: Channel) -> None:
    """Announce changes over and over, then answer."""
    for _ in range(200):
        channel.send(method="notifications/tools/list_changed")
    await answer(message, channel)


async def pings(message: Message, channel: Channel) -> None:
    """Ask over and over, and do not answer."""
    for number in range(200):
        channel.send(id=f"ping-{number}", method="ping")


async def again(message: Message, channel: Channel) -> None:
    """Ask to be called again, without a question."""
    result = {"resultType": "input_required", "requestState": "s", "inputRequests": {}}
    channel.send(id=message["id"], result=result)


async def question(message: Message, channel: Channel) -> None:
    """Take a while, then ask the client something, in every round."""

    async def ask() -> None:
        await asyncio.sleep(TIMEOUT * 0.6)
        asked = {"q": {"method": "roots/list"}}
        result = {"resultType": "input_required", "requestState": "s", "inputRequests": asked}
        channel.send(id=message["id"], result=result)

    channel.keep(ask())


async def endless(message: Message, channel: Channel) -> None:
    """List for ever: there is always another page."""
    page = {"tools": [], "nextCursor": json.dumps(message["id"]), "resultType": "complete"}
    channel.send(id=message["id"], result={**page, "ttlMs": 0, "cacheScope": "private"})
    if channel.http is not None:
        channel.http.end()


def circle(status: int, **headers: str) -> Trick:
    """Over HTTP, answer with a status that has the client try again or elsewhere."""

    async def respond(message: Message, channel: Channel) -> None:
        if channel.http is not None:
            channel.http.respond(status, **headers)

    return respond


async def come_back(message: Message, channel: Channel) -> None:
    """Over HTTP, end the stream at once, and want to be asked for the rest without delay."""
    if channel.http is not None:
        channel.http.event(b"retry: 0\nid: 1\ndata:\n\n")
        channel.http.end()


async def goodbye(message: Message, channel: Channel) -> None:
    """Over HTTP, take no more requests on this connection, of which there were none."""
    if channel.http is not None:
        channel.http.say_goodbye()


TRICKS: dict[str, Trick] = {
    trick.__name__: trick
    for trick in (
        *(nothing, answer, close, fail, mumble, progress, trickle, storm, pings, again, question),
        *(endless, come_back, goodbye),
    )
}
TRICKS |= {
    "401": circle(401, WWW_Authenticate='Bearer scope="a"'),
    "307": circle(307, Location="/mcp"),
    "404": circle(404),
    "429": circle(429, Retry_After="0"),
    "503": circle(503, Retry_After="0"),
    "202": circle(202),
}
tricks = st.sampled_from(sorted(TRICKS))


async def _call(time: Time, hostile: Hostile, within: float = TIMEOUT, **options: Any) -> Any:
    """Connect, call a tool once, close; return the outcome of the call, or why there is none."""
    client = Client(
        hostile.url, roots=["file:///"], connect_timeout=5.0, max_timeout=30.0, **hostile.options
    )
    outcome = await time.ends_within(client.connect(), 60.0, "connecting")
    if isinstance(outcome, Exception):
        return outcome
    call = client.call_tool("t", {}, timeout=TIMEOUT, **options)
    try:
        return await time.ends_within(call, within + MOMENT, "the call")
    finally:
        await time.ends_within(client.close(), 30.0, "closing")
        hostile.stop()


def _is_paced(hostile: Hostile) -> None:
    """The client came back as often as its pauses allow, and no more."""
    pages = [message for message in hostile.asked("tools/list") if "cursor" in message["params"]]
    said = [message for message in hostile.messages if "method" in message]
    assert len(pages) <= 2000  # two listings; each is bounded, and each page was asked for
    assert len(said) - len(pages) <= 60, [message["method"] for message in said]
    answers = len(hostile.messages) - len(said)
    assert hostile.connections <= 40 + len(pages) + answers


def _checked(
    wire: str, era: str, hostile: Hostile, folder: Path, certificate: Path, **options: Any
) -> Any:
    """Call a tool of a hostile server; the call must end in time, and as documented."""
    relay = options.pop("relay", None)
    outcomes = []

    async def test(time: Time) -> None:
        async with (
            serve(wire, hostile, folder, certificate),
            nullcontext() if relay is None else relay(),
        ):
            outcomes.append(await _call(time, hostile, **options))

    run_with_time(test)
    (outcome,) = outcomes
    assert not isinstance(outcome, Exception) or isinstance(outcome, McpearlError), outcome
    _is_paced(hostile)
    return outcome


BOTH = [(wire, era) for wire in WIRES for era in ERAS if (wire, era) != ("http+sse", "modern")]


@pytest.mark.parametrize(("wire", "era"), BOTH)
@FEW
@given(listing=tricks, calling=tricks, stands=st.booleans())
@example(listing="answer", calling="question", stands=True)
@example(listing="answer", calling="progress", stands=True)
@example(listing="endless", calling="answer", stands=False)
@example(listing="answer", calling="come_back", stands=False)
@example(listing="answer", calling="goodbye", stands=False)
@example(listing="404", calling="404", stands=True)
@example(listing="answer", calling="307", stands=False)
def test_a_call_ends_in_its_time(
    wire: str,
    era: str,
    listing: str,
    calling: str,
    stands: bool,
    tmp_path: Path,
    certificate: Path,
) -> None:
    hostile = Hostile(ERAS[era], tools_list=TRICKS[listing], tools_call=TRICKS[calling])
    hostile.stands = stands
    outcome = _checked(wire, era, hostile, tmp_path, certificate)
    assert hostile.asked("tools/call"), outcome


@pytest.mark.parametrize(("wire", "era"), [pair for pair in BOTH if pair[0] != "unix"])
@FEW
@given(
    size=st.integers(0, 3000),
    then=st.sampled_from(["stall", "close", "abort", "garble"]),
    calling=st.sampled_from(["answer", "trickle", "again"]),
)
@example(size=0, then="stall", calling="answer")
@example(size=1, then="garble", calling="answer")
def test_a_server_may_fall_silent_at_any_byte(
    wire: str, era: str, size: int, then: str, calling: str, tmp_path: Path, certificate: Path
) -> None:
    hostile = Hostile(ERAS[era], tools_list=answer, tools_call=TRICKS[calling])
    _checked(wire, era, hostile, tmp_path, certificate, relay=Relay(hostile, size, then))


@pytest.mark.parametrize(("wire", "era"), BOTH)
def test_progress_that_is_wanted_moves_the_end_up_to_its_maximum(
    wire: str, era: str, tmp_path: Path, certificate: Path
) -> None:
    hostile = Hostile(ERAS[era], tools_list=answer, tools_call=progress)
    options = {"on_progress": lambda _: None, "within": 30.0}
    outcome = _checked(wire, era, hostile, tmp_path, certificate, **options)
    assert isinstance(outcome, RequestTimeout)
    assert "maximum" in str(outcome)


# A server process keeps real time: a short timeout, and a limit that only a hang reaches.
HANGS = 60.0
PROCESSES = {
    "does not list": """
        if message.get("method") == "tools/call":
            answer(message, {"content": [], "resultType": "complete"})
    """,
    "does not answer": "pass",
    "stops in the middle of a line": """
        sys.stdout.write('{"jsonrpc":"2.0","id":'); sys.stdout.flush(); time.sleep(1000)
    """,
    "does not stop talking": """
        while True: send(method="notifications/message", params={"level": "info", "data": "x" * 500})
    """,
    "does not stop reporting progress": """
        while True:
            send(method="notifications/progress", params={"progressToken": message["id"], "progress": 1})
            time.sleep(0.01)
    """,
    "does not stop asking": """
        for number in range(10**9): send(id=number, method="ping")
    """,
    "does not read": "time.sleep(1000)",
    "ends, and then does not start": """
        open(LOG + ".ended", "w").close(); sys.exit(3)
    """,
    "ignores everything": """
        for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP): signal.signal(each, signal.SIG_IGN)
        os.close(0); time.sleep(1000)
    """,
}


@pytest.mark.parametrize("modern", [True, False], ids=["modern", "legacy"])
async def test_a_server_process_cannot_hold_a_call(tmp_path: Path, modern: bool) -> None:
    async def call(number: int, body: str) -> None:
        lines = textwrap.indent(textwrap.dedent(body).strip(), "    ")
        script = Script(
            tmp_path,
            'if os.path.exists(LOG + ".ended"): time.sleep(1000)\n'
            f"welcome(modern={modern})\nfor message in messages():\n{lines}\n",
            f"server_{number}",
        )
        client = Client(script.path, reconnect=Reconnect(delays=(0.05,)), keepalive=None)
        await client.connect()
        try:
            with suppress(McpearlError):
                await asyncio.wait_for(client.call_tool("t", timeout=1.0), HANGS)
        finally:
            await asyncio.wait_for(client.close(), HANGS)

    await asyncio.gather(*(call(*each) for each in enumerate(PROCESSES.values())))
