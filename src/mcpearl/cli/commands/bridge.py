"""Serve a server on another wire: a remote one on stdio, a program over HTTP."""

from typing import Any

import click

from mcpearl.cli.command import make_command
from mcpearl.cli.commands.gateway import serve
from mcpearl.cli.output import CommandOutput
from mcpearl.cli.target import complete_target, pairs, resolve
from mcpearl.cli.wires import Chosen, wire_options


@make_command()
@click.argument("target", metavar="TARGET", shell_complete=complete_target)
@wire_options
@click.option("--header", multiple=True, metavar="'NAME: VALUE'", help="A header of requests.")
@click.option("--auth", metavar="oauth|TOKEN", help="Log in with the browser, or a bearer token.")
@click.option(
    "--protocol", default="auto", metavar="VERSION", help="The one version to speak with it."
)
@click.option("--timeout", type=float, default=60.0, help="Seconds for a call. [60]")
@click.option(
    "--share", is_flag=True, help="The server keeps nothing of a client: all may share it."
)
def command(
    out: CommandOutput,
    target: str,
    chosen: Chosen,
    header: tuple[str, ...],
    auth: str | None,
    protocol: str,
    timeout: float,
    share: bool,
) -> None:
    """Serve a server on another wire, under its own names.

    A remote server for a host that knows only stdio: `mcpearl bridge https://… --auth oauth`. A program
    for clients that know only HTTP: `mcpearl bridge "npx server" --http`. No process is left behind,
    whatever is killed.
    """
    from msgspec.structs import replace

    from mcpearl.client.entries import ServerEntry, read_entry, surroundings
    from mcpearl.gateway.bridge import bridge
    from mcpearl.gateway.settings import UpstreamSettings

    found = resolve(target)
    if not isinstance(found, ServerEntry):
        found = read_entry("bridge", found, surroundings())
    given = dict(pairs(header, ":", "--header"))
    entry = replace(found, headers={**found.headers, **given})
    settings = UpstreamSettings(
        timeout=timeout,
        max_timeout=max(600.0, timeout),
        patience=30.0,
        protocol=protocol,
        stateless=share,
    )
    login: Any = auth
    if auth is not None and auth != "oauth":
        from mcpearl.auth import BearerToken

        login = BearerToken(auth)
    serve(out, bridge(entry, auth=login, upstreams=settings), chosen)
