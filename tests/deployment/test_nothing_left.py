"""What clients leave in the store that go without a word: nothing, once its time is over.

The times are shortened; that keys go when they are over is up to a real Redis.
"""

import pytest

from mcpearl.server.tasks.options import Tasks
from mcpearl.stores import redis_bus, redis_event_steps, redis_members, redis_sessions, redis_state
from tests.deployment.machines import TAKES_TASKS, make_app, text_of
from tests.redis_server import running
from tests.transports.raw_http import modern, serving
from tests.waiting import eventually


@pytest.fixture
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (redis_bus, redis_event_steps):
        monkeypatch.setattr(module, "KEPT_FOR", 2)
    monkeypatch.setattr(redis_event_steps, "LINGER", 1)
    monkeypatch.setattr(redis_sessions, "YOUNG", 2.0)
    monkeypatch.setattr(redis_state, "IDLE", 2)
    monkeypatch.setattr(redis_members, "LEASE", 1.0)


@pytest.mark.usefixtures("_short")
async def test_nothing_is_left_of_clients_that_went_without_a_word() -> None:
    with running("redis") as redis:
        apps = [make_app(redis.url) for _ in range(2)]

        @apps[0].tool(task=Tasks(ttl=2.0, required=True))
        async def job() -> str:
            "Work as a task."
            return "done"

        async with (
            serving(apps[0], idle_timeout=2.0) as one,
            serving(apps[1], idle_timeout=2.0) as two,
        ):
            sessions = [await place.initialize() for place in (one, two, one, two)]
            for session, place in zip(sessions, (two, one, two, one), strict=True):
                session.port = place.port  # it goes on at the other machine
                assert (
                    await session.ask("resources/subscribe", {"uri": "config://a"})
                ).status == 200
                assert text_of((await session.use("keep")).json) == "kept"
            streams = [await session.get() for session in sessions]
            asking = await sessions[0].use("ask", id=7)
            await asking.next()
            apps[0].notify_resource_updated("config://a")
            for stream in streams:
                assert (await stream.next())["params"] == {"uri": "config://a"}
            headers, body = modern(
                "tools/call",
                {"name": "job", "arguments": {}},
                **TAKES_TASKS,
            )
            assert "taskId" in (await one.post(body, headers)).json["result"]
            for each in (*streams, asking):
                each.close()  # and none of them says goodbye

        client = apps[0].shared.link.address.client(None)  # type: ignore[union-attr]

        async def left() -> set[str]:
            found = [key.decode() async for key in client.scan_iter()]
            return {key.rpartition("}:")[2].split(":")[0] for key in found}

        async def is_empty() -> bool:
            # A task stays a minute longer than its time, the notes of changed tasks for an hour.
            return await left() <= {"keys", "task", "tasks"}

        await eventually(is_empty)
        await client.aclose()
