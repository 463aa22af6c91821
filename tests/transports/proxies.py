"""A proxy as people have them in front of them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


@asynccontextmanager
async def proxy(
    refuse: bool = False, leads_to: int | None = None
) -> AsyncIterator[tuple[int, list[str]]]:
    """Run a proxy: its port, and the heads of what it was asked. It may lead all to one port."""
    heads: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        heads.append(head.decode())
        method, target, *_ = heads[-1].split(" ")
        if refuse:
            writer.write(b"HTTP/1.1 407 Who are you?\r\n\r\n")
            writer.close()
            return
        address = target if method == "CONNECT" else target.split("/")[2]
        host, _, port = address.rpartition(":")
        if leads_to is not None:
            host, port = "127.0.0.1", str(leads_to)
        far_reader, far_writer = await asyncio.open_connection(host, int(port))
        if method == "CONNECT":
            writer.write(b"HTTP/1.1 200 Here you are\r\n\r\n")
        else:
            far_writer.write(head)
        await asyncio.gather(_pour(reader, far_writer), _pour(far_reader, writer))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], heads
    finally:
        server.close()


async def _pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
    except ConnectionError:
        pass
    finally:
        writer.close()
