"""Servers that are refused as a store at the start: one that is too old, and a replica."""

import asyncio

import pytest

from mcpearl.stores.errors import StoreUnavailable
from mcpearl.stores.redis_address import parse
from mcpearl.stores.redis_link import RedisLink
from tests.ports import free_port
from tests.redis_server import running


class Claiming:
    """A peer that answers as a Redis of some version does when it is asked about itself."""

    def __init__(self, version: str) -> None:
        self._said = f"# Server\r\nredis_version:{version}\r\nrole:master\r\naof_enabled:1\r\n"
        self.asked: list[str] = []

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readline():
            words = []
            for _ in range(int(head[1:])):
                size = int((await reader.readline())[1:])
                words.append((await reader.readexactly(size + 2))[:-2].decode())
            self.asked.append(words[0].upper())
            if words[0].upper() == "INFO":
                body = self._said.encode()
                writer.write(b"$%d\r\n%s\r\n" % (len(body), body))
            elif words[0].upper() == "PING":
                writer.write(b"+PONG\r\n")
            elif words[0].upper() == "CLIENT":
                writer.write(b"+OK\r\n")
            else:
                writer.write(b"-ERR unknown command\r\n")
            await writer.drain()
        writer.close()


@pytest.mark.parametrize("version", ["5.0.14", "6.0.20"])
async def test_a_server_that_is_too_old_is_refused(version: str) -> None:
    peer = Claiming(version)
    server = await asyncio.start_server(peer.answer, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(StoreUnavailable, match=f"is Redis {version}; 6.2 or newer"):
            await RedisLink(parse(f"redis://127.0.0.1:{port}")).start()
    assert peer.asked[-1] == "INFO"


async def test_a_replica_is_refused() -> None:
    with running("valkey", port=free_port()) as master:
        of = ("--replicaof", f"127.0.0.1 {master.port}")
        with (
            running("valkey", *of, port=free_port()) as replica,
            pytest.raises(StoreUnavailable, match="is a replica"),
        ):
            await RedisLink(parse(replica.url)).start()
