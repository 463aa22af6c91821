"""Machines whose clocks differ: a minute each, in opposite directions; both serve the same clients."""

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.deployment.machines import TAKES_TASKS, text_of
from tests.ports import free_port
from tests.redis_server import end_with_parent, fresh_address
from tests.transports.raw_http import Raw, Session, modern
from tests.waiting import eventually

SERVER = Path(__file__).with_name("shifted_server.py")
ROOT = Path(__file__).parents[2]


@asynccontextmanager
async def machine(store: str, ahead: float) -> AsyncIterator[Raw]:
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, str(SERVER), str(port), store, str(ahead)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.DEVNULL,
        preexec_fn=end_with_parent,
    )
    raw = Raw(port)

    async def answers() -> bool:
        try:
            return (await raw.call("add", {"a": 1, "b": 2})).status == 200
        except OSError:
            return False

    try:
        await eventually(answers, otherwise=process.poll)
        yield raw
    finally:
        process.terminate()
        process.wait(30)


def at(place: Raw, session: Session) -> Session:
    taken = Session(place.port)
    taken.id, taken.headers = session.id, dict(session.headers)
    return taken


async def test_clocks_that_differ_by_two_minutes() -> None:
    store = fresh_address()
    async with machine(store, 60.0) as fast, machine(store, -60.0) as slow:
        for one, two in ((fast, slow), (slow, fast)):
            session = await one.initialize()
            elsewhere = at(two, session)
            assert (await elsewhere.ask("resources/subscribe", {"uri": "config://a"})).status == 200
            stream = await session.get()
            assert text_of((await elsewhere.use("touch", {"name": "a"})).json) == "touched"
            assert (await stream.next())["params"] == {"uri": "config://a"}
            stream.close()
            again = await elsewhere.get()  # what is made up for is found by the store's clock
            assert text_of((await session.use("touch", {"name": "a"}, id=2)).json) == "touched"
            assert (await again.next())["params"] == {"uri": "config://a"}
            again.close()
            await continues(one, two)
            await collects(one, two)


async def continues(one: Raw, two: Raw) -> None:
    """State that one machine sealed is opened by the other."""
    asked = (await one.call("ask")).json["result"]
    (key,) = asked["inputRequests"]
    given = {"requestState": asked["requestState"], "inputResponses": {key: {"action": "decline"}}}
    headers, body = modern("tools/call", {"name": "ask", "arguments": {}, **given})
    assert text_of((await two.post(body, headers)).json) == "decline"


async def collects(one: Raw, two: Raw) -> None:
    """A task that one machine made is there at the other, neither expired nor taken over."""
    headers, body = modern("tools/call", {"name": "job", "arguments": {}}, **TAKES_TASKS)
    task = (await one.post(body, headers)).json["result"]["taskId"]

    async def is_done() -> bool:
        headers, body = modern("tasks/get", {"taskId": task}, **TAKES_TASKS)
        headers["Mcp-Name"] = task
        answer = (await two.post(body, headers)).json
        assert "result" in answer, answer
        return bool(answer["result"]["status"] == "completed")

    await eventually(is_done)
