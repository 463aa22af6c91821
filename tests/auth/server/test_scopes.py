"""Scopes: what a caller may not use is not listed, and refused when it is asked for."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from mcpearl import Client, Context, McpError, Server
from mcpearl.auth import JWTVerifier, Principal, ResourceServer, StaticTokens
from mcpearl.runtime.budget import Budget
from mcpearl.server.subscriptions import Subscriber, Subscriptions
from tests.auth.server.issuer import AUDIENCE, Issuer
from tests.auth.server.protected import as_bearer, bearer, challenge, make_app, structured
from tests.transports.raw_http import Raw, Session, message, modern, serving

ANYBODY = "anybody-0123456789"
READER = "reader-0123456789"
WRITER = "writer-0123456789"
TOKENS = {
    ANYBODY: Principal("anybody"),
    READER: Principal("reader", scopes=["notes:read"]),
    WRITER: Principal("writer", scopes=["notes:read", "notes:write"]),
}


@pytest.fixture
async def client() -> AsyncIterator[Raw]:
    auth = ResourceServer(StaticTokens(TOKENS), authorization_servers=["https://login.example"])
    async with serving(make_app(), auth=auth) as raw:
        yield raw


async def listed(client: Raw, method: str, member: str, key: str = "name") -> set[str]:
    headers, body = modern(method)
    answer = await client.post(body, headers)
    return {entry[key] for entry in answer.json["result"][member]}


async def test_lists_show_what_may_be_used(client: Raw) -> None:
    common = {"whoami", "reads", "ask"}
    for token, tools, resources, templates, prompts in (
        (ANYBODY, common, {"public"}, set(), {"hello"}),
        (READER, common, {"public", "secret"}, {"secrets"}, {"hello", "review"}),
        (WRITER, common | {"write"}, {"public", "secret"}, {"secrets"}, {"hello", "review"}),
    ):
        caller = as_bearer(client, token)
        assert await listed(caller, "tools/list", "tools") == tools
        assert await listed(caller, "resources/list", "resources") == resources
        found = await listed(caller, "resources/templates/list", "resourceTemplates")
        assert found == templates
        assert await listed(caller, "prompts/list", "prompts") == prompts


async def test_lists_that_differ_are_private(client: Raw) -> None:
    for method in ("tools/list", "resources/list", "resources/templates/list", "prompts/list"):
        headers, body = modern(method)
        result = (await as_bearer(client, WRITER).post(body, headers)).json["result"]
        assert (result["cacheScope"], result["ttlMs"]) == ("private", 1000)


async def test_lists_that_do_not_differ_may_be_shared() -> None:
    app = Server("plain", list_ttl_ms=1000)
    app.add_tool(lambda: "x", name="x")
    async with serving(app, auth=StaticTokens(TOKENS)) as client:
        headers, body = modern("tools/list")
        result = (await as_bearer(client, ANYBODY).post(body, headers)).json["result"]
        assert result["cacheScope"] == "public"


async def test_pages_are_full_of_what_may_be_seen() -> None:
    app = Server("many", page_size=5)
    for number in range(40):
        scopes = [] if number % 4 == 0 else ["notes:write"]
        app.add_tool(lambda: "x", name=f"tool{number}", scopes=scopes)
    async with serving(app, auth=StaticTokens(TOKENS)) as client:
        for token, sizes in ((ANYBODY, [5, 5]), (WRITER, [5] * 8)):
            cursor, pages, names = None, [], []
            while True:
                headers, body = modern("tools/list", {"cursor": cursor} if cursor else {})
                result = (await as_bearer(client, token).post(body, headers)).json["result"]
                pages.append(len(result["tools"]))
                names += [tool["name"] for tool in result["tools"]]
                cursor = result.get("nextCursor")
                if cursor is None:
                    break
            assert pages == sizes
            assert len(set(names)) == len(names)


CALLS: dict[str, tuple[str, dict[str, Any], str]] = {
    "a tool": ("tools/call", {"name": "write", "arguments": {}}, "notes:write"),
    "a resource": ("resources/read", {"uri": "notes://secret"}, "notes:read"),
    "a template": ("resources/read", {"uri": "notes://secret/diary"}, "notes:read"),
    "a prompt": ("prompts/get", {"name": "review", "arguments": {"name": "x"}}, "notes:read"),
}


@pytest.mark.parametrize("what", CALLS)
async def test_a_call_is_refused_with_what_it_needs(
    client: Raw, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    method, params, scope = CALLS[what]
    headers, body = modern(method, params)
    session = await client.initialize(**bearer(ANYBODY))  # type: ignore[arg-type]
    for answer in (
        await as_bearer(client, ANYBODY).post(body, headers),
        await session.ask(method, params),
    ):
        assert answer.status == 403
        scheme, said = challenge(answer)
        assert (scheme, said["error"], said["scope"]) == ("Bearer", "insufficient_scope", scope)
        assert said["resource_metadata"].endswith("/.well-known/oauth-protected-resource/mcp")
        assert scope in answer.json["error"]["message"]
    assert "too few scopes" in caplog.text
    assert "result" in (await as_bearer(client, WRITER).post(body, headers)).json


async def test_a_subscription_needs_what_reading_needs(client: Raw) -> None:
    session = await client.initialize(**bearer(ANYBODY))  # type: ignore[arg-type]
    refused = await session.ask("resources/subscribe", {"uri": "notes://secret"})
    assert refused.status == 403
    assert (await session.ask("resources/subscribe", {"uri": "notes://public"})).status == 200


async def test_listening_grants_what_may_be_read() -> None:
    app = make_app()
    uris = ["notes://public", "notes://secret", "notes://secret/diary"]
    async with serving(app, auth=StaticTokens(TOKENS)) as client:
        for token, expected in ((ANYBODY, uris[:1]), (READER, uris)):
            params = {"notifications": {"resourceSubscriptions": uris}}
            headers, body = modern("subscriptions/listen", params)
            answer = await as_bearer(client, token).post(body, headers)
            acknowledged = await answer.next()
            granted = acknowledged["params"]["notifications"]["resourceSubscriptions"]
            assert granted == expected
            answer.close()


async def test_a_batch_is_no_way_around(client: Raw) -> None:
    """The door sees no method in a batch; the server itself refuses."""
    session = await client.initialize("2025-03-26", **bearer(ANYBODY))  # type: ignore[arg-type]
    batch = [message(method, params, id) for id, (method, params, _) in enumerate(CALLS.values())]
    answer = await session.post(json.dumps(batch).encode())
    errors = [each["error"] for each in answer.json]
    assert [error["code"] for error in errors] == [-32602] * 4
    assert [error["data"]["requiredScopes"] for error in errors] == [
        [scope] for _, _, scope in CALLS.values()
    ]


async def test_a_tool_does_not_read_for_who_may_not(client: Raw) -> None:
    refused = await as_bearer(client, ANYBODY).call("reads", {"uri": "notes://secret"})
    assert refused.json["error"]["data"]["requiredScopes"] == ["notes:read"]
    answer = await as_bearer(client, READER).call("reads", {"uri": "notes://secret"})
    assert structured(answer) == {"result": "for few"}


async def test_completion_does_not_tell(client: Raw) -> None:
    params = {
        "ref": {"type": "ref/prompt", "name": "review"},
        "argument": {"name": "name", "value": ""},
    }
    headers, body = modern("completion/complete", params)
    refused = await as_bearer(client, ANYBODY).post(body, headers)
    assert refused.json["error"]["data"]["requiredScopes"] == ["notes:read"]
    answer = await as_bearer(client, READER).post(body, headers)
    assert answer.json["result"]["completion"]["values"] == ["secret"]


async def test_what_is_not_there_is_not_there(client: Raw) -> None:
    caller = as_bearer(client, ANYBODY)
    assert (await caller.call("nothing")).json["error"]["code"] == -32602
    for params in ({}, {"name": 5}, {"name": None}, {"name": ["write"]}, {"uri": "notes://secret"}):
        headers, body = modern("tools/call", params)
        headers["Mcp-Name"] = "write"
        answer = await caller.post(body, headers)
        assert "written" not in answer.body.decode()


async def test_all_scopes_are_named_at_once() -> None:
    app = Server("both")
    app.add_tool(lambda: "x", name="x", scopes=["b", "a"])
    auth = ResourceServer(
        StaticTokens({ANYBODY: Principal("x", scopes=["mcp", "a"])}), scopes=["mcp"]
    )
    async with serving(app, auth=auth) as client:
        assert challenge(await as_bearer(client, ANYBODY).call("x"))[1]["scope"] == "a b mcp"


async def test_a_broader_scope_is_enough() -> None:
    auth = ResourceServer(
        StaticTokens({WRITER: Principal("x", scopes=["notes"])}),
        implies={"notes": ["notes:read", "notes:write"]},
    )
    async with serving(make_app(), auth=auth) as client:
        assert structured(await as_bearer(client, WRITER).call("write")) == {"result": "written"}


# A session and its tokens


async def stepped(issuer: Issuer, session: Session, scope: str) -> None:
    session.headers["Authorization"] = f"Bearer {issuer.token(scope=scope)}"


async def test_a_session_has_the_scopes_of_the_token_at_hand(issuer: Issuer) -> None:
    """More after a step-up, fewer after the next refresh, and never those of another call."""
    verifier = JWTVerifier(issuer=issuer.url, audience=AUDIENCE, jwks_url=issuer.jwks_url)
    async with serving(make_app(), auth=verifier) as client:
        session = await client.initialize(**bearer(issuer.token()))  # type: ignore[arg-type]
        assert (await session.use("write")).status == 403
        await stepped(issuer, session, "notes:write")
        assert structured(await session.use("write")) == {"result": "written"}
        tools = (await session.ask("tools/list")).json["result"]["tools"]
        assert "write" in {tool["name"] for tool in tools}
        await stepped(issuer, session, "notes:read")
        assert (await session.use("write")).status == 403
        assert structured(await session.use("whoami"))["scopes"] == ["notes:read"]

        async def seen(scope: str) -> list[str]:
            other = Session(client.port)
            other.headers = {**session.headers, **bearer(issuer.token(scope=scope))}
            found: list[str] = structured(await other.use("whoami", id=scope))["scopes"]
            return found

        scopes = [f"scope{number}" for number in range(20)]
        assert await asyncio.gather(*map(seen, scopes)) == [[scope] for scope in scopes]


async def test_a_call_in_flight_stays_with_the_token_that_made_it(issuer: Issuer) -> None:
    verifier = JWTVerifier(issuer=issuer.url, audience=AUDIENCE, jwks_url=issuer.jwks_url)
    app = make_app(auth=verifier)
    reached, go_on = asyncio.Event(), asyncio.Event()

    @app.tool
    async def slow(ctx: Context) -> list[str]:
        reached.set()
        await go_on.wait()
        assert ctx.principal is not None
        return sorted(ctx.principal.scopes)

    async with serving(app) as client:
        session = await client.initialize(**bearer(issuer.token(scope="few")))  # type: ignore[arg-type]
        waiting = asyncio.create_task(session.use("slow", id="slow"))
        await asyncio.wait_for(reached.wait(), 30)
        other = Session(client.port)
        other.headers = {**session.headers, **bearer(issuer.token(scope="notes:write many"))}
        assert structured(await other.use("write", id="write")) == {"result": "written"}
        go_on.set()
        assert structured(await waiting) == {"result": ["few"]}


# Where there is no gate


async def test_in_memory_everything_may_be_used() -> None:
    """The user who starts the process is its only caller."""
    async with Client(make_app()) as client:
        assert "write" in {tool.name async for tool in client.tools()}
        result = await client.call_tool("write")
        assert result.structured_content == {"result": "written"}
        assert (await client.call_tool("whoami")).structured_content == {"subject": None}


async def test_http_without_auth_does_not_give_away_what_needs_scopes() -> None:
    async with serving(make_app()) as client:
        assert "write" not in await listed(client, "tools/list", "tools")
        refused = await client.call("write")
        assert refused.json["error"]["data"]["requiredScopes"] == ["notes:write"]
        assert structured(await client.call("whoami")) == {"subject": None}
        session = await client.initialize()
        assert "error" in (await session.use("write")).json


async def test_a_client_is_told_what_is_missing() -> None:
    from mcpearl.transports.memory import memory_pair

    app = make_app()
    async with app.running():
        near, far = memory_pair()
        await app.connect(far, Principal("x"))
        async with Client(near) as client:
            with pytest.raises(McpError, match="`write` needs the scopes: notes:write"):
                await client.call_tool("write")


# Mistakes of the author of the server


def test_scopes_that_are_none() -> None:
    app = Server("x")
    with pytest.raises(TypeError, match="`scopes` must be a list"):
        app.add_tool(lambda: "x", name="x", scopes="admin")
    for wrong in ("", "a b", 'a"', "a\\", "é"):
        with pytest.raises(ValueError, match="is not a scope"):
            app.add_tool(lambda: "x", name="x", scopes=[wrong])
    with pytest.raises(ValueError, match="cannot be cached for all callers"):
        app.add_resource("a://b", lambda: "x", name="x", cache_scope="public", scopes=["a"])


# Spelling: equivalent URIs are one resource, whatever entry the other spelling would fit.


def vault() -> Server:
    app = Server("vault")
    app.add_resource("note://master", lambda: "scoped", name="master", scopes=["notes:read"])
    app.add_resource("note://caf%C3%A9", lambda: "scoped", name="cafe", scopes=["notes:read"])
    app.add_resource("note://{name}", lambda name: f"open {name}", name="note")
    app.add_resource(
        "file://private/{+path}", lambda path: "scoped", scopes=["notes:read"], name="p"
    )
    app.add_resource("file://{+path}", lambda path: f"open {path}", name="file")
    return app


SPELLINGS = [
    "note://master",
    "note://m%61ster",
    "note://%6Daster",
    "note://%6d%61%73%74%65%72",
    "note://caf%C3%A9",
    "note://caf%c3%a9",
    "note://café",
    "file://private/x",
    "file://priv%61te/x",
    "file://private%2Fx",
    "file://private%2fx",
    "file://priv%2561te/x",
]


@pytest.mark.parametrize("uri", SPELLINGS)
async def test_no_spelling_of_a_uri_gets_around_its_scopes(uri: str) -> None:
    auth = ResourceServer(StaticTokens(TOKENS), authorization_servers=["https://login.example"])
    async with serving(vault(), auth=auth) as raw:
        headers, body = modern("resources/read", {"uri": uri})
        refused = await as_bearer(raw, ANYBODY).post(body, headers)
        assert refused.status == 403 or refused.json["error"]["code"] in (-32002, -32602)
        session = await raw.initialize(**bearer(ANYBODY))  # type: ignore[arg-type]
        answer = await session.ask("resources/subscribe", {"uri": uri})
        assert answer.status == 403 or "error" in answer.json
        headers, body = modern("resources/read", {"uri": "note://other"})
        assert "open other" in (await as_bearer(raw, ANYBODY).post(body, headers)).body.decode()


def test_what_is_no_longer_allowed_is_no_longer_followed() -> None:
    subscriptions = Subscriptions()
    subscriber = Subscriber(None, Budget().account())  # type: ignore[arg-type]
    for uri in ("note://m%61ster", "note://other"):
        subscriptions.subscribe(subscriber, uri)
    app = vault()
    allowed = lambda uri: not app.core.dispatcher.scopes_of("resources/subscribe", uri)  # noqa: E731
    assert subscriptions.keep_allowed(subscriber, allowed) == ["note://master"]
    assert set(subscriber.uris) == {"note://other"}
    assert subscriptions.resource_updated("note://master") == 0
