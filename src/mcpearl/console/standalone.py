"""A console on a port of its own, for servers that run elsewhere: files, commands, addresses."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from mcpearl.client.targets import Reachable
from mcpearl.console.console import Console, Place
from mcpearl.console.guard import is_local
from mcpearl.console.site import ConsoleSite
from mcpearl.net.http_server.front import HttpFront
from mcpearl.net.http_server.request import BodyTooLarge, ClientLeft, Request
from mcpearl.net.ports import TcpPort
from mcpearl.protocol import codec
from mcpearl.protocol.errors import McpError
from mcpearl.runtime.arguments import Unusable
from mcpearl.runtime.budget import MIB, Budget, NoRoom
from mcpearl.transports.http_server.gate import Refused, busy
from mcpearl.transports.http_server.origin import ServedLocation, hosts_of
from mcpearl.types.jsonrpc import INTERNAL_ERROR

_PATH = "/console"
_MAX_CONNECTIONS = 256
_GRACE = 1.0  # seconds for requests to finish


@asynccontextmanager
async def serving_console(
    targets: Mapping[str, Reachable | Place],
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    key: str | None = None,
) -> AsyncIterator[str]:
    """Serve a console for any servers while a context lasts; yield the address to open.

    >>> async with serving_console({"weather": "server.py"}) as url:
    ...     webbrowser.open(url)
    ...     await asyncio.Event().wait()

    Args:
        targets: What to connect to, by the name that the page shows: anything that `Client` takes, or a
            `Place`, which also says how it is written in calls that are copied.
        host: The address to listen on, which must be one of this machine alone.
        port: The port to listen on; 0 for any that is free.
        key: What the page has to show to be answered; by default one is made up.
    """
    if not is_local(host):
        raise Unusable(
            f"a console can start programs on this machine, and {host} can be reached by others: "
            "serve it on 127.0.0.1"
        )
    places = {name: _place(target) for name, target in targets.items()}
    site = ConsoleSite(Console(places, key=key), _PATH, only_local=True)
    front = HttpFront(_Front(site, host), _error, max_connections=_MAX_CONNECTIONS)
    tcp = TcpPort(host, port)
    await tcp.open(front.connect)
    try:
        yield f"http://{tcp.place}{site.address}"
    finally:
        tcp.close()
        site.end_streams()
        await front.drain(_GRACE)


def _place(target: Reachable | Place) -> Place:
    """Say how a target is written in Python and at which address it is, where that can be said."""
    if isinstance(target, Place):
        return target
    written: Any = target
    url = getattr(target, "url", None)
    if isinstance(target, Mapping):
        url = target.get("url")
    text = written if isinstance(written, str) else url
    if isinstance(text, str):
        return Place(target, text, text if text.startswith(("http://", "https://")) else None)
    return Place(target, "")


class _Front:
    """Answers the requests of the port: the console's, and nothing else."""

    def __init__(self, site: ConsoleSite, host: str) -> None:
        self._site = site
        self._location = ServedLocation(_PATH, hosts_of(host))
        self._budget = Budget(64 * MIB)

    async def serve(self, request: Request) -> None:
        """Answer one request."""
        account = self._budget.account()
        holding = account.open("bodies")

        async def read(limit: int) -> bytes:
            try:
                return await request.read(limit, holding)
            except BodyTooLarge:
                raise Refused(413, f"A request to the console may have {limit} bytes") from None
            except NoRoom as error:
                raise busy(str(error), 1) from None

        try:
            self._location.check_host(request.headers)
            if not f"{request.path}/".startswith(f"{_PATH}/"):
                raise Refused(404, f"There is nothing here; the console is at {_PATH}")
            await self._site.serve(request, read)
        except ClientLeft:
            pass  # there is no reader for an answer
        except Refused as refused:
            body = codec.encode_error(None, refused.error)
            await request.respond(refused.status, body, refused.headers)
        finally:
            holding.release()


def _error(reason: str) -> bytes:
    return codec.encode_error(None, McpError(INTERNAL_ERROR, reason))
