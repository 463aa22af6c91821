"""Addresses of Redis and Valkey, and servers that are reached by each kind of them.

Clusters, and what happens when a server fails over, are in `test_redis_many`.
"""

import asyncio
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import pytest

from mcpearl.stores.errors import StoreUnavailable
from mcpearl.stores.redis_address import is_redis, parse
from mcpearl.stores.redis_link import RedisLink
from tests.ports import free_port
from tests.redis_server import binary, end_with_parent, running, shared
from tests.stores.test_redis_many import works
from tests.waiting import eventually


def test_addresses_of_every_kind() -> None:
    plain = parse(
        "redis://ann:secret@db.example:6380/2?prefix=shop&durable=1&health_check_interval=5"
    )
    assert (plain.kind, plain.prefix, plain.durable, plain.password) == (
        *("server", "shop", True),
        "secret",
    )
    assert "secret" not in plain.shown and "prefix" not in plain.url
    sentinel = parse("rediss+sentinel://:p%40ss@one,two:26380/main/3")
    assert (sentinel.kind, sentinel.tls, sentinel.master, sentinel.database) == (
        *("sentinel", True),
        *("main", 3),
    )
    assert sentinel.hosts == (("one", 26379), ("two", 26380)) and sentinel.password == "p@ss"
    cluster = parse("valkey+cluster://one:7000,two:7001")
    assert (cluster.kind, cluster.hosts) == ("cluster", (("one", 7000), ("two", 7001)))
    assert parse("valkeys://h").url == "rediss://h"
    for address in ("redis://h", "rediss://h", "unix:///a", "valkey://h", "rediss+cluster://h"):
        assert is_redis(address)
    assert not is_redis("sqlite:///a") and not is_redis("mysql://h")


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("redis+sentinel://one,two", "does not name the master"),
        ("redis+sentinel://one/main/x", "not the number of a database"),
        ("redis+cluster://one/2", "no databases"),
        ("redis+cluster://one:x", "not a number"),
        ("redis+cluster://", "not a host"),
        ("redis://h?prefix=", "`prefix` is empty"),
        ("unix://", "has no path"),
        ("redis://h?protocol=3", "leave out `protocol`"),
        ("redis+cluster://h?decode_responses=true", "leave out `decode_responses`"),
    ],
)
def test_addresses_that_are_wrong(address: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse(address)


@pytest.mark.parametrize("kind", ["redis", "valkey"])
async def test_a_user_with_a_password(kind: str) -> None:
    with running(kind, "--requirepass", "all", port=free_port()) as server:
        admin = RedisLink(parse(f"unix://:all@{server.socket}"))
        await admin.start()
        await admin.send("ACL", "SETUSER", "ann", "on", ">p@ss w", "~*", "&*", "+@all")
        await admin.close()
        place = f"127.0.0.1:{server.port}"
        for address in (
            f"redis://ann:p%40ss%20w@{place}/3",
            f"{kind}://:all@{place}",
            f"unix://ann:p%40ss%20w@{server.socket}?db=2",
        ):
            await works(address)


@pytest.mark.parametrize(
    ("scheme", "option", "said"),
    [
        ("redis", "prefx=shop", "prefx"),
        ("redis", "health_check_interval=often", "health_check_interval"),
        ("redis+cluster", "prefx=shop", "prefx"),
        ("redis+cluster", "health_check_interval=often", "health_check_interval"),
    ],
)
async def test_options_that_do_not_exist_are_refused_at_the_start(
    scheme: str, option: str, said: str
) -> None:
    with running("redis", port=free_port()) as redis:
        link = RedisLink(parse(f"{scheme}://127.0.0.1:{redis.port}?{option}"))
        with pytest.raises(StoreUnavailable, match=said):
            await link.start()


# TLS


@asynccontextmanager
async def behind_tls(
    certificate: Path, socket: Path | None = None, port: int = 0
) -> AsyncIterator[int]:
    """Accept TLS, and pass it on to a server in clear; the port is returned."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()

    async def decrypt(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if socket is not None:
            far_reader, far = await asyncio.open_unix_connection(socket)
        else:
            far_reader, far = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(copy(reader, far), copy(far_reader, writer), return_exceptions=True)

    server = await asyncio.start_server(decrypt, "127.0.0.1", 0, ssl=context)
    yield server.sockets[0].getsockname()[1]
    server.close()


async def test_over_tls(certificate: Path) -> None:
    async with behind_tls(certificate, shared().socket) as port:
        link = RedisLink(parse(f"rediss://127.0.0.1:{port}?ssl_ca_certs={certificate}"))
        await link.start()
        assert await link.send("PING")
        await link.close()
        distrusting = RedisLink(parse(f"rediss://127.0.0.1:{port}"))
        await distrusting.start()
        with pytest.raises(StoreUnavailable, match=r"(?i)certificate"):
            await distrusting.send("PING")
        await distrusting.close()


async def test_sentinels_over_tls_that_have_a_password_of_their_own(
    certificate: Path, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        master = stack.enter_context(running("valkey", "--requirepass", "secret"))
        port = free_port()
        async with (
            behind_tls(certificate, master.socket) as master_port,
            behind_tls(certificate, port=port) as sentinel_port,
        ):
            settings = tmp_path / "sentinel.conf"
            settings.write_text(
                f"port {port}\nbind 127.0.0.1\nrequirepass watching\n"
                # It cannot reach the master, which takes TLS only, and must not mind.
                f"sentinel monitor main 127.0.0.1 {master_port} 1\n"
                "sentinel down-after-milliseconds main 3600000\n"
            )
            program = [str(binary("valkey")), str(settings), "--sentinel"]
            sentinel = subprocess.Popen(
                program, stdout=subprocess.DEVNULL, preexec_fn=end_with_parent
            )
            stack.callback(sentinel.wait)
            stack.callback(sentinel.kill)
            await eventually(lambda: _accepts(port))
            # The certificate is for 127.0.0.1.
            hosts = f"localhost:{sentinel_port}"
            trusts = f"ssl_ca_certs={certificate}&ssl_check_hostname=false"
            address = f"rediss+sentinel://:secret@{hosts}/main/1?{trusts}"
            await works(f"{address}&sentinel_password=watching")
            without = RedisLink(parse(address))
            with pytest.raises(StoreUnavailable, match=r"(?i)auth"):
                await without.start()
                await without.send("PING")
            await without.close()


async def _accepts(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True
