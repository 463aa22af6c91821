"""A tool that blocks the loop is named in the log, and counted."""

import logging
import threading

import pytest

from mcpearl import Client, Observer, Server
from mcpearl.telemetry.prometheus import render
from tests.telemetry.test_metrics import read, value
from tests.waiting import eventually


async def test_a_blocking_tool_is_named_with_its_place(caplog: pytest.LogCaptureFixture) -> None:
    told: list[tuple[str, float]] = []

    class Watching(Observer):
        def loop_blocked(self, what: str, seconds: float) -> None:
            told.append((what, seconds))

    app = Server("slow", blocked_after=0.05, observer=Watching())
    measuring = app.measure()
    said = threading.Event()

    class Heard(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "has held up" in record.getMessage():
                said.set()

    @app.tool
    async def stubborn() -> str:
        said.wait()
        return "done"

    logger = logging.getLogger("mcpearl.server")
    logger.addHandler(heard := Heard())
    try:
        async with Client(app) as client:
            assert (await client.call_tool("stubborn")).text == "done"
            await eventually(lambda: any("stubborn" in what for what, _ in told))
            counted = told.copy()
            samples = read(await render(measuring.snapshot()))
    finally:
        logger.removeHandler(heard)
    assert "`tools/call` of `stubborn` has held up the event loop for over 0.05 s" in caplog.text
    assert "said.wait()" in caplog.text  # where it is
    assert "s in all" in caplog.text
    (seconds,) = [each for what, each in counted if what == "`tools/call` of `stubborn`"]
    assert seconds >= 0.05
    assert value(samples, "mcpearl_loop_blocked_total") == len(counted)
    held_up = value(samples, "mcpearl_loop_blocked_seconds_total")
    assert held_up == pytest.approx(sum(each for _, each in counted))


async def test_watching_can_be_switched_off() -> None:
    before = _watchdogs()
    async with Client(Server("quiet", blocked_after=None)):
        assert _watchdogs() <= before
    async with Client(Server("watched")):
        assert _watchdogs() - before


def _watchdogs() -> set[threading.Thread]:
    return {each for each in threading.enumerate() if each.name == "mcpearl-watchdog"}
