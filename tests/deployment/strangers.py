"""Clients of other SDKs in a scene: processes that call its tools, and print a line for each outcome."""

import asyncio
import json
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tests.deployment.books import Books, Kind
from tests.interop.peers import HERE, NODE

TOOLS = ("record", "count", "ask", "sample", "leave")

Command = Callable[[str, str, float], list[str]]


def _typescript(sdk: str, mode: str) -> Command:
    program = str(HERE / "node" / "scene_client.mjs")
    return lambda url, name, seconds: [NODE, program, sdk, mode, url, name, str(seconds)]


def _official(mode: str) -> Command:
    program = str(Path(__file__).with_name("official_client.py"))
    return lambda url, name, seconds: [sys.executable, program, url, name, str(seconds), mode]


STRANGERS: dict[Kind, Command] = {
    Kind("typescript1", TOOLS, True): _typescript("v1", "legacy"),
    Kind("typescript2", TOOLS, True): _typescript("v2", "legacy"),
    Kind("typescript2modern", TOOLS, False): _typescript("v2", "2026-07-28"),
    Kind("official", TOOLS, True): _official("legacy"),
    Kind("officialmodern", TOOLS, False): _official("2026-07-28"),
}


async def visit(kind: Kind, url: str, seconds: float, books: Books) -> None:
    """Run a client of a kind, and note what it prints.

    Raises `AssertionError` if it ended otherwise than by saying how many calls it made.
    """
    name = kind.name
    books.kinds[name] = kind
    process = await asyncio.create_subprocess_exec(
        *STRANGERS[kind](url, name, seconds),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None and process.stderr is not None
    said = asyncio.create_task(process.stderr.read())
    calls, total = set(), None
    try:
        async for line in process.stdout:
            found = json.loads(line)
            if "total" in found:
                total = found["total"]
                continue
            calls.add(found["key"])
            books.asked[name] += found["asked"]
            books.close(name, found["key"], found["tool"], found["outcome"], found["progress"])
    finally:
        if process.returncode is None and total is None:
            with suppress(ProcessLookupError):
                process.kill()
        await process.wait()
        errors = (await said).decode(errors="replace")
    if total is None:
        raise AssertionError(f"{name} ended early: {errors[-2000:]}")
    books.unfinished += [f"{name}-{n}" for n in range(1, total + 1) if f"{name}-{n}" not in calls]
