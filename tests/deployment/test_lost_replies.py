"""The store carries a step out and its reply is lost: the step is refused, and may be asked for again."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from mcpearl.server.tasks.options import Tasks
from mcpearl.stores.errors import StoreUnavailable
from tests.deployment.machines import TAKES_TASKS, Machine, make_app, text_of, two_machines
from tests.ports import free_port
from tests.redis_server import running
from tests.transports.raw_http import Response, modern, serving
from tests.waiting import eventually


class Swallowing:
    """Stands between servers and their store: commands arrive, and while told to, no reply comes back."""

    def __init__(self, port: int) -> None:
        self._to = port
        self.swallows = False
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far = await asyncio.open_connection("127.0.0.1", self._to)

        async def copy(source: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
            while data := await source.read(65536):
                if to is writer and self.swallows:
                    return
                to.write(data)

        tasks = [
            asyncio.create_task(copy(reader, far)),
            asyncio.create_task(copy(far_reader, writer)),
        ]
        with suppress(OSError):
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        far.close()
        writer.close()


@asynccontextmanager
async def between() -> AsyncIterator[Swallowing]:
    with running("redis", port=free_port()) as redis:
        swallowing = Swallowing(redis.port)
        server = await asyncio.start_server(swallowing.serve, "127.0.0.1", 0)
        swallowing.url = f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield swallowing
        finally:
            server.close()


async def refused_then_done(cut: Swallowing, step: Any, *done: int) -> Response:
    """Take a step whose reply is lost, then again until it is done; return that answer."""
    cut.swallows = True
    refused = await step()
    assert (refused.status, refused.headers["retry-after"]) == (503, "5"), refused.body
    cut.swallows = False
    answers: list[Response] = []

    async def is_done() -> bool:
        answers.append(await step())
        return answers[-1].status in done

    await eventually(is_done)
    return answers[-1]


async def test_what_changes_a_session_is_done_once() -> None:
    async with between() as cut, two_machines(cut.url) as (one, two):
        begun = await one.raw.initialize()
        elsewhere = two.take_up(begun)
        assert (await elsewhere.ask("ping")).status == 200
        for session, uri in ((begun, "config://a"), (elsewhere, "config://b")):
            await refused_then_done(
                cut, lambda s=session, u=uri: s.ask("resources/subscribe", {"uri": u}), 200
            )
        await refused_then_done(cut, lambda: begun.ask("logging/setLevel", {"level": "error"}), 200)
        await eventually(lambda: two.log_levels() == ["error"])
        stream = await begun.get()
        for uri in ("config://a", "config://b"):
            one.app.notify_resource_updated(uri)
            assert (await stream.next())["params"] == {"uri": uri}
        one.app.notify_list_changed("tools")
        assert (await stream.next())["method"] == "notifications/tools/list_changed"
        stream.close()
        await refused_then_done(cut, begun.delete, 204, 404)

        async def is_gone() -> bool:
            return (await elsewhere.ask("ping", id=8)).status == 404

        await eventually(is_gone)


async def test_an_answer_is_taken_once() -> None:
    async with between() as cut, two_machines(cut.url) as (one, two):
        begun = await one.raw.initialize()
        elsewhere = two.take_up(begun)
        assert (await elsewhere.ask("ping", id=7)).status == 200
        asking = await begun.use("ask")
        request = await asking.next()
        reply = {"jsonrpc": "2.0", "id": request["id"], "result": {"action": "accept"}}
        await refused_then_done(cut, lambda: elsewhere.post(reply), 202)
        (answer,) = await asking.rest()
        assert text_of(answer) == "accept"


async def test_events_and_updates_come_once_and_in_order() -> None:
    async with between() as cut, two_machines(cut.url) as (one, two):
        begun = await one.raw.initialize()
        await begun.ask("resources/subscribe", {"uri": "config://a"})
        stream, standing = await begun.use("count", {"to": 0}, token="t"), await begun.get()
        cut.swallows = True
        counting = asyncio.create_task(begun.use("count", {"to": 20}, id=2, token="u"))
        two.app.notify_resource_updated("config://a")
        await eventually(lambda: not one.store.link.is_up and not two.store.link.is_up)
        cut.swallows = False
        counted = await counting
        heard = [await counted.next() for _ in range(20)]
        assert [each["params"]["progress"] for each in heard] == list(range(1, 21))
        one.go.set()
        (answer,) = await counted.rest()
        assert text_of(answer) == "done"
        assert (await standing.next())["params"] == {"uri": "config://a"}
        one.app.notify_list_changed("tools")
        assert (await standing.next())["method"] == "notifications/tools/list_changed"
        for each in (stream, standing):
            each.close()


async def test_a_task_that_was_refused_is_not_run_later() -> None:
    async with between() as cut:
        ran: list[str] = []
        app = make_app(cut.url)

        @app.tool(task=Tasks(required=True, restart=True))
        async def job() -> str:
            "Work as a task."
            ran.append("job")
            return "done"

        async with serving(app) as raw:
            machine = Machine(app, raw)

            async def start() -> Any:
                headers, body = modern(
                    "tools/call", {"name": "job", "arguments": {}}, **TAKES_TASKS
                )
                return (await raw.post(body, headers)).json

            async def are_stored(kind: str, count: int) -> bool:
                with suppress(StoreUnavailable):
                    key = machine.store.link.key("tasks", kind)
                    return bool(await machine.store.link.send("ZCARD", key) == count)
                return False

            assert "taskId" in (await start())["result"]
            await eventually(lambda: are_stored("open", 0))  # it has ended
            cut.swallows = True
            assert "No task can be created" in (await start())["error"]["message"]
            cut.swallows = False
            await eventually(lambda: are_stored("expiries", 1))
            assert await are_stored("open", 0) and ran == ["job"]
