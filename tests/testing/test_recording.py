"""Recorded conversations, played back from either side."""

import json
from pathlib import Path
from typing import Any

import pytest

from mcpearl import Client, ConnectionLost, Context, Server
from mcpearl.testing import Answers, Departed, Heard, Playback, playback, record, replay

VERSIONS = ["2024-11-05", "2025-11-25", "2026-07-28"]


def make_app(greeting: str = "Hello") -> Server:
    app = Server("guests")

    @app.tool
    async def greet(name: str, *, ctx: Context) -> str:
        await ctx.info(f"greeting {name}")
        await ctx.progress(1)
        return f"{greeting} {name}"

    @app.tool
    async def register(*, ctx: Context) -> str:
        answer = await ctx.elicit("Who?", {"properties": {"name": {"type": "string"}}})
        return f"{answer.data['name']} is in"

    @app.tool
    def login(user: str, password: str) -> str:
        return f"welcome {user}"

    return app


async def talk(target: Any, version: str, name: str = "Ada") -> Heard:
    heard, answers = Heard(), Answers(elicitation=[{"name": "Grace"}])
    options = {**answers.options, **heard.options}
    async with Client(target, protocol=version, **options) as client:
        assert (await client.call_tool("greet", {"name": name})).text == f"Hello {name}"
        if version != "2024-11-05":  # which has no elicitation
            assert (await client.call_tool("register")).text == "Grace is in"
    return heard


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_conversation_is_played_back_from_both_sides(version: str, tmp_path: Path):
    file = tmp_path / "session.jsonl"
    app = make_app()
    await talk(record(app, file), version)
    recorded = Playback(file)
    heard = await talk(recorded.target, version)
    assert heard.texts == ["greeting Ada"]
    assert [each.progress for each in heard.progress] == [1]
    recorded.check()
    await replay(file, app)
    async with app.serving("http", port=0) as url:
        await replay(file, url)


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_client_that_departs_is_told_where(version: str, tmp_path: Path):
    file = tmp_path / "session.jsonl"
    await talk(record(make_app(), file), version)
    sent = next(n for n, line in enumerate(file.read_text().splitlines(), 1) if '"greet"' in line)
    recorded = Playback(file)
    with pytest.raises(ConnectionLost) as lost:
        await talk(recorded.target, version, "Eve")
    says = f"session.jsonl, line {sent}: in `tools/call` of `greet`, "
    assert says + '`params.arguments.name` is "Eve", and was "Ada"' in str(lost.value)
    with pytest.raises(Departed):
        recorded.check()


async def test_a_client_that_says_less_or_more_has_departed(tmp_path: Path):
    file = tmp_path / "session.jsonl"
    await talk(record(make_app(), file), "2025-11-25")
    recorded = Playback(file)
    async with Client(recorded.target, protocol="2025-11-25"):
        pass
    with pytest.raises(Departed, match="`tools/call` of `greet` was not sent"):
        recorded.check()
    async with Client(playback(file), protocol="2025-11-25") as client:
        with pytest.raises(
            ConnectionLost, match="`ping` was sent, and `tools/call` of `greet` was"
        ):
            await client.ping()


async def test_a_server_that_answers_something_else_has_departed(tmp_path: Path):
    file = tmp_path / "session.jsonl"
    await talk(record(make_app(), file), "2025-11-25")
    with pytest.raises(Departed, match=r'text` is "Good day Ada", and was "Hello Ada"') as departed:
        await replay(file, make_app("Good day"))
    line = file.read_text().splitlines()[departed.value.line - 1]
    assert "Hello Ada" in line
    await replay(file, make_app("Good day"), ignore=["text", "structuredContent"])


async def test_secrets_are_not_written(tmp_path: Path):
    file = tmp_path / "session.jsonl"
    app = make_app()
    async with app.serving("http", port=0) as url:
        target = record(url + "?key=secret-1", file, hide=["password"])
        async with Client(target, headers={"authorization": "Bearer secret-2"}) as client:
            await client.call_tool("login", {"user": "ada", "password": "secret-3"})
        text = file.read_text()
        assert "secret-" not in text
        assert json.loads(text.splitlines()[0])["target"] == url
    async with Client(playback(file)) as client:
        result = await client.call_tool("login", {"user": "ada", "password": "another"})
        assert result.data == "welcome ada"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not a recording of this version"),
        ('{"mcpearl": 99}\n', "not a recording of this version"),
        ('{"mcpearl": 1}\nnonsense\n', "line 2: not a recorded message"),
        ('{"mcpearl": 1}\n{"said": {}}\n', "line 2: not a recorded message"),
    ],
)
def test_what_is_not_a_recording_is_refused(text: str, says: str, tmp_path: Path):
    file = tmp_path / "session.jsonl"
    file.write_text(text)
    with pytest.raises(ValueError, match=says):
        Playback(file)
