"""Talking to servers: `list`, `call`, `read`, `prompt`, `complete`, `ping`, `tasks`, `watch`."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.running import WEATHER, Done, Screen, Serving, mcpearl
from tests.cli.weather import PNG


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with Serving("run", WEATHER, "--http", "--port", "0") as serving:
        yield serving.url


def test_list(url: str):
    lists = mcpearl("list", url, "--json").json
    assert [tool["name"] for tool in lists["tools"]][:2] == ["forecast", "plan"]
    assert lists["templates"][0]["uriTemplate"] == "weather://{city}/now"
    written = mcpearl("list", url, "tools").out
    assert "forecast(city: string, days=3, tags=null, exact=false)  What the weather" in written
    assert "weather://" not in written


def test_targets(url: str, tmp_path: Path):
    """A file, a file with a name, a URL, a command, a configuration, an entry of it."""
    command = f"{sys.executable} -m mcpearl run --stdio {WEATHER}"  # ends as a file does
    config = tmp_path / "mcp.json"
    servers = {"one": {"url": url}, "two": {"command": "no-such-command"}}
    config.write_text(json.dumps({"mcpServers": servers}))
    for target in (f"{WEATHER}:app", url, command, f"{config}:one"):
        done = mcpearl("call", target, "forecast", "city=Oslo", "days=1", "--json")
        assert done.json["structuredContent"] == {"result": ["sun in Oslo None False"]}
    home = tmp_path / "home"
    (home / ".cursor").mkdir(parents=True)
    (home / ".cursor" / "mcp.json").write_text(
        json.dumps({"mcpServers": {"weather": {"url": url}}})
    )
    assert mcpearl("ping", "weather", home=home).code == 0
    assert mcpearl("ping", "cursor:weather", home=home).code == 0
    assert "did you mean `weather`?" in mcpearl("ping", "wether", home=home).err
    several = mcpearl("ping", config)
    assert (several.code, "has several servers: one, two" in several.err) == (2, True)
    assert mcpearl("ping", f"{config}:two").code == 3


def test_a_file_that_serves_itself_with_another_sdk(tmp_path: Path):
    server = tmp_path / "other.py"
    server.write_text(
        "from mcp.server import MCPServer\n"
        "server = MCPServer('other')\n"
        "@server.tool()\n"
        "def twice(n: int) -> int:\n    return 2 * n\n"
        "if __name__ == '__main__':\n    server.run()\n"
    )
    done = mcpearl("call", server, "twice", "n=21")
    assert done.out == "42\n", done.err


def test_arguments_from_stdin_and_nested_ones(url: str):
    done = mcpearl("call", url, "forecast", "-", given='{"city": "Rome", "days": 1}')
    assert "sun in Rome" in done.out
    assert "Trip(destination='Rome', days=2, style='cheap')" in (
        mcpearl("call", url, "plan", 'trip={"destination": "Rome", "days": 2}').out
    )
    assert "Trip(destination='Oslo', days=4, style='cheap')" in (
        mcpearl("call", url, "plan", "trip.destination=Oslo", "trip.days=4").out
    )


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["forecst", "city=a"], 4, "no tool `forecst`; did you mean `forecast`?"),
        (["forecast", "cty=a"], 2, "no argument 'cty'; did you mean `city`?"),
        (["broken"], 1, "it is broken \\x1b[31mred"),
    ],
)
def test_calls_that_fail(url: str, words: list[str], code: int, says: str):
    done = mcpearl("call", url, *words)
    assert done.code == code
    assert says in done.err
    assert "\x1b" not in done.err
    assert done.out == ""


def test_a_failed_call_as_json_has_the_result(url: str):
    done = mcpearl("call", url, "broken", "--json")
    assert done.code == 1
    assert json.loads(done.out)["isError"] is True


def test_images_are_saved(url: str, tmp_path: Path):
    done = mcpearl("call", url, "picture", "-o", tmp_path / "one.png")
    assert "[image/png, 70 bytes] saved as" in done.out
    assert (tmp_path / "one.png").read_bytes() == PNG
    mcpearl("call", url, "picture", "-o", tmp_path / "many")
    assert (tmp_path / "many" / "image-1.png").read_bytes() == PNG


def test_read(url: str, tmp_path: Path):
    assert mcpearl("read", url, "weather://now").out == "sun"
    assert mcpearl("read", url, "weather://Oslo/now", "--json").json["contents"][0]["text"]
    mcpearl("read", url, "weather://map", "-o", tmp_path / "map.png")
    assert (tmp_path / "map.png").read_bytes() == PNG
    mcpearl("read", url, "weather://map", "-o", tmp_path)
    assert (tmp_path / "resource-1.png").read_bytes() == PNG
    missing = mcpearl("read", url, "weather://no/such/thing")
    assert missing.code == 4
    assert "mcpearl list TARGET resources" in missing.err
    assert "did you mean `weather://now`?" in mcpearl("read", url, "weather://nwo").err


def test_prompt_and_complete(url: str):
    done = mcpearl("prompt", url, "brief", "city=Oslo")
    assert done.out == "user:\n  Summarize the weather in Oslo, short.\n"
    assert mcpearl("prompt", url, "brif", "city=Oslo").code == 4
    assert mcpearl("complete", url, "brief", "city", "l").out == "Lisbon\nLondon\n"
    wrong = mcpearl("complete", url, "brif", "city", "l")
    assert wrong.code == 4 and "did you mean `brief`?" in wrong.err
    wrong = mcpearl("complete", url, "brief", "cty", "l")
    assert wrong.code == 2 and "did you mean `city`?" in wrong.err


def test_ping_says_how_long_it_took(url: str):
    found = mcpearl("ping", url, "-n", "2", "--json").json
    assert found["server"]["name"] == "weather"
    assert len(found["ping_ms"]) == 2


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
def test_tasks(url: str, version: str):
    def run(*words: str) -> Done:
        return mcpearl(words[0], url, *words[1:], "--protocol", version)

    id = run("call", "report", "year=2026", "--task").out.strip()
    assert run("tasks", "result", id).out == "the report of 2026\n"
    assert "completed" in run("tasks", "get", id).out
    assert run("tasks", "get", "no-such-task").code == 4


def test_tasks_are_listed_where_the_server_can(url: str):
    listed = mcpearl("tasks", WEATHER, "--protocol", "2025-11-25")
    assert (listed.code, listed.err) == (0, "there are no tasks\n")
    refused = mcpearl("tasks", url)
    assert refused.code == 4
    assert "takes the id that `mcpearl call --task` printed" in refused.err


def test_a_task_of_a_server_that_ends_with_the_command():
    assert "and so does the task" in mcpearl("call", WEATHER, "report", "year=1", "--task").err


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
def test_watch(url: str, version: str):
    with Serving("watch", url, "weather://now", "-n", "1", "--protocol", version) as watching:
        watching.until("watching weather://now")
        mcpearl("call", url, "change")
        assert "  sun" in watching.until("weather://now\n")
        assert watching.process.wait(60) == 0


def test_a_terminal_shows_that_a_server_takes_long_to_answer():
    with Screen("ping", "sleep 60", "--timeout", "2") as screen:
        screen.until("connecting to sleep 60")
        assert screen.ended() == 6
    assert "was not answered within 2 s" in screen.text
    assert "connecting" not in mcpearl("ping", "sleep 60", "--timeout", "1").err


def test_a_form_without_a_terminal(url: str):
    assert "no terminal to ask for 'destination'" in mcpearl("call", url, "book").err
    done = mcpearl("call", url, "book", "--answer", "destination=Oslo", "--answer", "days=9")
    assert done.out == "booked Trip(destination='Oslo', days=9, style='cheap')\n"


def test_a_form_on_a_terminal(url: str):
    with Screen("call", url, "book") as screen:
        screen.until("destination (string) > ")
        screen.type("Rome\n")
        screen.until("days (integer, default 3) > ")
        screen.type("many\n")
        screen.until("it must be a whole number")
        screen.type("\n")
        screen.until("style (cheap|comfortable, default cheap) > ")
        screen.type("comfortable\n")
        assert screen.ended() == 0
    assert "booked Trip(destination='Rome', days=3, style='comfortable')" in screen.text


def test_a_person_answers_for_the_model(url: str):
    with Screen("call", url, "write", "topic=rain") as screen:
        screen.until("Write about rain")
        screen.type("It falls.\n")
        assert screen.ended() == 0
    assert "it wrote: It falls." in screen.text


def test_ctrl_c_ends_it_cleanly(url: str):
    with Screen("call", url, "book") as screen:
        screen.until("destination (string) > ")
        screen.type("\x03")
        assert screen.ended() == 130
    assert "mcpearl: interrupted" in screen.text
    assert "Traceback" not in screen.text


def test_progress_is_a_bar_on_a_terminal_only(url: str):
    with Screen("call", url, "slow", "steps=6") as screen:
        screen.until("step 4")
        assert screen.ended() == 0
    assert "█" in screen.raw
    assert screen.text.endswith("done\n")
    done = mcpearl("call", url, "slow", "steps=3")
    assert (done.out, done.err) == ("done\n", "")


def test_colour_on_a_terminal_only(url: str):
    with Screen("list", url, "prompts") as screen:
        screen.ended()
    assert "\x1b[" in screen.raw
    with Screen("list", url, "prompts", NO_COLOR="1") as plain:
        plain.ended()
    assert "\x1b[" not in plain.raw
    assert "\x1b" not in mcpearl("list", url).out


def test_a_narrow_terminal_is_not_overrun(url: str):
    with Screen("list", url, "tools", columns=60) as screen:
        screen.ended()
    assert "    What the weather will be." in screen.text


def test_answers_that_do_not_fit_the_form(url: str):
    done = mcpearl("call", url, "book", "--answer", "destination=Rome", "--answer", "days=many")
    assert (done.out, done.code) == ("not booked: decline\n", 0)
    assert "declined: --answer days=many: it must be a whole number" in done.err
    assert "Traceback" not in done.err
    done = mcpearl("call", url, "book", "--answer", "destination=Rome", "--answer", "dys=4")
    assert "--answer dys: no form has such a field; did you mean `days`?" in done.err


TWO_FORMS = """
from mcpearl import Context, Server

app = Server("two")

@app.tool
async def travel(ctx: Context) -> str:
    city = await ctx.elicit("Where to?", {"properties": {"city": {"type": "string"}}})
    days = await ctx.elicit("How long?", {"properties": {"days": {"type": "integer"}}})
    return f"{days.data['days']} days in {city.data['city']}"
"""


def test_answers_for_one_form_after_the_other(tmp_path: Path):
    server = tmp_path / "two.py"
    server.write_text(TWO_FORMS)
    done = mcpearl("call", server, "travel", "--answer", "city=Oslo", "--answer", "days=2")
    assert (done.out, "field" in done.err) == ("2 days in Oslo\n", False), done.err


def test_a_form_is_declined_with_ctrl_d_and_left_with_ctrl_c(url: str):
    with Screen("call", url, "book") as screen:
        screen.until("destination (string) > ")
        assert "Ctrl-D declines, Ctrl-C ends the command" in screen.text
        screen.type("\x04")
        assert screen.ended() == 0
        assert "> \nnot booked: decline" in screen.text
    with Screen("call", url, "book") as screen:
        screen.until("destination (string) > ")
        screen.type("\x03")
        assert screen.ended() == 130
        assert "Traceback" not in screen.text


def test_a_file_that_cannot_be_written(url: str, tmp_path: Path):
    (tmp_path / "file").write_text("")
    done = mcpearl("read", url, "weather://map", "-o", tmp_path / "file" / "map.png")
    assert done.code == 1
    assert "cannot save to" in done.err


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["weather://{city}/now", "ciy"], 2, "has no argument 'ciy'; did you mean `city`?"),
        (["weather://{ct}/now", "ct"], 4, "did you mean `weather://{city}/now`?"),
        (["brif", "city"], 4, "has no prompt `brif`; did you mean `brief`?"),
    ],
)
def test_what_cannot_be_completed(url: str, words: list[str], code: int, says: str):
    done = mcpearl("complete", url, *words)
    assert (done.code, says in done.err) == (code, True), done.err


def test_watching_what_is_not_listed_is_warned_of(url: str):
    with Screen("watch", url, "weather://nwo/x", "weather://Oslo/now") as screen:
        screen.until("watching")
        assert "the server does not list weather://nwo/x" in screen.text
        assert "the server does not list weather://Oslo/now" not in screen.text
        screen.type("\x03")
        assert screen.ended() == 130
