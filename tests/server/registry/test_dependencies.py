"""Parameters that functions fill in: nested, once per call, closed afterwards, allowed to ask."""

import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Annotated, Any

import pytest

from mcpearl import Client, Context, Depends, Server
from mcpearl.schema import SignatureError
from tests.server.wire import ERAS


@pytest.fixture
def app() -> Server:
    return Server("depending")


async def call(app: Server, name: str, arguments: Any = None, **options: Any) -> Any:
    async with Client(app, **options) as client:
        result = await client.call_tool(name, arguments or {})
    if result.is_error:
        return result.content[0].text
    return result.structured_content["result"]


async def test_a_model_sees_nothing_of_them(app: Server):
    async def settings() -> dict[str, int]:
        return {"limit": 3}

    @app.tool
    async def shown(a: int, b: dict[str, int] = Depends(settings)) -> int:
        return a + b["limit"]

    @app.tool
    def annotated(a: int, b: Annotated[dict[str, int], Depends(settings)]) -> int:
        return a + b["limit"]

    async with Client(app) as client:
        for tool in [tool async for tool in client.tools()]:
            assert list(tool.input_schema["properties"]) == ["a"]
        result = await client.call_tool("shown", {"a": 1, "b": {"limit": 9}})
        assert "unknown argument `b`" in result.content[0].text
    assert await call(app, "shown", {"a": 1}) == 4
    assert await call(app, "annotated", {"a": 2}) == 5


class Connections:
    """Functions of every kind that open and close something, and note it."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.threads: set[int] = set()

    async def async_generator(self) -> AsyncIterator[str]:
        self.log.append("open")
        try:
            yield "value"
        except ValueError:
            self.log.append("failed")
            raise
        finally:
            self.log.append("close")

    def generator(self) -> Iterator[str]:
        self.threads.add(threading.get_ident())
        self.log.append("open")
        try:
            yield "value"
        except ValueError:
            self.log.append("failed")
            raise
        finally:
            self.log.append("close")

    @asynccontextmanager
    async def async_manager(self) -> AsyncIterator[str]:
        async for value in self.async_generator():
            yield value

    def plain(self) -> str:
        self.threads.add(threading.get_ident())
        return "value"

    async def coroutine(self) -> str:
        return "value"

    def __call__(self) -> str:
        return "value"


MANAGED: list[Callable[[Connections], Any]] = [
    lambda connections: connections.async_generator,
    lambda connections: connections.generator,
    lambda connections: asynccontextmanager(connections.async_generator),
    lambda connections: contextmanager(connections.generator),
    lambda connections: partial(connections.async_generator),
]


@pytest.mark.parametrize("kind", MANAGED)
@pytest.mark.parametrize("is_async", [False, True])
async def test_what_is_opened_is_closed_after_the_call(app: Server, kind, is_async: bool):
    connections = Connections()
    function = kind(connections)

    def work(fail: bool = False, value: str = Depends(function)) -> str:
        connections.log.append("work")
        if fail:
            raise ValueError("no")
        return value

    async def async_work(fail: bool = False, value: str = Depends(function)) -> str:
        return work(fail, value)

    app.add_tool(async_work if is_async else work, name="work")
    assert await call(app, "work") == "value"
    assert connections.log == ["open", "work", "close"]
    connections.log.clear()
    assert "ValueError: no" in await call(app, "work", {"fail": True})
    assert connections.log == ["open", "work", "failed", "close"]


@pytest.mark.parametrize(
    "kind",
    [
        lambda connections: connections.plain,
        lambda connections: connections.coroutine,
        lambda connections: connections,
        lambda connections: partial(connections.coroutine),
    ],
)
async def test_functions_of_every_kind(app: Server, kind):
    connections = Connections()
    app.add_tool(lambda value=Depends(kind(connections)): str(value), name="work")
    async with Client(app) as client:
        result = await client.call_tool("work")
    assert result.content[0].text == "value"
    assert threading.get_ident() not in connections.threads


async def test_a_class_is_made_for_each_call(app: Server):
    class Basket:
        def __init__(self, ctx: Context) -> None:
            self.method = ctx.method

    @app.tool
    async def show(basket: Basket = Depends(Basket)) -> str:
        return basket.method

    assert await call(app, "show") == "tools/call"


async def test_functions_depend_on_functions_and_run_once_per_call(app: Server):
    order: list[str] = []

    async def pool(ctx: Context) -> AsyncIterator[str]:
        order.append(f"pool of {ctx.method}")
        yield "pool"
        order.append("pool closed")

    def session(pool: str = Depends(pool), size: int = 3) -> Iterator[str]:
        order.append("session")
        yield f"session of {pool}, {size}"
        order.append("session closed")

    @app.tool
    async def work(
        ctx: Context, first: str = Depends(pool), second: str = Depends(session)
    ) -> list[str]:
        order.append("work")
        return [ctx.method, first, second]

    for _ in range(2):
        order.clear()
        assert await call(app, "work") == ["tools/call", "pool", "session of pool, 3"]
        assert order == [
            "pool of tools/call",
            "session",
            "work",
            "session closed",
            "pool closed",
        ]


@pytest.mark.parametrize("version", ERAS)
async def test_a_dependency_may_ask(app: Server, version: str):
    log: list[str] = []

    async def connection() -> AsyncIterator[str]:
        log.append("open")
        yield "db"
        log.append("close")

    async def confirmed(ctx: Context, db: str = Depends(connection)) -> str:
        answer = await ctx.elicit("Who are you?", str)
        return f"{answer.data} at {db}"

    @app.tool
    async def work(name: str = Depends(confirmed)) -> str:
        log.append("work")
        return name

    answered = await call(app, "work", protocol=version, elicitation=lambda form: {"value": "Ann"})
    assert answered == "Ann at db"
    assert log.count("work") == 1
    assert log.count("open") == (2 if version == ERAS[1] else 1)  # a modern call runs again
    assert log[-2:] == ["work", "close"]


async def test_resources_and_prompts_have_them_too(app: Server):
    async def word() -> str:
        return "pearl"

    @app.resource("a://b")
    async def fixed(word: str = Depends(word)) -> str:
        return word

    @app.resource("a://c/{name}")
    def template(name: str, word: str = Depends(word)) -> str:
        return name + word

    @app.prompt
    def prompt(about: str, word: str = Depends(word)) -> str:
        return about + word

    async with Client(app) as client:
        assert (await client.read_resource("a://b")).contents[0].text == "pearl"
        assert (await client.read_resource("a://c/x")).contents[0].text == "xpearl"
        (listed,) = [prompt async for prompt in client.prompts()]
        assert [argument.name for argument in listed.arguments] == ["about"]
        result = await client.get_prompt("prompt", {"about": "a "})
        assert result.messages[0].content.text == "a pearl"


async def test_generators_have_them_too(app: Server):
    async def word() -> str:
        return "pearl"

    @app.tool
    async def stream(word: str = Depends(word)) -> AsyncIterator[str]:
        for letter in word:
            yield letter

    @app.tool
    def steps(word: str = Depends(word)) -> Iterator[str]:
        yield from word

    assert await call(app, "stream") == "pearl"
    assert await call(app, "steps") == "pearl"


# Mistakes


def test_a_parameter_that_nothing_fills_in_is_refused(app: Server):
    def lookup(name: str) -> str:
        return name

    with pytest.raises(SignatureError) as refused:
        app.tool(lambda found=Depends(lookup): found)
    assert str(refused.value).endswith(
        "dependency `lookup`: parameter `name` cannot be filled in; annotate it with `Context`, "
        "write `Depends(…)` as its default, or give it another default"
    )


def test_functions_that_depend_on_themselves_are_refused(app: Server):
    def first(second: Any = None) -> None: ...

    def second(first: Any = Depends(first)) -> None: ...

    first.__defaults__ = (Depends(second),)
    with pytest.raises(SignatureError, match="dependency `first` depends on itself"):
        app.tool(lambda value=Depends(first): value)


def test_a_value_is_not_a_dependency():
    with pytest.raises(TypeError, match="`Depends` takes a function"):
        Depends(3)
