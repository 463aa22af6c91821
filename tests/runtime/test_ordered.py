"""Callbacks in order, one at a time, and a word to whoever feeds them too fast."""

import asyncio
from typing import Any

import pytest

from mcpearl.runtime.ordered import OrderedCalls


async def test_plain_and_async_callbacks_keep_the_order() -> None:
    calls = OrderedCalls(100, lambda full: None)
    heard: list[Any] = []

    async def slowly(value: Any) -> None:
        await asyncio.sleep(0.001)
        heard.append(value)

    for number in range(10):
        calls.put(slowly if number % 2 else heard.append, number)
    async with asyncio.timeout(30):
        while len(heard) < 10:
            await asyncio.sleep(0.001)
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
    async with asyncio.timeout(30):
        while not heard:
            await asyncio.sleep(0.001)
    assert "plain" in caplog.text
    assert "async" in caplog.text


async def test_whoever_feeds_too_fast_is_told_and_told_when_it_is_over() -> None:
    told: list[bool] = []
    calls = OrderedCalls(4, told.append)
    go = asyncio.Event()

    async def wait(value: Any) -> None:
        await go.wait()

    for number in range(6):
        calls.put(wait, number)
    assert told == [True]
    go.set()
    async with asyncio.timeout(30):
        while len(calls):
            await asyncio.sleep(0.001)
    assert told == [True, False]


async def test_closed_it_calls_nothing_more() -> None:
    calls = OrderedCalls(4, lambda full: None)
    heard: list[Any] = []

    async def wait(value: Any) -> None:
        await asyncio.sleep(0.01)
        heard.append(value)

    for number in range(3):
        calls.put(wait, number)
    calls.close()
    await asyncio.sleep(0.05)
    assert heard == []
