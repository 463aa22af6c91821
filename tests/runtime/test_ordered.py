"""Callbacks in order, one at a time, and a pause of the source when too many wait."""

import asyncio
from typing import Any

import pytest

from mcpearl.runtime.ordered import OrderedCalls
from tests.waiting import eventually


async def test_plain_and_async_callbacks_keep_the_order() -> None:
    calls = OrderedCalls(100, lambda full: None)
    heard: list[Any] = []

    async def slowly(value: Any) -> None:
        await asyncio.sleep(0.001)
        heard.append(value)

    for number in range(10):
        calls.put(slowly if number % 2 else heard.append, number)
    await eventually(lambda: len(heard) == 10)
    assert heard == list(range(10))
    assert len(calls) == 0


async def test_a_callback_that_raises_is_logged_and_the_next_is_called(
    caplog: pytest.LogCaptureFixture,
) -> None:
    calls = OrderedCalls(100, lambda full: None)
    heard: list[Any] = []

    def fails(value: Any) -> None:
        raise ValueError("plain")

    async def fails_later(value: Any) -> None:
        raise ValueError("async")

    for callback in (fails, fails_later, fails, heard.append):
        calls.put(callback, 1)
    await eventually(lambda: heard)
    assert "plain" in caplog.text
    assert "async" in caplog.text


async def test_the_source_is_paused_at_the_limit_and_resumed_at_half() -> None:
    told: list[bool] = []
    calls = OrderedCalls(4, told.append)
    go = asyncio.Event()

    async def wait(value: Any) -> None:
        await go.wait()

    for number in range(6):
        calls.put(wait, number)
    assert told == [True]
    go.set()
    assert await calls.drained(30)
    assert told == [True, False]


async def test_closed_it_calls_nothing_more() -> None:
    calls = OrderedCalls(4, lambda full: None)
    heard: list[Any] = []

    go = asyncio.Event()

    async def wait(value: Any) -> None:
        await go.wait()
        heard.append(value)

    for number in range(3):
        calls.put(wait, number)
    calls.close()
    go.set()
    assert await calls.drained(30)
    assert len(calls) == 0
    assert heard == []
