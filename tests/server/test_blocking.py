"""A tool that blocks the loop is named in the log."""

import logging
import threading

import pytest

from mcpearl import Client, Server
from tests.waiting import eventually


async def test_a_blocking_tool_is_named_with_its_place(caplog: pytest.LogCaptureFixture) -> None:
    app = Server("slow", blocked_after=0.05)
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
            await eventually(lambda: "in all" in caplog.text)
    finally:
        logger.removeHandler(heard)
    assert "`tools/call` of `stubborn` has held up the event loop for over 0.05 s" in caplog.text
    assert "said.wait()" in caplog.text  # where it is


async def test_watching_can_be_switched_off() -> None:
    before = _watchdogs()
    async with Client(Server("quiet", blocked_after=None)):
        assert _watchdogs() <= before
    async with Client(Server("watched")):
        assert _watchdogs() - before


def _watchdogs() -> set[threading.Thread]:
    return {each for each in threading.enumerate() if each.name == "mcpearl-watchdog"}
