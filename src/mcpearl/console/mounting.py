"""The console of a server, on the HTTP port of the server itself."""

from mcpearl.console.console import Console, Place
from mcpearl.console.guard import is_local
from mcpearl.console.site import ConsoleSite
from mcpearl.console.workers import FellowWorkers
from mcpearl.runtime.arguments import Unusable
from mcpearl.server.server import Server
from mcpearl.server.serving.wires import ConsoleOptions, Http
from mcpearl.transports.http_server.siblings import Siblings


def site_of(server: Server, http: Http, siblings: Siblings | None = None) -> ConsoleSite:
    """Return the console of a server as one of its wires serves it.

    The console of a server with workers is made before they are forked, so that all have the same key.

    Args:
        server: The server.
        http: The wire. On an address that other machines reach, it must have `auth`.
        siblings: The workers, where there are several.
    """
    options = http.console if isinstance(http.console, ConsoleOptions) else ConsoleOptions()
    is_protected = http.auth is not None or server.auth is not None
    if not is_protected and not is_local(http.host):
        raise Unusable(
            f"the console shows what all clients do, and {http.host} can be reached by others: "
            "serve on 127.0.0.1, or protect the server with `auth=`"
        )
    if options.path.rstrip("/") == http.path.rstrip("/"):
        raise Unusable(f"{options.path!r} is the path of the MCP endpoint, and of the console too")
    console = server.web.consoles.get(options)
    if console is None:
        place = Place(server, "", http.path)
        console = server.web.consoles[options] = Console(
            {server.name: place},
            server=server,
            payloads=options.payloads,
            operable=options.operable,
            key=options.key,
        )
    if siblings is not None:
        paths = [path.with_suffix(".console") for path in siblings.paths]
        console.use_workers(FellowWorkers(siblings.number, paths), siblings.restarts)
    return ConsoleSite(console, options.path, only_local=not is_protected)
