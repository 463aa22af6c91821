"""Say whether a server answers, and how fast."""

import time

import click

from mcpearl.cli.command import make_command
from mcpearl.cli.output import CommandOutput
from mcpearl.cli.target import ServerTarget, connected, target_options


@make_command()
@target_options
@click.option("-n", "--count", default=3, type=click.IntRange(1), help="How often to ask. [3]")
async def command(out: CommandOutput, target: ServerTarget, count: int) -> None:
    """Say whether a server answers, and how fast."""
    began = time.perf_counter()
    async with connected(target, out) as client:
        connecting = (time.perf_counter() - began) * 1000
        took = []
        for _ in range(count):
            sent = time.perf_counter()
            await client.ping()
            took.append((time.perf_counter() - sent) * 1000)
        info = client.server_info
        found = {
            "server": info,
            "protocol": client.protocol_version,
            "connect_ms": round(connecting, 2),
            "ping_ms": [round(each, 3) for each in took],
        }
        name = f"{info.name} {info.version}" if info else "the server"

    def write() -> None:
        out.line(f"{name} answers, in version {found['protocol']}")
        pings = ", ".join(f"{each:.2f}" for each in took)
        out.table((), [["connecting", f"{connecting:.0f} ms"], ["answers", f"{pings} ms"]], 2)

    out.show(found, write)
