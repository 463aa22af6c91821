"""Extensions written outside of the package: announced, answered, required of the client."""

from typing import Any

import pytest

from mcpearl import Context, Server, ServerExtension
from mcpearl.protocol.events import EncodedToolResult
from mcpearl.server.extensions import method, notification
from mcpearl.types import CallToolResult, RequestParams, Result
from mcpearl.types.base import NotificationParams
from tests.server.wire import EVERYTHING, LEGACY, MODERN, text_of, wire

AUDIT = "com.example/audit"


class ReadParams(RequestParams, kw_only=True):
    since: int = 0


class Seen(NotificationParams, kw_only=True):
    entry: int


class Audit(ServerExtension):
    """Writes down which tools were called; clients that declare it can read that."""

    identifier = AUDIT

    def __init__(self) -> None:
        self.entries: list[str] = []
        self.seen: list[int] = []

    def settings(self) -> dict[str, Any]:
        return {"format": "names"}

    @method("audit/read", ReadParams)
    async def read(self, params: ReadParams, ctx: Context) -> Result:
        return Result(extra={"entries": self.entries[params.since :]})

    @method("audit/count", undeclared=True)
    async def count(self, params: RequestParams, ctx: Context) -> Result:
        return Result(extra={"count": len(self.entries)})

    @notification("notifications/audit/seen", Seen)
    def note(self, params: Seen, caller: Any) -> None:
        self.seen.append(params.entry)

    async def call_tool(self, ctx: Context, call_next: Any) -> Any:
        if ctx.params.name == "secret":
            self.require(ctx)
        self.entries.append(ctx.params.name)
        result = await call_next()
        if self.has(ctx) and isinstance(result, CallToolResult):
            result.meta = {f"{AUDIT}-entry": len(self.entries)}
        return result


def audited(audit: Audit, *more: ServerExtension) -> Server:
    app = Server("audited", extensions=[audit, *more])

    @app.tool
    def greet(name: str) -> str:
        return f"hello {name}"

    @app.tool
    def secret() -> str:
        return "42"

    return app


WITH = {**EVERYTHING, "extensions": {AUDIT: {}}}


async def test_an_extension_is_announced_in_both_eras() -> None:
    app = audited(Audit())
    async with wire(app) as client:
        found = await client.ask("server/discover")
        assert found["result"]["capabilities"]["extensions"] == {AUDIT: {"format": "names"}}
    async with app.running(), wire(app, LEGACY, WITH) as client:
        again = await client.ask("audit/count")
        assert again["result"] == {"count": 0}


async def test_a_legacy_client_that_names_it_hears_of_it() -> None:
    async with wire(audited(Audit()), "2025-06-18", {}) as client:
        pass
    for extensions, expected in (({AUDIT: {}}, {AUDIT: {"format": "names"}}), (None, None)):
        app = audited(Audit())
        async with wire(app) as client:
            params = {
                "protocolVersion": LEGACY,
                "capabilities": {"extensions": extensions} if extensions else {},
                "clientInfo": {"name": "c", "version": "1"},
            }
            client.version = LEGACY
            answer = await client.ask("initialize", params)
            assert answer["result"]["capabilities"].get("extensions") == expected


@pytest.mark.parametrize("version", [LEGACY, MODERN])
async def test_its_methods_are_answered(version: str) -> None:
    audit = Audit()
    async with wire(audited(audit), version, WITH) as client:
        answer = await client.call("greet", {"name": "ann"})
        assert text_of(answer) == "hello ann"
        assert answer["result"]["_meta"][f"{AUDIT}-entry"] == 1
        read = await client.ask("audit/read", {"since": 0})
        assert read["result"]["entries"] == ["greet"]
        assert (await client.ask("audit/read", {"since": "x"}))["error"]["code"] == -32602
        client.notify("notifications/audit/seen", {"entry": 1})
        client.notify("notifications/audit/seen", {"entry": "not a number"})
        await client.silence()
        assert audit.seen == [1]


async def test_a_client_that_does_not_declare_it_is_told_what_is_missing() -> None:
    async with wire(audited(Audit())) as client:
        for refused in (await client.ask("audit/read"), await client.call("secret")):
            assert refused["error"]["code"] == -32021
            required = refused["error"]["data"]["requiredCapabilities"]
            assert required == {"extensions": {AUDIT: {}}}
        assert (await client.ask("audit/count"))["result"]["count"] == 0
        assert "_meta" not in str((await client.call("greet", {"name": "x"}))["result"]["content"])


async def test_a_session_that_does_not_declare_it_is_refused_too() -> None:
    async with wire(audited(Audit()), LEGACY) as client:
        refused = await client.ask("audit/read")
        assert AUDIT in refused["error"]["message"]


def test_what_is_not_an_extension_is_refused() -> None:
    class Nameless(ServerExtension):
        identifier = "nameless"

    class Thief(ServerExtension):
        identifier = "com.example/thief"

        @method("prompts/list")
        async def lists(self, params: RequestParams, ctx: Context) -> Result:
            return Result()

    with pytest.raises(ValueError, match="not an extension identifier"):
        Server("x", extensions=[Nameless()])
    with pytest.raises(ValueError, match="two extensions"):
        Server("x", extensions=[Audit(), Audit()])
    with pytest.raises(ValueError, match="`prompts/list` is a method of the specification"):
        Server("x", extensions=[Thief()])


class Looking(ServerExtension):
    """Notes what the results of tools are."""

    identifier = "com.example/looking"

    def __init__(self) -> None:
        self.seen: list[type] = []

    async def call_tool(self, ctx: Context, call_next: Any) -> Any:
        result = await call_next()
        self.seen.append(type(result))
        return result


class Passing(Looking):
    """Says that it does not look at them."""

    identifier = "com.example/passing"
    passes_results = True


@pytest.mark.parametrize(
    ("extensions", "seen"),
    [
        ([Looking()], [CallToolResult]),
        ([Passing()], [EncodedToolResult]),
        ([Passing(), Looking()], [CallToolResult, CallToolResult]),
    ],
)
async def test_results_are_encoded_unless_an_extension_looks_at_them(
    extensions: list[Looking], seen: list[type]
) -> None:
    app = Server("looked at", extensions=extensions)

    @app.tool
    async def double(number: int) -> int:
        return 2 * number

    @app.tool(task=True)
    async def triple(number: int) -> int:
        return 3 * number

    async with wire(app) as client:
        answer = await client.call("double", {"number": 21})
        assert answer["result"]["structuredContent"] == {"result": 42}
        assert text_of(answer) == "42"
    assert [kind for each in extensions for kind in each.seen] == seen
