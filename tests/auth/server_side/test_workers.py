"""Several workers behind one port: each asks for the token, and all know the same sessions."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.auth.server_side.issuer import Issuer, KeyPair
from tests.auth.server_side.protected import as_bearer, bearer, challenge, structured
from tests.auth.server_side.test_dpop import bound, call, url_of
from tests.ports import free_port
from tests.transports.raw_http import Raw, modern

ROOT = Path(__file__).parents[3]


@pytest.fixture
async def client(issuer: Issuer) -> AsyncIterator[Raw]:
    port = free_port()
    script = ROOT / "tests" / "auth" / "server_side" / "worker_server.py"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    server = await asyncio.create_subprocess_exec(
        *(sys.executable, script, str(port), issuer.url),
        env=environment,
        stderr=asyncio.subprocess.PIPE,
    )
    client = Raw(port)
    try:
        async with asyncio.timeout(30):
            while True:
                try:
                    assert (await client.call("whoami")).status == 401
                    break
                except (OSError, asyncio.IncompleteReadError):
                    await asyncio.sleep(0.05)
        yield client
    finally:
        server.terminate()
        _, said = await server.communicate()
    assert b"eyJ" not in said  # no token, and no part of one


async def test_a_session_is_its_owners_at_every_worker(client: Raw, issuer: Issuer) -> None:
    session = await client.initialize(**bearer(issuer.token()))  # type: ignore[arg-type]
    for number in range(12):
        session.headers |= bearer(issuer.token(jti=f"refreshed-{number}"))
        assert structured(await session.use("whoami"))["subject"] == "alice"
        session.headers |= bearer(issuer.token(sub="eve"))
        assert (await session.ask("ping")).status == 404
        session.headers |= bearer("not-a-token-at-all")
        assert (await session.ask("ping")).status == 401


async def test_a_nonce_is_good_at_every_worker(client: Raw, issuer: Issuer) -> None:
    key = KeyPair("ES256")
    token, url = bound(issuer, key), url_of(client)
    asked = await call(client, token, key.proof(token, url))
    assert challenge(asked)[1]["error"] == "use_dpop_nonce"
    nonce = asked.headers["dpop-nonce"]
    for _ in range(12):
        answer = await call(client, token, key.proof(token, url, nonce=nonce))
        assert answer.status == 200


async def test_the_state_of_a_call_is_read_at_every_worker(client: Raw, issuer: Issuer) -> None:
    asked = (await as_bearer(client, issuer.token()).call("ask")).json["result"]
    (key,) = asked["inputRequests"]
    answers = {key: {"action": "accept", "content": {"city": "Oslo"}}}
    params = {
        "name": "ask",
        "arguments": {},
        "requestState": asked["requestState"],
        "inputResponses": answers,
    }
    headers, body = modern("tools/call", params)
    for number in range(8):
        fresh = as_bearer(client, issuer.token(jti=f"{number}"))
        assert "Oslo" in (await fresh.post(body, headers)).body.decode()
        eve = as_bearer(client, issuer.token(sub="eve", jti=f"{number}"))
        assert "another principal" in (await eve.post(body, headers)).body.decode()
