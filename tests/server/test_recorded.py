"""Conversations with the example servers that were recorded once: the servers still answer the same.

`recordings` has one for each era. A change of what a server answers is a change for all of its clients:
record it anew with `python -m tests.server.test_recorded` if it is meant.
"""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from examples.everything.server import app

from mcpearl import Client, McpError
from mcpearl.testing import Answers, eventually, playback, record, replay

RECORDINGS = Path(__file__).parent / "recordings"
ERAS = ["legacy", "modern"]
# What is different in each run: ids, times, and the sealed states of rounds.
DIFFERS = ["taskId", "createdAt", "lastUpdatedAt", "requestState"]


def answers() -> Answers:
    user = {"username": "ada", "email": "ada@example.com"}
    return Answers(elicitation=[user], sampling=["a pearl"], roots=["file:///work"])


async def converse(client: Client) -> list[Any]:
    """Use one of everything, and return what came of it."""
    seen: list[Any] = [tool.name for tool in await client.tools()]
    seen += [prompt.name for prompt in await client.prompts()]
    seen += [resource.uri for resource in await client.resources()]
    for name in ("test_simple_text", "test_multiple_content_types", "test_error_handling"):
        seen.append(await client.call_tool(name))
    seen.append(await client.call_tool("test_sampling", {"prompt": "What is in an oyster?"}))
    seen.append(await client.call_tool("test_elicitation", {"message": "Who are you?"}))
    seen.append(await client.read_resource("test://static-text"))
    seen.append(await client.get_prompt("test_simple_prompt"))
    for wrong in (client.call_tool("nothing"), client.read_resource("test://nothing")):
        try:
            await wrong
        except McpError as error:
            seen.append((error.code, str(error)))
    return seen


@pytest.mark.parametrize("era", ERAS)
async def test_a_server_answers_as_it_did(era: str):
    await replay(RECORDINGS / f"{era}.jsonl", app, ignore=DIFFERS)


@pytest.mark.parametrize("era", ERAS)
async def test_a_client_makes_the_same_of_it(era: str):
    """Without a server: what the client says is what it said then, and it understands the same."""
    there, here = answers(), answers()
    async with Client(app, protocol=version(era), **there.options) as client:
        expected = await converse(client)
    async with Client(
        playback(RECORDINGS / f"{era}.jsonl"), protocol=version(era), **here.options
    ) as client:
        assert await converse(client) == expected
    assert [each.message for each in here.asked] == [each.message for each in there.asked]


def version(era: str) -> str:
    return "2025-11-25" if era == "legacy" else "2026-07-28"


async def record_anew() -> None:
    RECORDINGS.mkdir(exist_ok=True)
    for era in ERAS:
        script = answers()
        target = record(app, RECORDINGS / f"{era}.jsonl")
        async with Client(target, protocol=version(era), **script.options) as client:
            await converse(client)
        await eventually(lambda: (RECORDINGS / f"{era}.jsonl").stat().st_size)  # noqa: B023


if __name__ == "__main__":
    asyncio.run(record_anew())
