"""The seam behind a server: whatever answers calls, and what it is asked."""

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec import Struct

from mcpearl import Context, McpError, Server
from mcpearl.protocol.events import Call, Caller, Encoded, Notice
from mcpearl.protocol.routes import Route
from mcpearl.server.dispatch import HandlerDispatcher, compile_chain
from mcpearl.server.handler import Handler
from mcpearl.types import CallToolResult, RequestParams, Result, TextContent
from mcpearl.types.base import NotificationParams
from mcpearl.types.capabilities import ServerCapabilities
from mcpearl.types.methods import Method
from tests.server.wire import ERAS, LEGACY, wire


class EchoParams(RequestParams):
    text: str


def method(name: str, params: type[Struct], kind: str = "request") -> Method:
    result = Result if kind == "request" else None
    return Method(name=name, sender="client", params=params, result=result)


class Echo(HandlerDispatcher):
    """Answers every call with the params as they came, and has a method of its own."""

    def __init__(self) -> None:
        super().__init__(Handler())
        self.capabilities = lambda: ServerCapabilities(tools={}, experimental={"x": {}})
        self.notified = lambda notice, caller: self.notices_seen.append((notice, caller))
        self.notices_seen: list[tuple[Notice, Caller | None]] = []

    def routes(self) -> Mapping[str, Route]:
        return {"x/echo": Route(method("x/echo", EchoParams))}

    def notices(self) -> Mapping[str, Route]:
        return {"notifications/x": Route(method("notifications/x", NotificationParams, "notice"))}

    async def dispatch(self, call: Call, ctx: Context) -> Encoded:
        return Encoded(
            b'{"content":[],"structuredContent":{"method":"%b","params":%b}}'
            % (call.method.encode(), bytes(call.raw))
        )


@pytest.mark.parametrize("version", ERAS)
async def test_a_dispatcher_sees_raw_params_and_answers_with_bytes(version: str) -> None:
    async with wire(Server("echo", handler=Echo()), version) as client:
        answer = await client.call("anything", {"deep": [1, {"a": None}]})
        seen = answer["result"]["structuredContent"]
        assert seen["method"] == "tools/call"
        assert seen["params"]["arguments"] == {"deep": [1, {"a": None}]}
        assert ("resultType" in answer["result"]) is (version == ERAS[1])


@pytest.mark.parametrize("version", ERAS)
async def test_methods_beyond_the_specification_are_admitted_like_others(version: str) -> None:
    async with wire(Server("echo", handler=Echo()), version) as client:
        answer = await client.ask("x/echo", {"text": "hi", "more": 1})
        assert answer["result"]["structuredContent"]["params"]["more"] == 1
        assert (await client.ask("x/echo", {}))["error"]["code"] == -32602
        assert (await client.ask("x/other", {}))["error"]["code"] == -32601


async def test_notifications_beyond_the_specification_reach_the_dispatcher() -> None:
    echo = Echo()
    async with wire(Server("echo", handler=echo), LEGACY) as client:
        client.raw({"jsonrpc": "2.0", "method": "notifications/x"})
        client.raw({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"})
        client.raw({"jsonrpc": "2.0", "method": "notifications/unknown"})
        await client.ask("ping")
    assert [notice.method for notice, _ in echo.notices_seen] == [
        "notifications/x",
        "notifications/roots/list_changed",
    ]
    assert all(caller is not None and caller.client is not None for _, caller in echo.notices_seen)


def test_a_method_of_the_specification_cannot_be_replaced() -> None:
    class Greedy(Echo):
        def routes(self) -> Mapping[str, Route]:
            return {"tools/call": Route(method("tools/call", EchoParams))}

    with pytest.raises(ValueError, match="`tools/call` is a method of the specification"):
        Server("greedy", handler=Greedy())


@pytest.mark.parametrize("version", ERAS)
async def test_an_encoded_result_may_be_complete_already(version: str) -> None:
    class Whole(Echo):
        async def dispatch(self, call: Call, ctx: Context) -> Encoded:
            return Encoded(b'{"content":[],"resultType":"complete"}', complete=True)

    async with wire(Server("whole", handler=Whole()), version) as client:
        answer = await client.call("x")
        assert answer["result"] == {"content": [], "resultType": "complete"}


async def test_the_chain_is_compiled_when_middleware_is_added() -> None:
    app = Server("layers", telemetry=False)

    @app.tool
    async def work() -> str:
        return "done"

    plain = app.core.dispatch
    assert plain == app.core.dispatcher.dispatch, "nothing stands between without middleware"
    seen: list[str] = []

    @app.middleware
    async def note(ctx: Context, call_next: Any) -> Any:
        seen.append(ctx.method)
        return await call_next()

    assert app.core.dispatch != plain
    async with wire(app) as client:
        await client.call("work")
    assert seen == ["tools/call"]


async def test_middleware_may_call_twice_and_answer_itself() -> None:
    async def twice(ctx: Context, call_next: Any) -> Any:
        await call_next()
        return await call_next()

    calls: list[str] = []

    async def answer(call: Call, ctx: Context) -> Result:
        calls.append("x")
        return CallToolResult(content=[TextContent(text=str(len(calls)))])

    result = await compile_chain([twice], answer)(None, None)  # type: ignore[arg-type]
    assert isinstance(result, CallToolResult)
    assert len(calls) == 2


class Guarded(Handler):
    async def call_tool(self, params: Any, ctx: Context) -> Result:
        return CallToolResult(content=[])

    def scopes_of(self, method: str, name: str) -> frozenset[str]:
        return frozenset({"secret"}) if name == "vault" else frozenset()


def test_scopes_are_asked_of_the_dispatcher() -> None:
    dispatcher = Server("guarded", handler=Guarded()).core.dispatcher
    assert dispatcher.scoped
    assert dispatcher.scopes_of("tools/call", "vault") == {"secret"}
    assert not Server("open", handler=Handler()).core.dispatcher.scoped


async def test_listeners_hear_what_clients_notify() -> None:
    app = Server("listening")
    heard: list[str] = []

    @app.on_notification
    def note(notice: Notice, caller: Caller | None) -> None:
        heard.append(notice.method)

    async with wire(app, LEGACY) as client:
        client.raw({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"})
        await client.ask("ping")
    assert heard == ["notifications/roots/list_changed"]


async def test_a_dispatcher_that_raises_fails_the_call() -> None:
    class Failing(Echo):
        async def dispatch(self, call: Call, ctx: Context) -> Encoded:
            raise McpError(-32099, "out of order", {"since": "today"})

    async with wire(Server("failing", handler=Failing())) as client:
        answer = await client.call("x")
        assert answer["error"] == {
            "code": -32099,
            "message": "out of order",
            "data": {"since": "today"},
        }
