"""Put load on a server: rate, percentiles, errors, a live chart, a report with plots."""

import asyncio
import signal
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mcpearl.cli.arguments import read_arguments
from mcpearl.cli.benching.chart import chart, draw_live
from mcpearl.cli.benching.load import Call, Load
from mcpearl.cli.benching.measures import Measures
from mcpearl.cli.benching.report import report_page
from mcpearl.cli.command import make_command
from mcpearl.cli.exits import CommandFailed, Exit
from mcpearl.cli.offered import find_named
from mcpearl.cli.output import CommandOutput
from mcpearl.cli.target import ServerTarget, completing, connected, target_options
from mcpearl.protocol.errors import ToolError

if TYPE_CHECKING:
    from mcpearl.client.client import Client


@make_command()
@target_options
@click.argument("name", required=False, shell_complete=completing("tools"))
@click.argument("arguments", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("-d", "--duration", default=10.0, type=click.FloatRange(0.5), help="Seconds. [10]")
@click.option(
    "-c", "--concurrency", default=16, type=click.IntRange(1, 10_000), help="Calls at once. [16]"
)
@click.option("--clients", default=1, type=click.IntRange(1, 1000), help="Connections. [1]")
@click.option("--rate", type=click.FloatRange(0.1), help="Calls that begin each second.")
@click.option(
    "--warmup", default=1.0, type=click.FloatRange(0), help="Seconds before it counts. [1]"
)
@click.option("--report", type=click.Path(dir_okay=False), help="An HTML page to write.")
async def command(
    out: CommandOutput,
    target: ServerTarget,
    name: str | None,
    arguments: tuple[str, ...],
    duration: float,
    concurrency: int,
    clients: int,
    rate: float | None,
    warmup: float,
    report: str | None,
) -> int:
    """Put load on a server, with calls of the tool NAME, or with pings.

    By default a call begins as soon as one has ended. With --rate they begin at fixed times, and what a
    call waits for its turn counts. Ctrl-C ends it early, with the figures up to then. Exits with 1 if a
    call failed.
    """
    async with _connected(target, out, min(clients, concurrency)) as connections:
        call = await _call(connections[0], name, arguments)
        load = Load(connections, call, concurrency, rate)
        if warmup:
            await load.run(warmup, None)
        measures = Measures(duration)
        title = f"{name or 'ping'} at {target.text}"
        async with _drawn(out, measures, title):
            interrupted = await _interrupted(load.run(duration, measures))
    conditions = {
        "seconds:": f"{round(measures.duration, 3):g}",
        "calls at once:": str(concurrency),
        "connections:": str(min(clients, concurrency)),
        **({"rate:": f"{rate:g}/s"} if rate else {}),
    }
    if report is not None:
        _save(Path(report), report_page(measures, title, conditions))
    figures = measures.as_json()
    out.show(figures, lambda: _write(out, measures, title, figures))
    if report is not None:
        out.note(f"the report is {report}")
    if interrupted:
        out.note(f"interrupted after {measures.duration:.1f} of {duration:g} seconds")
        return Exit.INTERRUPTED
    return Exit.FAILED if figures["errors"] or not figures["calls"] else Exit.OK


async def _interrupted(load: Coroutine[Any, Any, None]) -> bool:
    """Put the load on the server; return whether Ctrl-C ended it."""
    running = asyncio.ensure_future(load)
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, running.cancel)
    try:
        await asyncio.wait((running,))
    finally:
        asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)
        running.cancel()
    if not running.cancelled():
        running.result()
    return running.cancelled()


def _save(path: Path, page: str) -> None:
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise CommandFailed(f"cannot write the report to {path}: {error.strerror}") from None


@asynccontextmanager
async def _connected(
    target: ServerTarget, out: CommandOutput, count: int
) -> AsyncIterator["list[Client]"]:
    async with AsyncExitStack() as stack:
        opening = connected(target, out, reconnect=True)
        clients = [await stack.enter_async_context(opening)]
        for _ in range(count - 1):
            opening = connected(target, out, reconnect=True)
            clients.append(await stack.enter_async_context(opening))
        yield clients


async def _call(client: "Client", name: str | None, arguments: tuple[str, ...]) -> Call:
    if name is None:
        return lambda each: each.ping()
    tool = await find_named(client.tools(), name, "tool")
    values = read_arguments(arguments, tool.input_schema, f"tool `{name}`")

    async def call(each: "Client") -> None:
        result = await each.call_tool(name, values)
        if result.is_error:
            raise ToolError(result.text or "the tool failed")

    return call


@asynccontextmanager
async def _drawn(out: CommandOutput, measures: Measures, title: str) -> AsyncIterator[None]:
    """Draw the chart on a terminal while the block runs."""
    if not out.live or out.as_json:
        yield
        return
    drawing = asyncio.create_task(draw_live(measures, title))
    try:
        yield
    finally:
        drawing.cancel()
        with suppress(asyncio.CancelledError):
            await drawing


def _write(out: CommandOutput, measures: Measures, title: str, figures: dict[str, Any]) -> None:
    out.heading(title)
    if out.tty:
        rates = [moment.rate for moment in measures.moments]
        for line in chart(rates, max(20, min(100, out.columns - 12)), 6):
            click.echo(line, color=out.colour)
    rows = [
        ["calls", f"{figures['calls']:,} in {figures['seconds']:g} s"],
        ["rate", f"{figures['rate']:,.0f} per second"],
        *([["latency", _milliseconds(figures["latency_ms"])]] if figures["calls"] else []),
        ["errors", f"{figures['errors']:,}"],
    ]
    out.table((), rows, 2)
    for kind, count in figures["error_kinds"].items():
        out.line(f"    {count:,} times {kind}", fg="red")
    if measures.busy > 0.9:
        share = f"{measures.busy:.0%}"
        out.note(f"the load itself took {share} of a processor: the server may be able to do more")


def _milliseconds(latency: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:,.2f}" for name, value in latency.items()) + " ms"
