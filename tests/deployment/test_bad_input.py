"""What comes from outside and is not as it should be: ids, keys, clocks, rights, and the store itself."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from mcpearl import Server
from mcpearl.auth import Principal
from mcpearl.runtime import clock
from mcpearl.server.tasks.options import Tasks
from mcpearl.server.tasks.vault import Vault
from mcpearl.stores.errors import TOLD
from mcpearl.stores.redis_sessions import YOUNG, _Facts
from mcpearl.stores.sessions import Identity
from mcpearl.stores.tasks import TaskRecord
from mcpearl.transports.http_server.gate import Refused
from mcpearl.types.capabilities import ClientCapabilities
from tests.deployment.machines import TAKES_TASKS, Machine, make_app, text_of, two_machines
from tests.ports import free_port
from tests.redis_server import fresh_address, running
from tests.transports.raw_http import LEGACY, modern, serving
from tests.waiting import eventually


async def test_an_old_id_is_gone_and_a_clock_a_minute_ahead_is_not() -> None:
    async with two_machines() as (one, _):
        sessions = one.store.sessions
        anyone = (await sessions.load((await one.raw.initialize()).id)).identity  # type: ignore[union-attr]

        async def is_known(age: float) -> bool:
            facts = _Facts(clock.now() - age, anyone, LEGACY, None, ClientCapabilities())
            return await sessions.load(sessions._seal(facts)) is not None

        assert await is_known(0) and await is_known(-60) and await is_known(60)
        assert not await is_known(YOUNG + 1)
        old = _Facts(clock.now() - YOUNG - 1, anyone, LEGACY, None, ClientCapabilities())
        session = await one.raw.initialize()
        session.headers["Mcp-Session-Id"] = sessions._seal(old)
        assert (await session.ask("ping")).status == 404


async def test_a_machine_without_the_key_refuses_in_words() -> None:
    address = fresh_address()
    one = make_app(address, state_keys=[b"a" * 32])
    two = make_app(address, state_keys=[b"b" * 32])
    async with serving(one) as first, serving(two) as second:
        begun = await first.initialize()
        elsewhere = await second.initialize()
        elsewhere.headers["Mcp-Session-Id"] = begun.id
        refused = await elsewhere.ask("ping")
        assert refused.status == 404 and "begin a new one" in refused.json["error"]["message"]
        asked = (await first.call("ask")).json["result"]
        (key,) = asked["inputRequests"]
        more = {
            "requestState": asked["requestState"],
            "inputResponses": {key: {"action": "accept"}},
        }
        headers, body = modern("tools/call", {"name": "ask", "arguments": {}, **more})
        done = await second.post(body, headers)
        assert done.json["error"]["code"] == -32602, done.body


async def test_two_deployments_on_one_store_share_nothing_but_their_keys() -> None:
    apps = [make_app(fresh_address(), state_keys=[b"k" * 32]) for _ in range(2)]
    async with serving(apps[0]) as first, serving(apps[1]) as second:
        one, two = (Machine(app, raw) for app, raw in zip(apps, (first, second), strict=True))
        begun = await first.initialize()
        assert (await two.take_up(begun).ask("ping")).status == 404
        for uri in ("config://a", "config://b"):
            assert (await begun.ask("resources/subscribe", {"uri": uri})).status == 200
        stream = await begun.get()
        two.app.notify_resource_updated("config://a")
        await eventually(lambda: not two.store.bus._unsent)
        one.app.notify_resource_updated("config://b")
        assert (await stream.next())["params"] == {"uri": "config://b"}
        stream.close()
        numbers = [{each.number for each in await it.store.members.all()} for it in (one, two)]
        assert [len(each) for each in numbers] == [1, 1] and numbers[0] != numbers[1]
        await eventually(lambda: one.store.sessions.count == 1)
        assert two.store.sessions.count == 0


async def test_a_principal_that_lost_its_rights_loses_them_at_every_machine() -> None:
    class ByHeader:
        def document(self, request: Any) -> None:
            return None

        def known(self, request: Any) -> None:
            return None

        async def admit(self, request: Any) -> Principal:
            scopes = request.headers.get(b"x-scopes", b"").decode().split()
            return Principal("ann", scopes=scopes)

        def insufficient(self, request: Any, needed: Any) -> Refused:
            return Refused(403, f"needs {needed}")

    def app(store: str) -> Server:
        made = make_app(store)

        @made.tool(scopes=["write"])
        async def write() -> str:
            "Write."
            return "written"

        @made.resource("secret://a", scopes=["write"])
        def secret() -> str:
            return "a"

        return made

    address = fresh_address()
    first = app(address)
    async with (
        serving(first, auth=ByHeader()) as one,
        serving(app(address), auth=ByHeader()) as two,
    ):
        begun = await one.initialize(**{"X-Scopes": "write"})
        assert text_of((await begun.use("write")).json) == "written"
        assert (await begun.ask("resources/subscribe", {"uri": "secret://a"})).status == 200
        elsewhere = await two.initialize()
        elsewhere.id, elsewhere.headers = begun.id, {**begun.headers, "X-Scopes": ""}
        refused = await elsewhere.use("write", id=5)
        assert refused.status == 403, refused.body
        assert (await elsewhere.ask("ping", id=6)).status == 200  # the session is still its own
        stream = await elsewhere.get()
        await eventually(lambda: not first.core.subscriptions.has("secret://a"))
        first.notify_resource_updated("secret://a")
        first.notify_list_changed("tools")
        assert (await stream.next())["method"] == "notifications/tools/list_changed"
        stream.close()


class Between:
    """Stands between a server and its store, and delays replies or cuts them off in the middle."""

    def __init__(self, port: int) -> None:
        self._to = port
        self.cuts = False
        self.delay = 0.0  # seconds

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far = await asyncio.open_connection("127.0.0.1", self._to)

        async def forth() -> None:
            while data := await reader.read(65536):
                far.write(data)

        async def back() -> None:
            while data := await far_reader.read(65536):
                await asyncio.sleep(self.delay)
                writer.write(data[: max(1, len(data) // 2)] if self.cuts else data)
                if self.cuts:
                    return

        with suppress(OSError):
            tasks = [asyncio.create_task(forth()), asyncio.create_task(back())]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
        far.close()
        writer.close()


async def test_a_store_that_answers_half_is_refused_and_comes_back() -> None:
    with running("redis", port=free_port()) as redis:
        half = Between(redis.port)
        server = await asyncio.start_server(half.serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with two_machines(f"redis://127.0.0.1:{port}") as (one, two):
            begun = await one.raw.initialize()
            half.cuts = True
            refused = await two.take_up(begun).ask("ping")
            assert (refused.status, refused.headers["retry-after"]) == (503, "5")
            assert "result" in (await begun.use("add", {"a": 1, "b": 2}, id=2)).json
            half.cuts = False

            async def is_back() -> bool:
                return (await two.take_up(begun).ask("ping")).status == 200

            await eventually(is_back)
        server.close()


async def test_a_store_that_answers_slowly_delays_only_what_needs_it() -> None:
    with running("redis", port=free_port()) as redis:
        between = Between(redis.port)
        server = await asyncio.start_server(between.serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with two_machines(f"redis://127.0.0.1:{port}") as (one, two):
            begun = await one.raw.initialize()
            stream = await begun.get()
            between.delay = 0.5
            before = one.store.link.sent
            for id in range(20):  # they do not ask it
                assert "result" in (await begun.use("add", {"a": 1, "b": id}, id=id)).json
            assert one.store.link.sent - before <= 10  # signs of life, and the count of sessions
            elsewhere = two.take_up(begun)
            subscribed = await elsewhere.ask("resources/subscribe", {"uri": "config://a"})
            assert subscribed.status == 200
            two.app.notify_resource_updated("config://a")
            assert (await stream.next())["params"] == {"uri": "config://a"}
            stream.close()
            between.delay = 0.0
        server.close()


async def test_a_value_in_the_place_of_a_session_or_stream_is_refused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with two_machines() as (one, two):
        begun = await one.raw.initialize()
        key = one.store.sessions._key(begun.id)
        await one.store.link.send("DEL", key)
        await one.store.link.send("SET", key, "something else", "EX", 60)
        refused = await two.take_up(begun).ask("ping")
        assert refused.status == 503 and TOLD in refused.json["error"]["message"]
        assert "refused a step" in caplog.text and "WRONGTYPE" in caplog.text
        await one.store.link.send("DEL", key)
        await one.store.link.send("HSET", key, "revision", 2, "data", b"\xc1", "expires", 1e12)
        await one.store.link.send("EXPIRE", key, 60)
        refused = await two.take_up(begun).ask("ping")
        assert refused.status == 503 and TOLD in refused.json["error"]["message"]
        assert "not a session" in caplog.text
        assert (await begun.ask("ping", id=3)).status == 200  # the machine that has it goes on


async def test_a_store_that_was_emptied_leaves_no_client_deaf() -> None:
    with running("redis") as redis:
        async with two_machines(redis.url) as (one, two):
            begun = await one.raw.initialize()
            await begun.ask("resources/subscribe", {"uri": "config://a"})
            stream = await begun.get()
            for _ in range(3):
                two.app.notify_resource_updated("config://a")
                assert (await stream.next())["params"] == {"uri": "config://a"}
            await one.store.link.send("FLUSHALL")
            two.app.notify_resource_updated("config://a")
            assert (await stream.next())["params"] == {"uri": "config://a"}
            await one.store.link.send("FLUSHALL")
            stream.close()
            again = await begun.get()  # it must not look for what is gone for ever
            two.app.notify_resource_updated("config://a")
            assert (await again.next())["params"] == {"uri": "config://a"}
            again.close()


async def test_a_task_sealed_with_another_key_is_left_to_those_that_have_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = make_app(fresh_address(), state_keys=[b"a" * 32])

    @app.tool(task=Tasks(required=True, restart=True))
    async def job() -> str:
        "Work as a task."
        return "done"

    async with serving(app) as raw:
        tasks = Machine(app, raw).store.tasks
        owner: Identity = ("issuer", "ann", None)
        sealed = Vault([b"b" * 32]).seal("foreign", b"a request")
        foreign = TaskRecord(id="foreign", owner=owner, ttl=600.0, request=sealed, running=True)
        await tasks.create(foreign, "a process that has the key", 0.0)
        headers, body = modern("tools/call", {"name": "job", "arguments": {}}, **TAKES_TASKS)
        assert "taskId" in (await raw.post(body, headers)).json["result"]  # it tends to tasks now
        await eventually(lambda: "a task is left to others" in caplog.text)
        left = await tasks.get("foreign", owner)
        assert left is not None
        assert (left.holder, left.fence, left.status) == (
            "a process that has the key",
            1,
            "working",
        )
