"""The servers of the examples, tested as their authors would: with the fixtures of the pytest plugin."""

import pytest

from mcpearl import Client
from mcpearl.testing import Answers, Heard, Snapshot, check_tools, eventually

WEATHER = pytest.mark.mcpearl(app="examples/weather_server.py:app")
TRAVEL = pytest.mark.mcpearl(app="examples/asking.py:app")
EVERYTHING = pytest.mark.mcpearl(app="examples/everything/server.py:app")
ERAS = pytest.mark.mcpearl(era=["legacy", "modern"])


@WEATHER
@ERAS
@pytest.mark.mcpearl(wire=["memory", "stdio", "http", "tcp", "unix", "ws"])
async def test_the_forecast_on_every_wire(mcp_client: Client, mcp_heard: Heard):
    result = await mcp_client.call_tool("forecast", {"city": "Oslo", "days": 2})
    assert result.data.city == "Oslo" and result.data.days == ["snow", "snow"]
    assert (await mcp_client.call_tool("cities")).data == ["Hanoi", "Lisbon", "Oslo"]


@WEATHER
def test_the_forecast_without_async(mcp_client):
    assert mcp_client.call_tool("forecast", {"city": "Lisbon"}).data.days == ["sun"] * 3


@WEATHER
async def test_no_argument_breaks_the_weather(mcp_app):
    await check_tools(mcp_app, ["cities"], examples=10)


@TRAVEL
@ERAS
@pytest.mark.parametrize(("sure", "said"), [(True, "Booked B-1001."), (False, "Cancelled B-1001.")])
async def test_a_trip(mcp_client: Client, mcp_answers: Answers, sure: bool, said: str):
    mcp_answers.elicit({"city": "Lisbon", "days": 2})
    mcp_answers.elicit(sure)
    assert (await mcp_client.call_tool("book")).data == said
    assert "2 days in Lisbon" in mcp_answers.asked[1].message


@TRAVEL
@ERAS
async def test_a_trip_that_is_not_wanted(mcp_client: Client, mcp_answers: Answers):
    mcp_answers.elicit(False)
    assert (await mcp_client.call_tool("book")).data == "Nothing booked."


@EVERYTHING
@ERAS
async def test_what_tools_say_while_they_run(mcp_client: Client, mcp_heard: Heard):
    await mcp_client.call_tool("test_tool_with_progress")
    await eventually(lambda: len(mcp_heard.progress) >= 2)


@pytest.mark.parametrize(
    "example",
    [
        pytest.param("weather", marks=WEATHER),
        pytest.param("travel", marks=TRAVEL),
        pytest.param("everything", marks=EVERYTHING),
    ],
)
async def test_what_is_offered(mcp_client: Client, mcp_snapshot: Snapshot, example: str):
    """A change of what an example offers fails here; `pytest --mcpearl-update` takes it over."""
    await mcp_snapshot.check(mcp_client)
