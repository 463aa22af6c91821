"""Methods of extensions through a gateway, undecoded, in all combinations of eras."""

from typing import Any, ClassVar

import pytest
from msgspec import Struct

from mcpearl import Client, Context, McpError, Server
from mcpearl.client.extensions import ClientExtension
from mcpearl.gateway.gateway import Gateway
from mcpearl.server.extensions import ServerExtension, method
from mcpearl.types import RequestParams, Result
from tests.gateway.upstream_server import LEGACY, MODERN

OF = {"legacy": LEGACY, "modern": MODERN}


class Entry(Struct):
    number: int
    note: str


class ReadParams(RequestParams, kw_only=True):
    since: int
    entry: Entry | None = None


class Audit(ServerExtension):
    identifier = "com.example/audit"

    @method("audit/read", ReadParams)
    async def read(self, params: ReadParams, ctx: Context) -> Result:
        """Return what was asked, and who asked."""
        if params.since < 0:
            raise McpError(-32602, "`since` is negative")
        entry = None if params.entry is None else params.entry.note
        return Result(extra={"since": params.since, "note": entry, "trace": ctx.meta.get("trace")})


class Reading(ClientExtension):
    identifier: ClassVar[str] = "com.example/audit"


@pytest.mark.parametrize("upstream", OF)
@pytest.mark.parametrize("era", OF)
async def test_methods_of_extensions_pass(era: str, upstream: str) -> None:
    plain = Server("plain", versions=OF[upstream])
    audited = Server("audited", versions=OF[upstream], extensions=[Audit()])
    gateway = Gateway({"plain": plain, "audited": audited}, eager=True)
    async with (
        gateway.serving("http", port=0) as url,
        Client(url, protocol=OF[era][0], extensions=[Reading()]) as client,
    ):
        if upstream == "modern":
            assert "com.example/audit" in (gateway.core.offer.capabilities.extensions or {})
        params: dict[str, Any] = {"since": 3, "entry": {"number": 1, "note": "n"}}
        for _ in range(2):
            answer = await client.request("audit/read", {**params, "_meta": {"trace": "t"}})
            assert answer.extra == {"since": 3, "note": "n", "trace": "t"}
        with pytest.raises(McpError, match="negative"):
            await client.request("audit/read", {"since": -1})
        with pytest.raises(McpError, match="audit/read"):
            await client.request("audit/read", {"since": "x"})
        with pytest.raises(McpError, match="Method not found: audit/erase"):
            await client.request("audit/erase", {})


@pytest.mark.parametrize("upstream", OF)
async def test_a_client_without_the_extension_is_refused_by_the_upstream(upstream: str) -> None:
    audited = Server("audited", versions=OF[upstream], extensions=[Audit()])
    gateway = Gateway({"audited": audited}, eager=True)
    async with Client(gateway, protocol=OF[upstream][0]) as client:
        with pytest.raises(McpError, match=r"com\.example/audit"):
            await client.request("audit/read", {"since": 3})
