"""Under gunicorn, hypercorn, granian and uvicorn with two workers each, as real processes."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.ports import free_port
from tests.transports.raw_http import Raw, Response, message, modern
from tests.waiting import eventually

APP = "tests.server.serving.workers_app:asgi_app"
KEY = "5a" * 32
COMMANDS = {
    "uvicorn": "uvicorn {app} --workers 2 --port {port} --log-level error",
    "gunicorn": "gunicorn {app} -w 2 -k uvicorn_worker.UvicornWorker -b 127.0.0.1:{port}",
    "hypercorn": "hypercorn {app} -w 2 -b 127.0.0.1:{port} --log-level ERROR",
    "granian": "granian {app} --interface asgi --workers 2 --port {port} --no-log",
}


@asynccontextmanager
async def served(by: str, app: str = APP, **env: str) -> AsyncIterator[Raw]:
    port = free_port()
    words = COMMANDS[by].format(app=app, port=port).split()
    process = subprocess.Popen(
        [sys.executable, "-m", *words],
        env={**os.environ, **env},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    raw = Raw(port)
    try:

        async def both_answer() -> bool:
            try:
                return len({await who(raw) for _ in range(8)}) == 2
            except OSError:
                await asyncio.sleep(0.05)
                return False

        await eventually(both_answer, otherwise=process.poll)
        yield raw
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            await asyncio.to_thread(process.wait, 20)
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()


def value(answer: Response) -> Any:
    return answer.json["result"]["structuredContent"]["result"]


async def who(raw: Raw) -> int:
    return int(value(await raw.call("who")))


async def continued(raw: Raw) -> list[Response]:
    """Ask once, and continue until both processes have answered, or one has refused."""
    first = (await raw.call("ask")).json["result"]
    (key,) = first["inputRequests"]
    params = {
        "name": "ask",
        "arguments": {},
        "requestState": first["requestState"],
        "inputResponses": {key: {"action": "accept", "content": {}}},
    }
    answers: list[Response] = []

    async def enough() -> bool:
        headers, body = modern("tools/call", params)
        answers.append(await raw.post(body, headers))
        if "error" in answers[-1].json:
            return True
        return len({value(answer) for answer in answers}) == 2

    await eventually(enough)
    return answers


@pytest.mark.parametrize("by", COMMANDS)
async def test_with_keys_in_common_any_process_continues_a_call(by: str):
    """And a session that arrives at the wrong process is refused with what to do."""
    async with served(by, MCPEARL_STATE_KEYS=KEY) as raw:
        assert all("error" not in answer.json for answer in await continued(raw))
        session = await begun(raw)
        refused = await eventually(lambda: refusal(session))
        assert refused.status == 404
        said = refused.json["error"]["message"]
        assert "This session began at another process" in said
        assert "the same Mcp-Session-Id to the same process" in said
        assert "Server(store='redis://…')" in said


async def begun(raw: Raw) -> Raw:
    """Begin a session, whichever process the second message goes to."""
    params = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "raw", "version": "1"},
    }
    opened = await raw.post(message("initialize", params, 0))
    session = Raw(raw.port)
    session.headers = {
        "Mcp-Session-Id": opened.headers["mcp-session-id"],
        "MCP-Protocol-Version": "2025-11-25",
    }
    return session


async def refusal(session: Raw) -> Response | None:
    answer = await session.post(message("ping"))
    return None if answer.status == 200 else answer


async def test_without_keys_in_common_the_refusal_says_what_to_set():
    async with served("uvicorn") as raw:
        *_, last = await eventually(lambda: refused_continuation(raw))
        said = last.json["error"]["message"]
        assert "was not made by this process" in said
        assert "`Server(state_keys=…)` or MCPEARL_STATE_KEYS" in said


async def refused_continuation(raw: Raw) -> list[Response] | None:
    answers = await continued(raw)
    return answers if "error" in answers[-1].json else None
