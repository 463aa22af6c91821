"""Large responses made smaller, for those who can read them so."""

import gzip
import sys

import pytest
import zstandard

from mcpearl import Context, Server
from mcpearl.net.http_server import compression as http_encoding
from mcpearl.net.http_server.compression import MIN_SIZE, chosen
from tests.transports.raw_http import modern, serving


@pytest.mark.parametrize(
    ("accepted", "name"),
    [
        (b"", None),
        (b"identity", None),
        (b"gzip", b"gzip"),
        (b"GZIP", b"gzip"),
        (b"gzip, deflate, br, zstd", b"zstd"),
        (b"gzip;q=1.0, zstd;q=0.5", b"gzip"),
        (b"gzip;q=0", None),
        (b"gzip;q=0, *", b"zstd"),
        (b"*", b"zstd"),
        (b"*;q=0", None),
        (b"br", None),
        (b"gzip;q=nonsense", None),
        (b",;,;q=,", None),
    ],
)
def test_what_a_client_accepts_decides(accepted: bytes, name: bytes | None) -> None:
    assert chosen(accepted) == name


def test_without_zstandard_there_is_gzip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    monkeypatch.setattr(http_encoding, "_known", None)
    assert chosen(b"gzip, zstd") == b"gzip"
    assert chosen(b"zstd") is None


def make_app() -> Server:
    app = Server("large", grace=1.0)

    @app.tool
    async def text(size: int) -> str:
        return "tell me more. " * (size // 14)

    return app


@pytest.mark.parametrize("size", [2 * MIN_SIZE, 1_000_000], ids=["on-loop", "off-loop"])
@pytest.mark.parametrize("encoding", ["gzip", "zstd", None])
async def test_a_large_answer_is_compressed_as_asked(size: int, encoding: str | None) -> None:
    async with serving(make_app()) as client:
        headers, body = modern("tools/call", {"name": "text", "arguments": {"size": size}})
        answer = await client.post(body, {**headers, "Accept-Encoding": encoding})
    unpack = {
        "gzip": gzip.decompress,
        "zstd": lambda data: zstandard.decompress(data, max_output_size=10_000_000),
    }.get(encoding or "", bytes)
    assert answer.headers.get("content-encoding") == encoding
    assert answer.headers["vary"] == "accept-encoding"
    assert (len(answer.body) < size // 10) is (encoding is not None)
    assert b"tell me more. tell me more." in unpack(answer.body)


async def test_a_small_answer_is_left_as_it_is() -> None:
    async with serving(make_app()) as client:
        headers, body = modern("tools/call", {"name": "text", "arguments": {"size": 100}})
        answer = await client.post(body, {**headers, "Accept-Encoding": "gzip"})
        assert "content-encoding" not in answer.headers
        assert answer.json["result"]["content"][0]["text"].startswith("tell me")


async def test_a_stream_is_never_compressed() -> None:
    app = make_app()

    @app.tool
    async def slowly(ctx: Context) -> str:
        await ctx.progress(1)
        return "tell me more. " * MIN_SIZE

    async with serving(app) as client:
        headers, body = modern("tools/call", {"name": "slowly"}, progressToken=1)
        answer = await client.post(body, {**headers, "Accept-Encoding": "gzip, zstd"})
        assert answer.headers["content-type"] == "text/event-stream"
        assert "content-encoding" not in answer.headers
        assert (await answer.rest())[-1]["result"]["content"][0]["text"].startswith("tell me")
