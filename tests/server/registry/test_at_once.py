"""Tools that never wait run without a task of their own, and answer as others do."""

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextvars import ContextVar
from typing import Annotated, Any

import pytest

from mcpearl import Client, Context, Depends, Server, Tasks, ToolError
from mcpearl.server.registry.functions import HandlerFunction, compile_handler

COUNT: ContextVar[int] = ContextVar("COUNT", default=0)


def task_is_its_own() -> bool:
    """Whether the running code has a task that has not ended."""
    task = asyncio.current_task()
    assert task is not None
    return not task.done()


async def plain(a: int) -> int:
    return a


async def with_context(a: int, ctx: Context) -> str:
    return ctx.method


async def awaits(a: int) -> int:
    await asyncio.sleep(0)
    return a


async def loops(a: int) -> int:
    async for _ in numbers():
        pass
    return a


async def enters(a: int) -> int:
    async with asyncio.timeout(1):
        return a


async def comprehends(a: int) -> list[int]:
    return [each async for each in numbers()]


async def names_a_task(a: int) -> bool:
    return asyncio.current_task() is not None


async def numbers() -> AsyncIterator[int]:
    yield 1


def one() -> int:
    return 1


async def depends(a: int, b: Annotated[int, Depends(one)]) -> int:
    return a + b


def in_a_thread(a: int) -> int:
    return a


@functools.wraps(plain)
async def wrapped(*args: Any, **options: Any) -> Any:
    return await plain(*args, **options)


class Service:
    async def method(self, a: int) -> int:
        return a

    async def __call__(self, a: int) -> int:
        return a


@pytest.mark.parametrize(
    ("function", "at_once"),
    [
        (plain, True),
        (with_context, True),
        (Service().method, True),
        (Service(), True),
        (functools.partial(plain), True),
        (awaits, False),
        (loops, False),
        (enters, False),
        (comprehends, False),
        (names_a_task, False),
        (numbers, False),
        (wrapped, False),
        (depends, False),
        (in_a_thread, False),
    ],
)
def test_what_never_waits_is_known(function: Any, at_once: bool) -> None:
    signature = compile_handler(function, "tool", "tool")
    assert HandlerFunction(function, signature, None).at_once is at_once  # type: ignore[arg-type]


def make(await_first: bool, **options: Any) -> Server:
    """Make a server whose tools wait, or the same without."""
    app = Server("at once", telemetry=False, **options)

    def tool(function: Callable[..., Any]) -> None:
        @functools.wraps(function)
        async def waiting(*args: Any, **given: Any) -> Any:
            await asyncio.sleep(0)
            return await function(*args, **given)

        app.tool(waiting if await_first else function)

    @tool
    async def add(a: int, b: int) -> int:
        return a + b

    @tool
    async def fail(how: str) -> str:
        if how == "said":
            raise ToolError("said")
        raise ValueError(how)

    @tool
    async def count() -> int:
        COUNT.set(COUNT.get() + 1)
        return COUNT.get()

    @tool
    async def own_task() -> bool:
        return task_is_its_own()

    return app


CALLS: list[tuple[str, dict[str, Any]]] = [
    ("add", {"a": 1, "b": 2}),
    ("add", {"a": "x", "b": 2}),
    ("add", {"a": 1}),
    ("fail", {"how": "said"}),
    ("fail", {"how": "unexpected"}),
    ("count", {}),
    ("count", {}),
]


@pytest.mark.parametrize("protocol", ["2025-11-25", "2026-07-28"])
async def test_the_answers_are_those_of_tools_that_wait(protocol: str) -> None:
    answers: list[list[Any]] = []
    for await_first in (False, True):
        async with Client(make(await_first), protocol=protocol) as client:
            answers.append([await client.call_tool(name, given) for name, given in CALLS])
    assert answers[0] == answers[1]
    assert [each.data for each in answers[0] if not each.is_error] == [3, 1, 1]


async def has_own_task(app: Server) -> Any:
    async with Client(app) as client:
        return (await client.call_tool("own_task")).data


async def test_only_a_tool_that_waits_has_a_task() -> None:
    assert await has_own_task(make(False)) is False
    assert await has_own_task(make(True)) is True


async def test_what_could_wait_around_a_tool_gives_it_a_task() -> None:
    app = make(False)

    @app.middleware
    async def around(ctx: Context, call_next: Callable[[], Awaitable[Any]]) -> Any:
        return await call_next()

    assert await has_own_task(app) is True


@pytest.mark.parametrize("options", [{"timeout": 5}, {"concurrency": 2}, {"task": True}])
async def test_a_tool_that_waits_for_something_else_has_a_task(options: dict[str, Any]) -> None:
    app = Server("limited", telemetry=False)

    @app.tool(**options)
    async def own_task() -> bool:
        return task_is_its_own()

    assert await has_own_task(app) is True


async def test_a_tool_that_takes_the_place_of_another_is_known_anew() -> None:
    app = make(False, on_duplicate="replace")
    assert await has_own_task(app) is False

    @app.tool
    async def own_task() -> bool:
        await asyncio.sleep(0)
        return task_is_its_own()

    assert await has_own_task(app) is True
    app.remove_tool("own_task")

    @app.tool(name="own_task")
    async def without() -> bool:
        return task_is_its_own()

    assert await has_own_task(app) is False


async def test_a_tool_that_may_become_a_task_is_run_through() -> None:
    app = Server("later", telemetry=False)

    @app.tool(task=Tasks(after=5))
    async def own_task() -> bool:
        return task_is_its_own()

    assert await has_own_task(app) is False


@pytest.mark.parametrize("await_first", [False, True])
async def test_a_mounted_tool_has_a_task_only_if_it_waits(await_first: bool) -> None:
    app = Server("outer", telemetry=False)
    inner = make(await_first)
    app.mount("inner", inner)
    async with Client(app) as client:
        await client.call_tool(
            "inner__add", {"a": 1, "b": 2}
        )  # what is mounted is known from now on
        assert (await client.call_tool("inner__own_task")).data is await_first

        @inner.middleware
        async def around(ctx: Context, call_next: Callable[[], Awaitable[Any]]) -> Any:
            return await call_next()

        await client.call_tool("inner__add", {"a": 1, "b": 2})
        assert (await client.call_tool("inner__own_task")).data is True
