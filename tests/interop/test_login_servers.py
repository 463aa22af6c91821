"""Our client logs in at authorization servers made with the official SDK and with FastMCP."""

import asyncio
import sys
import urllib.request

import pytest

from mcpearl import AuthorizationFailed, Client
from mcpearl.auth import MemoryStorage, OAuth
from tests.interop.peers import HERE, LIBRARIES, serving

SERVERS = {
    "official": [sys.executable, str(HERE / "official_login_server.py")],
    "fastmcp": [LIBRARIES, str(HERE / "fastmcp_login_server.py")],
}


async def visit(url: str) -> None:
    """Do what a browser does, with a user who has consented already."""
    with await asyncio.to_thread(urllib.request.urlopen, url, None, 30) as page:
        page.read()


@pytest.mark.parametrize("sdk", SERVERS)
@pytest.mark.timeout(120)
async def test_login(sdk: str) -> None:
    with serving(SERVERS[sdk]) as url:
        with pytest.raises(AuthorizationFailed, match=r"answered 401.*; pass `auth=`"):
            await Client(url).connect()
        storage = MemoryStorage()
        visited = 0

        async def open_browser(page: str) -> None:
            nonlocal visited
            visited += 1
            await visit(page)

        for _ in range(2):  # the second time with what was stored
            auth = OAuth(storage=storage, open_browser=open_browser)
            async with Client(url, auth=auth) as client:
                assert (await client.call_tool("add", {"a": 2, "b": 3})).text == "5"
        assert visited == 1
