"""The example of a protected server, as a process of its own, with a real issuer beside it."""

import asyncio
import os
import sys
from pathlib import Path

from tests.auth.server.issuer import AUDIENCE, Issuer
from tests.auth.server.protected import as_bearer, challenge, structured
from tests.ports import free_port
from tests.transports.raw_http import Raw, Response
from tests.waiting import eventually

EXAMPLE = Path(__file__).parents[3] / "examples" / "protected_server.py"


async def test_the_example(issuer: Issuer) -> None:
    port = free_port()
    settings = {"ISSUER": issuer.url, "AUDIENCE": AUDIENCE, "PORT": str(port)}
    server = await asyncio.create_subprocess_exec(
        sys.executable, EXAMPLE, env={**os.environ, **settings}, stderr=asyncio.subprocess.PIPE
    )
    client = Raw(port)
    try:

        async def answer() -> Response | None:
            assert server.returncode is None
            try:
                return await client.call("whoami")
            except OSError:
                return None

        refused = await eventually(answer)
        assert refused.status == 401
        where = challenge(refused)[1]["resource_metadata"].partition(str(port))[2]
        document = (await client.request("GET", {}, path=where)).json
        assert document["authorization_servers"] == [issuer.url]
        assert document["scopes_supported"] == ["notes:write"]
        reader = as_bearer(client, issuer.token())
        said = structured(await reader.call("whoami"))
        assert said == {"result": f"alice of {issuer.url}"}
        assert (await reader.call("write", {"text": "x"})).status == 403
        writer = as_bearer(client, issuer.token(scope="notes:write"))
        assert structured(await writer.call("write", {"text": "x"})) == {"result": 1}
    finally:
        server.terminate()
        _, said_at_the_end = await server.communicate()
    assert server.returncode == 0
    assert b"refused 127.0.0.1" in said_at_the_end
    assert b"eyJ" not in said_at_the_end  # no token, and no part of one
