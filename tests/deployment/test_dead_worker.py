"""A worker dies while it streams; at another machine the stream is resumed and ends with an error."""

import asyncio
import os
import signal
from contextlib import AsyncExitStack
from pathlib import Path

from tests.deployment.scene import Machine
from tests.redis_server import fresh_address
from tests.transports.raw_http import Raw, Session


async def test_the_stream_of_a_worker_that_died_ends_with_an_error_at_another_machine(
    tmp_path: Path,
) -> None:
    store, ran = fresh_address(), tmp_path / "ran"

    def notes() -> list[str]:
        return [line.split()[0] for line in ran.read_text().splitlines()]

    async with AsyncExitStack() as stack:
        one, two = (Machine(store, ran, tmp_path / "errors") for _ in range(2))
        for machine in (one, two):
            stack.callback(machine.stop)
        await asyncio.gather(one.up(), two.up())
        session = await Raw(one.place[1]).initialize()
        stream = await session.use("ask", {"key": "never"}, id=7)
        last = None
        while (event := await stream.event()) is not None:
            last = event.get("id", last)
            if "elicitation/create" in event.get("data", ""):
                break
        assert event is not None and last is not None
        for worker in one.workers:
            os.kill(worker.pid, signal.SIGKILL)
        stream.close()
        taken = Session(two.place[1])
        taken.headers = dict(session.headers)
        async with asyncio.timeout(60):
            resumed = await taken.get({"Last-Event-ID": last})
            [answer] = await resumed.rest()
        assert answer["id"] == 7
        assert answer["error"]["data"]["mayHaveRun"] is True
        assert notes() == ["asked"]
        # The session itself goes on.
        again = await taken.use("record", {"key": "once"}, id=8)
        assert "result" in again.json and notes() == ["asked", "ran"]
