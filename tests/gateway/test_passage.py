"""What passes through a gateway and what does not: bytes, lists, logins, rates and redirects."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from mcpearl import Client, Context, McpError, RateLimit, Server
from mcpearl.auth import BearerToken, StaticTokens
from mcpearl.gateway.gateway import Gateway
from mcpearl.gateway.settings import Access, UpstreamSettings
from tests.gateway.upstream_server import LEGACY, MODERN
from tests.server.wire import wire
from tests.transports.raw_http import meta as modern_meta

TOKEN = "token-of-the-gateway"
ODD = '{"n":1.10,"big":123456789012345678901234567890,"z":1E2,"a":"\\u00e9\\/","a b":[ 1,2 ]}'
"""JSON that no encoder would write like this."""
ECHO = f"""
import json, sys
from pathlib import Path
ODD = {ODD!r}
CAN = '{{"tools":{{}},"prompts":{{}},"resources":{{}}'
META = '"_meta":{{"example.com/odd":' + ODD + '}}'
DONE = {{
    "initialize": '"protocolVersion":"2025-11-25","capabilities":' + CAN
    + '}},"serverInfo":{{"name":"echo","version":"1"}}',
    "server/discover": '"supportedVersions":["2026-07-28"],"capabilities":' + CAN
    + ',"extensions":{{"example.com/odd":{{}}}}}}',
    "tools/list": '"tools":[{{"name":"echo","inputSchema":{{"type":"object"}}}}]',
    "prompts/list": '"prompts":[{{"name":"echo"}}]',
    "resources/list": '"resources":[{{"name":"echo","uri":"echo://"}}]',
    "resources/templates/list": '"resourceTemplates":[]',
    "tools/call": '"content":[],"structuredContent":' + ODD + "," + META,
    "prompts/get": '"messages":[],' + META,
    "resources/read": '"contents":[],' + META,
    "odd/odd": '"odd":' + ODD,
}}
for line in sys.stdin:
    message = json.loads(line)
    if message.get("id") is None:
        continue
    method = message["method"]
    if method in ("tools/call", "odd/odd"):
        Path(sys.argv[1]).write_text(line)
    more = '"resultType":"complete","ttlMs":0,"cacheScope":"private",' if sys.argv[2] == "modern" else ""
    answer = json.dumps(message["id"]), more + DONE[method]
    print('{{"jsonrpc":"2.0","id":%s,"result":{{%s}}}}' % answer, flush=True)
"""
REQUESTS = {
    "tools/call": f'"name":"up__echo","arguments":{ODD}',
    "prompts/get": '"name":"up__echo"',
    "resources/read": '"uri":"echo://"',
    "odd/odd": f'"given":{ODD}',
}


@pytest.mark.parametrize("upstream", ["legacy", "modern"])
@pytest.mark.parametrize("client", ["legacy", "modern"])
async def test_arguments_and_results_pass_byte_for_byte(
    client: str, upstream: str, tmp_path: Path
) -> None:
    """In every combination of eras: what the gateway need not read is not written anew."""
    program, seen = tmp_path / "echo.py", tmp_path / "seen"
    program.write_text(ECHO)
    command = [sys.executable, str(program), str(seen), upstream]
    protocol = (MODERN if upstream == "modern" else LEGACY)[0]
    gateway = Gateway(
        {"up": command}, eager=True, upstreams=UpstreamSettings(protocol=protocol, patience=60.0)
    )
    async with gateway.serving("tcp", port=0) as url:
        host, _, port = url.removeprefix("tcp://").rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))

        async def ask(id: int, method: str, params: str) -> str:
            text = f'{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{{params}}}}}\n'
            writer.write(text.encode())
            async with asyncio.timeout(60):
                return (await reader.readline()).decode()

        if client == "legacy":
            info = '"clientInfo":{"name":"raw","version":"1"}'
            opened = await ask(
                0, "initialize", f'"protocolVersion":"{LEGACY[0]}","capabilities":{{}},{info}'
            )
            assert '"result"' in opened
            writer.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
        meta = "" if client == "legacy" else f',"_meta":{json.dumps(modern_meta())}'
        for id, (method, params) in enumerate(REQUESTS.items(), 1):
            answer = await ask(id, method, params + meta)
            assert f":{ODD}" in answer, (method, answer)
            if ODD in params:
                assert f":{ODD}" in seen.read_text(), method
        writer.close()


def counting(versions: tuple[str, ...], seen: list[str]) -> Server:
    app = Server("counting", versions=versions)
    app.add_tool(lambda: "ok", name="ok")

    @app.middleware
    async def note(ctx: Context, call_next: Callable[[], Awaitable[Any]]) -> Any:
        seen.append(ctx.method)
        return await call_next()

    return app


@pytest.mark.parametrize("upstream", [LEGACY, MODERN], ids=["legacy", "modern"])
@pytest.mark.parametrize("protocol", [LEGACY[0], MODERN[0]])
async def test_calls_make_no_list_requests(upstream: tuple[str, ...], protocol: str) -> None:
    """The gateway lists what an upstream has when it connects, not when it is called."""
    seen: list[str] = []
    gateway = Gateway({"up": counting(upstream, seen)})
    async with (
        gateway.serving("http", port=0) as url,
        Client(url, protocol=protocol, validate_output=False) as client,
    ):
        await client.call_tool("up__ok")
        listed = seen.count("tools/list")
        for _ in range(5):
            await client.call_tool("up__ok")
    assert seen.count("tools/call") == 6
    assert seen.count("tools/list") == listed <= 1


async def test_the_gateway_logs_in_to_each_upstream_and_a_refusal_costs_only_that_one() -> None:
    app = Server("guarded")

    @app.tool
    def caller(ctx: Context) -> str:
        assert ctx.principal is not None
        return ctx.principal.subject

    async with app.serving("http", port=0, auth=StaticTokens({TOKEN: "gateway"})) as inner:
        gateway = Gateway(
            {"in": inner, "out": inner, "wrong": inner},
            access={
                "in": Access(auth=BearerToken(TOKEN)),
                "wrong": Access(auth=BearerToken("another-token-1234")),
            },
            upstreams=UpstreamSettings(patience=1.0),
        )
        async with Client(gateway) as client:
            assert (await client.call_tool("in__caller")).data == "gateway"
            for refused in ("out", "wrong"):
                with pytest.raises(McpError, match=f"`{refused}`"):
                    await client.call_tool(f"{refused}__caller")
                assert gateway.servers[refused].state != "ready"
            assert [tool.name for tool in await client.tools()] == ["in__caller"]
            assert (await client.call_tool("in__caller")).data == "gateway"


async def test_the_rate_of_a_gateway_holds_for_calls_of_its_upstreams() -> None:
    seen: list[str] = []
    gateway = Gateway({"up": counting(MODERN, seen)}, rate=RateLimit(3, per=3600))
    async with wire(gateway) as caller:
        answers = [await caller.call("up__ok") for _ in range(6)]
    assert ["result" in answer for answer in answers] == [True] * 3 + [False] * 3
    assert "Over the limit of 3 calls" in answers[-1]["error"]["message"]
    assert seen.count("tools/call") == 3


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_a_redirect_to_another_origin_is_not_followed(status: int) -> None:
    reached: list[bytes] = []
    carried: list[bool] = []

    async def note(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reached.append(await reader.readline())
        writer.close()

    async def redirect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        carried.append(TOKEN.encode() in head)
        place = f"http://127.0.0.1:{other.sockets[0].getsockname()[1]}/mcp"
        said = f"HTTP/1.1 {status} Moved\r\nLocation: {place}\r\nContent-Length: 0\r\n"
        writer.write(f"{said}Connection: close\r\n\r\n".encode())
        await writer.drain()
        writer.close()

    other = await asyncio.start_server(note, "127.0.0.1", 0)
    moved = await asyncio.start_server(redirect, "127.0.0.1", 0)
    async with other, moved:
        url = f"http://127.0.0.1:{moved.sockets[0].getsockname()[1]}/mcp"
        gateway = Gateway(
            {"moved": url},
            access={"moved": Access(auth=BearerToken(TOKEN))},
            upstreams=UpstreamSettings(patience=1.0),
        )
        async with Client(gateway) as client:
            with pytest.raises(McpError, match=f"`moved` is not there: HTTP status {status}"):
                await client.call_tool("moved__x")
    assert reached == [] and carried and all(carried)
