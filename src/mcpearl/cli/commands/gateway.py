"""Serve many servers as one: those of a configuration file, which is watched."""

import sys
from typing import TYPE_CHECKING

import click

from mcpearl.cli.command import make_command
from mcpearl.cli.output import CommandOutput
from mcpearl.cli.wires import Chosen, choose, wire_options

if TYPE_CHECKING:
    from mcpearl.gateway.gateway import Gateway


@make_command()
@click.argument("config", metavar="FILE", type=click.Path())
@wire_options
@click.option("--name", default="gateway", help="The name that clients see. [gateway]")
@click.option("--no-watch", is_flag=True, help="Do not follow changes of the file.")
@click.option(
    "--untrusted",
    is_flag=True,
    help="The file comes from a stranger: no programs, no private addresses.",
)
@click.option(
    "--protocol", default="auto", metavar="VERSION", help="The one version to speak with them."
)
@click.option("--timeout", type=float, default=60.0, help="Seconds for a call. [60]")
def command(
    out: CommandOutput,
    config: str,
    chosen: Chosen,
    name: str,
    no_watch: bool,
    untrusted: bool,
    protocol: str,
    timeout: float,
) -> None:
    """Serve many servers as one, on stdio or on other wires.

    FILE is a configuration as hosts have it (mcp.json, claude_desktop_config.json). The tools of the
    server `weather` are called `weather__forecast`. A server that is down costs its own tools.
    """
    from mcpearl.gateway.gateway import Gateway
    from mcpearl.gateway.settings import UpstreamSettings

    gateway = Gateway(
        config,
        name=name,
        watch=not no_watch,
        trusted=not untrusted,
        upstreams=UpstreamSettings(
            timeout=timeout, max_timeout=max(600.0, timeout), protocol=protocol
        ),
    )
    serve(out, gateway, chosen)


def serve(out: CommandOutput, gateway: "Gateway", chosen: Chosen) -> None:
    """Serve on the chosen wires."""
    wires = choose(chosen)
    if any(type(wire).__name__ == "Stdio" for wire in wires) and sys.stdin.isatty():
        out.note(f"{gateway.name}: on stdio a client starts it; to reach it from elsewhere: --http")
    gateway.run(*wires)
