"""The whole way with nothing made up: a real OpenID provider, a real browser, tokens that expire."""

import asyncio
import base64
import fcntl
import hashlib
import json
import os
import subprocess
import time
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, KeySet
from starlette.responses import JSONResponse, Response

from mcpearl import AuthorizationFailed, Client
from mcpearl.auth import MemoryStorage, OAuth
from tests.auth.client_side.world import _server, serving
from tests.interop.peers import NODE

PROGRAMS = Path(__file__).parents[2] / "interop" / "node"
BROWSER = str(PROGRAMS / "browser.mjs")
UNPACKED = PROGRAMS / "node_modules" / ".chromium"
LIFETIME = 4  # seconds an access token lives


@pytest.fixture(scope="module", autouse=True)
def unpacked_browser() -> None:
    """Unpack the browser, once for all test processes."""
    UNPACKED.mkdir(parents=True, exist_ok=True)
    with (UNPACKED / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        subprocess.run([NODE, BROWSER], check=True, timeout=60, env=environment())


def environment() -> dict[str, str]:
    return {**os.environ, "TMPDIR": str(UNPACKED)}


class Provider:
    """The OpenID provider, in a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process, issuer: str) -> None:
        self.process = process
        self.issuer = issuer
        with urllib.request.urlopen(f"{issuer}/jwks", timeout=10) as answer:
            self.keys = KeySet.import_key_set(json.load(answer))

    async def granted(self) -> list[str]:
        """End it, and hear which grants it gave."""
        self.process.terminate()
        assert self.process.stdout is not None
        said = (await self.process.stdout.read()).decode()
        return [line.split(" ")[1] for line in said.splitlines() if line.startswith("granted ")]


@asynccontextmanager
async def openid_provider(resource: str) -> AsyncIterator[Provider]:
    process = await asyncio.create_subprocess_exec(
        NODE,
        str(PROGRAMS / "openid_provider.mjs"),
        resource,
        str(LIFETIME),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        issuer = (await asyncio.wait_for(process.stdout.readline(), 20)).decode().strip()
        assert issuer.startswith("http://127.0.0.1:"), "the OpenID provider did not start"
        yield await asyncio.to_thread(Provider, process, issuer)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


class Protected:
    """An MCP server that reads tokens with the provider's keys."""

    def __init__(self) -> None:
        self.origin = ""
        self.provider: Provider | None = None
        self.let_in: list[dict[str, Any]] = []
        self.refused = 0

    @property
    def url(self) -> str:
        return f"{self.origin}/mcp"

    def app(self, origin: str) -> Any:
        self.origin = origin
        inner = _server().asgi()

        async def outer(scope: dict[str, Any], receive: Any, send: Any) -> None:
            assert self.provider is not None or scope["type"] != "http"
            if scope["type"] != "http":
                await inner(scope, receive, send)
            elif scope["path"].startswith("/.well-known/oauth-protected-resource"):
                document = {
                    "resource": self.url,
                    "authorization_servers": [self.provider.issuer],
                    "scopes_supported": ["mcp:read"],
                }
                await JSONResponse(document)(scope, receive, send)
            elif self._is_good(scope):
                await inner(scope, receive, send)
            else:
                self.refused += 1
                await Response("who?", 401, {"WWW-Authenticate": "Bearer"})(scope, receive, send)

        return outer

    def _is_good(self, scope: dict[str, Any]) -> bool:
        assert self.provider is not None
        headers = {k.decode(): v.decode() for k, v in scope["headers"]}
        scheme, _, token = headers.get("authorization", "").partition(" ")
        try:
            read = jwt.decode(token, self.provider.keys, algorithms=["RS256"])
        except (JoseError, ValueError):
            return False
        claims = read.claims
        if claims["aud"] != self.url or claims["iss"] != self.provider.issuer:
            return False
        if time.time() >= claims["exp"] or (scheme == "DPoP") != ("cnf" in claims):
            return False
        if scheme == "DPoP" and not is_proof(headers["dpop"], token, claims["cnf"]["jkt"]):
            return False
        self.let_in.append(claims)
        return True


def is_proof(proof: str, token: str, thumbprint: str) -> bool:
    head = json.loads(base64.urlsafe_b64decode(proof.split(".")[0] + "=="))
    key = ECKey.import_key(head["jwk"])
    claims = jwt.decode(proof, key, algorithms=["ES256"]).claims
    digest = base64.urlsafe_b64encode(hashlib.sha256(token.encode()).digest()).rstrip(b"=")
    return key.thumbprint() == thumbprint and claims["ath"] == digest.decode()


class Browser:
    """Chromium without a window, and what it ended on."""

    def __init__(self, screenshot: Path, *more: str) -> None:
        self._screenshot = screenshot
        self._more = more
        self.shown: list[str] = []

    async def __call__(self, url: str) -> None:
        process = await asyncio.create_subprocess_exec(
            *(NODE, BROWSER, url, str(self._screenshot), *self._more),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environment(),
        )
        out, problem = await process.communicate()
        assert process.returncode == 0, f"the browser failed: {problem.decode()[-2000:]}"
        self.shown.append(out.decode())


@asynccontextmanager
async def world() -> AsyncIterator[tuple[Protected, Provider]]:
    server = Protected()
    async with serving(server.app), openid_provider(server.url) as provider:
        server.provider = provider
        yield server, provider


def oauth(browser: Browser, **options: Any) -> OAuth:
    return OAuth(
        client_name="Ada's agent",
        storage=MemoryStorage(),
        open_browser=browser,
        timeout=60,
        **options,
    )


@pytest.mark.parametrize("dpop", [False, True], ids=["bearer", "dpop"])
async def test_log_in_with_a_browser_and_stay_logged_in(tmp_path: Path, dpop: bool):
    browser = Browser(tmp_path / "page.png")
    async with world() as (server, provider):
        async with Client(server.url, auth=oauth(browser, dpop=dpop)) as client:
            until = time.monotonic() + 2.2 * LIFETIME
            while time.monotonic() < until:
                result = await client.call_tool("add", {"a": 2, "b": 3})
                assert result.content[0].text == "5"
                await asyncio.sleep(0.2)
        for _ in range(50):  # the page is told only after the client has its token
            if browser.shown:
                break
            await asyncio.sleep(0.1)
        granted = await provider.granted()
    (shown,) = browser.shown
    assert shown.splitlines()[0] == "You are logged in"
    assert "Ada's agent can use 127.0.0.1:" in shown
    assert (tmp_path / "page.png").stat().st_size > 5000
    assert granted[0] == "authorization_code"
    assert granted.count("refresh_token") >= 2
    # The first request had nothing to show; a token may end in the second it was to be renewed in.
    assert server.refused <= 1 + granted.count("refresh_token")
    assert {claims["scope"] for claims in server.let_in} == {"mcp:read"}
    assert len({claims["jti"] for claims in server.let_in}) >= 3


async def test_somebody_who_changes_their_mind(tmp_path: Path):
    browser = Browser(tmp_path / "page.png", "deny")
    async with world() as (server, _):
        with pytest.raises(AuthorizationFailed, match="access_denied"):
            await Client(server.url, auth=oauth(browser)).connect()
        for _ in range(50):
            if browser.shown:
                break
            await asyncio.sleep(0.1)
    assert browser.shown[0].splitlines()[0] == "The login failed"
    assert not server.let_in
