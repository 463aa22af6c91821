"""The whole way with nothing made up: a real OpenID provider, a real browser, tokens that expire."""

import asyncio
import fcntl
import os
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from mcpearl import AuthorizationFailed, Client, Context, Server
from mcpearl.auth import JWTVerifier, MemoryStorage, OAuth, ResourceServer
from tests.auth.client.world import bound_socket, serving
from tests.interop.peers import NODE
from tests.waiting import eventually

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
        issuer = (await asyncio.wait_for(process.stdout.readline(), 30)).decode().strip()
        assert issuer.startswith("http://127.0.0.1:"), "the OpenID provider did not start"
        yield Provider(process, issuer)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def protected(provider: Provider, url: str, dpop: bool) -> tuple[Server, list[dict[str, Any]]]:
    """Make a server for tokens of the provider, and a list of the claims of its callers."""
    verifier = JWTVerifier(issuer=provider.issuer, audience=url, leeway=0)
    binding: Any = {"dpop": "required", "dpop_nonces": True} if dpop else {}
    app = Server("protected", auth=ResourceServer(verifier, scopes=["mcp:read"], **binding))
    callers: list[dict[str, Any]] = []

    @app.tool
    async def whoami(ctx: Context) -> str:
        assert ctx.principal is not None
        callers.append(dict(ctx.principal.claims))
        return ctx.principal.subject

    @app.tool(scopes=["mcp:write"])
    async def write(ctx: Context) -> str:
        return " ".join(sorted(ctx.principal.scopes))

    return app, callers


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

    async def closed(self, times: int) -> None:
        """Wait for it: its page is told only after the client has its token."""
        await eventually(lambda: len(self.shown) >= times)


class World(NamedTuple):
    """A protected server, its provider, and the claims of its callers."""

    url: str
    provider: Provider
    callers: list[dict[str, Any]]


@asynccontextmanager
async def world(dpop: bool = False) -> AsyncIterator[World]:
    listening = bound_socket()
    url = f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
    async with openid_provider(url) as provider:
        app, callers = protected(provider, url, dpop)
        async with serving(lambda _: app.asgi(), listening=listening):
            yield World(url, provider, callers)


def oauth(browser: Browser, dpop: bool | None = None) -> OAuth:
    return OAuth(
        client_name="Ada's agent",
        storage=MemoryStorage(),
        open_browser=browser,
        timeout=60,
        dpop=dpop,
    )


@pytest.mark.parametrize("dpop", [False, True], ids=["bearer", "dpop"])
async def test_log_in_with_a_browser_and_stay_logged_in(tmp_path: Path, dpop: bool):
    browser = Browser(tmp_path / "page.png")
    async with world(dpop) as (url, provider, callers):
        async with Client(url, auth=oauth(browser, dpop)) as client:
            until = time.monotonic() + 2.2 * LIFETIME
            while time.monotonic() < until:
                assert (await client.call_tool("whoami")).content[0].text == "ada"
                await asyncio.sleep(0.2)
        await browser.closed(1)
        granted = await provider.granted()
    assert browser.shown[0].splitlines()[0] == "You are logged in"
    assert "Ada's agent can use 127.0.0.1:" in browser.shown[0]
    assert (tmp_path / "page.png").stat().st_size > 5000
    assert granted[0] == "authorization_code"
    assert granted.count("refresh_token") >= 2
    assert {claims["scope"] for claims in callers} == {"mcp:read"}
    assert len({claims["jti"] for claims in callers}) >= 3  # so many tokens
    assert all(("cnf" in claims) == dpop for claims in callers)


async def test_more_scopes_take_another_look_by_the_person(tmp_path: Path):
    browser = Browser(tmp_path / "page.png")
    async with world() as (url, _, _), Client(url, auth=oauth(browser)) as client:
        assert [tool.name async for tool in client.tools()] == ["whoami"]
        assert (await client.call_tool("write")).content[0].text == "mcp:read mcp:write"
        await browser.closed(2)
    assert [shown.splitlines()[0] for shown in browser.shown] == ["You are logged in"] * 2


async def test_a_person_who_declines_and_then_logs_in(tmp_path: Path):
    browser = Browser(tmp_path / "page.png", "deny")
    async with world() as (url, _, callers):
        with pytest.raises(AuthorizationFailed, match="access_denied"):
            await Client(url, auth=oauth(browser)).connect()
        await browser.closed(1)
    assert browser.shown[0].splitlines()[0] == "The login failed"
    assert not callers
