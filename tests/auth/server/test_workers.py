"""Several workers behind one port: each asks for the token, and all know the same sessions."""

import asyncio
import base64
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.auth.server.certificates import Authority
from tests.auth.server.issuer import Issuer, KeyPair
from tests.auth.server.protected import as_bearer, bearer, challenge, structured
from tests.auth.server.test_client_certificates import Secure, first_session
from tests.auth.server.test_dpop import bound, call, url_of
from tests.ports import free_port
from tests.transports.raw_http import LEGACY, Raw, Response, message, modern
from tests.waiting import eventually

ROOT = Path(__file__).parents[3]


@asynccontextmanager
async def workers(client: Raw, *arguments: str) -> AsyncIterator[None]:
    """Run a server with workers at the client's port."""
    script = ROOT / "tests" / "auth" / "server" / "worker_server.py"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    server = await asyncio.create_subprocess_exec(
        *(sys.executable, script, str(client.port), *arguments),
        env=environment,
        stderr=asyncio.subprocess.PIPE,
    )
    try:

        async def answers() -> bool:
            assert server.returncode is None
            try:
                await client.call("whoami")
            except (OSError, asyncio.IncompleteReadError):
                return False
            return True

        await eventually(answers)
        yield
    finally:
        server.terminate()
        _, said = await server.communicate()
    assert b"eyJ" not in said  # no token, and no part of one


@pytest.fixture
async def client(issuer: Issuer) -> AsyncIterator[Raw]:
    client = Raw(free_port())
    async with workers(client, issuer.url):
        assert (await client.call("whoami")).status == 401
        yield client


async def processes(client: Raw, calls: int = 24) -> set[int]:
    """Who answers, of many that ask at once over connections of their own."""
    answers = await asyncio.gather(*(client.call("process") for _ in range(calls)))
    return {structured(answer)["result"] for answer in answers}


async def several(client: Raw) -> set[int]:
    """Ask until more than one has answered: how connections are spread is the system's affair."""
    found: set[int] = set()
    async with asyncio.timeout(30):
        while len(found) < 2:
            found |= await processes(client)
    return found


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


async def nonce_of(client: Raw, token: str, key: KeyPair) -> str:
    asked = await call(client, token, key.proof(token, url_of(client)))
    return asked.headers["dpop-nonce"]


async def test_a_proof_is_good_once_at_all_workers_together(client: Raw, issuer: Issuer) -> None:
    key = KeyPair("ES256")
    token = bound(issuer, key)
    nonce = await nonce_of(client, token, key)
    await several(as_bearer(client, issuer.token()))
    for _ in range(4):
        proof = key.proof(token, url_of(client), nonce=nonce)
        answers = await asyncio.gather(*(call(client, token, proof) for _ in range(24)))
        assert sorted(answer.status for answer in answers) == [200] + [401] * 23
        refused = next(answer for answer in answers if answer.status == 401)
        assert "used before" in challenge(refused)[1]["error_description"]


async def test_a_proof_stays_used_when_workers_die(client: Raw, issuer: Issuer) -> None:
    key = KeyPair("ES256")
    token, owner = bound(issuer, key), as_bearer(client, issuer.token())
    proof = key.proof(token, url_of(client), nonce=await nonce_of(client, token, key))
    assert (await call(client, token, proof)).status == 200
    before = await several(owner)
    for process in before:
        os.kill(process, signal.SIGKILL)

    async def replaced() -> bool:
        try:
            return bool(await processes(owner) - before)
        except (OSError, asyncio.IncompleteReadError):
            return False

    await eventually(replaced)
    answers = await asyncio.gather(*(call(client, token, proof) for _ in range(24)))
    assert {answer.status for answer in answers} == {401}


async def test_a_request_that_is_passed_on_proves_once(client: Raw, issuer: Issuer) -> None:
    """The worker it came to checks the proof; its session's owner would find it used."""
    key = KeyPair("ES256")
    token, url = bound(issuer, key), url_of(client)
    nonce = await nonce_of(client, token, key)

    def shown() -> dict[str, str | None]:
        return {"Authorization": f"DPoP {token}", "DPoP": key.proof(token, url, nonce=nonce)}

    begin = {
        "protocolVersion": LEGACY,
        "capabilities": {},
        "clientInfo": {"name": "raw", "version": "1"},
    }
    opened = await client.post(message("initialize", begin), shown())
    session = {"Mcp-Session-Id": opened.headers["mcp-session-id"], "MCP-Protocol-Version": LEGACY}
    begun = message("notifications/initialized", id=None)
    assert (await client.post(begun, {**session, **shown()})).status == 202
    proofs = [shown() for _ in range(24)]
    for statuses in ({200}, {401}):
        answers = await asyncio.gather(
            *(client.post(message("ping"), {**session, **proof}) for proof in proofs)
        )
        assert {answer.status for answer in answers} == statuses
    claimed = {"mcpearl-arrival": told(None)}  # only another worker can say so
    replayed = await asyncio.gather(
        *(client.post(message("ping"), {**session, **proof, **claimed}) for proof in proofs)
    )
    assert {answer.status for answer in replayed} == {401}


def told(certificate: str | None) -> str:
    """What a worker would say that passes a request on."""
    said = {"scheme": "http", "host": "127.0.0.1", "client": None, "certificate": certificate}
    return base64.b64encode(json.dumps(said).encode()).decode()


async def test_a_certificate_is_passed_on(tmp_path: Path) -> None:
    """A session is its owner's at every worker; a certificate counts only when TLS has seen it."""
    authority = Authority(tmp_path)
    mine, other = authority.issue("worker"), authority.issue("other")
    port = free_port()
    files = (*authority.issue("localhost", "localhost", "127.0.0.1"), str(authority.ca))
    owner = Secure(port, authority.client_context(mine))
    async with workers(owner, *files):
        found = await several(owner)
        session = await first_session(port, authority, mine)
        where = {structured_legacy(await use(session, "process")) for _ in range(12)}
        assert len(where) == 1
        answers = await asyncio.gather(*(use(session, "whoami") for _ in range(24)))
        assert {structured_legacy(answer, "subject") for answer in answers} == {"CN=worker"}
        written = await asyncio.gather(*(use(session, "write") for _ in range(24)))
        assert {structured_legacy(answer) for answer in written} == {"written"}
        assert len(found) > 1  # so that some of these landed elsewhere

        claimed = {"mcpearl-arrival": told(Path(mine[0]).read_text())}
        for pair, status in ((None, 401), (other, 404)):
            thief = Secure(port, authority.client_context(pair))
            tries = (thief.post(message("ping"), {**session.headers, **claimed}) for _ in range(24))
            assert {answer.status for answer in await asyncio.gather(*tries)} == {status}
            thief.headers = claimed
            answer = await thief.call("whoami")
            if pair is None:
                assert answer.status == 401
            else:
                assert structured(answer)["subject"] == "CN=other"


async def use(session: Raw, tool: str) -> Response:
    return await session.post(message("tools/call", {"name": tool, "arguments": {}}))


def structured_legacy(answer: Response, name: str = "result") -> Any:
    assert answer.status == 200, (answer.status, answer.body)
    return answer.json["result"]["structuredContent"][name]
