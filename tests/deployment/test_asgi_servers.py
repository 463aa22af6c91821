"""`app.asgi()` under other servers, two workers each, with a store: any worker serves any session."""

import pytest

from tests.deployment.machines import text_of
from tests.redis_server import fresh_address
from tests.server.serving.test_other_servers import COMMANDS, served
from tests.transports.raw_http import Raw, Session
from tests.waiting import eventually

APP = "tests.deployment.asgi_app:asgi_app"


async def both_serve(session: Session) -> None:
    """Call in a session until both workers have answered; neither may refuse."""
    seen: set[str] = set()

    async def enough() -> bool:
        answer = await session.use("who", id=len(seen) + 100)
        assert answer.status == 200, answer.body
        seen.add(text_of(answer.json))
        return len(seen) == 2

    await eventually(enough)


async def asked_of_another(raw: Raw) -> None:
    """Answer a question of one worker by a request that lands at either; each answer must arrive."""
    session = await raw.initialize()
    for number in range(6):
        asking = await session.use("ask", id=number)
        question = await asking.next()
        reply = {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}}
        assert (await session.post(reply)).status == 202
        assert text_of((await asking.rest())[-1]) == "decline"


@pytest.mark.parametrize("by", COMMANDS)
async def test_any_worker_serves_any_session(by: str) -> None:
    async with served(by, app=APP, MCPEARL_STORE=fresh_address()) as raw:
        session = await raw.initialize()
        await both_serve(session)
        await asked_of_another(raw)
        assert (await session.ask("resources/subscribe", {"uri": "state://a"})).status == 200
        stream = await session.get()
        for _ in range(4):  # from whichever worker the change comes
            assert text_of((await session.use("touch", {"name": "a"})).json) == "touched"
            heard = await stream.next()
            assert heard["params"] == {"uri": "state://a"}
        stream.close()
        assert (await session.delete()).status == 204

        async def is_gone() -> bool:
            return {(await session.ask("ping")).status for _ in range(8)} == {404}

        await eventually(is_gone)
