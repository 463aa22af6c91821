"""The modern era: each request carries its caller, each result its type."""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from mcpearl.protocol.codec import splice
from mcpearl.protocol.events import Call, Cancel, Reply
from mcpearl.protocol.modern import CallerReader, Presentation, Stamp, subscription_meta
from mcpearl.protocol.versions import SUPPORTED, VERSIONS
from mcpearl.types import (
    CallToolResult,
    ClientCapabilities,
    CompleteResult,
    Completion,
    DiscoverResult,
    GetPromptResult,
    Implementation,
    InputRequiredResult,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    ReadResourceResult,
    Result,
    ServerCapabilities,
    SubscriptionsListenResult,
)
from mcpearl.types.base import (
    CLIENT_CAPABILITIES_KEY,
    CLIENT_INFO_KEY,
    LOG_LEVEL_KEY,
    PROTOCOL_VERSION_KEY,
    SERVER_INFO_KEY,
    SUBSCRIPTION_ID_KEY,
)
from mcpearl.types.methods import REQUESTS

from .ends import (
    META,
    RESULT,
    SERVER,
    a_server,
    a_session,
    call_tool,
    error_of,
    initialize,
    modern,
    notification,
    request,
    said,
)

MODERN = VERSIONS["2026-07-28"]
WHO = {SERVER_INFO_KEY: {"name": "weather", "version": "1.0"}}


def admitted(event: Any) -> Call:
    assert isinstance(event, Call), event
    return event


# Who is asking


def test_a_request_says_who_is_asking() -> None:
    caps = {"sampling": {}, "elicitation": {"url": {}}}
    message = modern(1, "tools/list", **{CLIENT_CAPABILITIES_KEY: caps, LOG_LEVEL_KEY: "warning"})
    caller = admitted(a_server(principal="alice").receive(message)).caller
    assert caller.version is MODERN
    assert caller.client == Implementation(name="host", version="2.0")
    assert caller.capabilities.sampling is not None
    assert caller.log_level == "warning"
    assert caller.principal == "alice"


def test_client_info_and_log_level_are_optional() -> None:
    caller = admitted(a_server().receive(modern(1, "tools/list", **{CLIENT_INFO_KEY: None}))).caller
    assert caller.client is None
    assert caller.log_level is None


@pytest.mark.parametrize("key", [PROTOCOL_VERSION_KEY, CLIENT_CAPABILITIES_KEY])
@pytest.mark.parametrize("method", ["tools/list", "server/discover"])
def test_a_missing_member_is_named(method: str, key: str) -> None:
    for end in (a_server(), a_session()):
        error = error_of(end.receive(modern(1, method, **{key: None})), 1)
        assert error["code"] == -32602
        assert f"`{key}`" in error["message"]
        assert not end.in_flight


@pytest.mark.parametrize("key", [CLIENT_CAPABILITIES_KEY, CLIENT_INFO_KEY])
def test_one_modern_member_is_enough_to_be_modern(key: str) -> None:
    for end in (a_server(), a_session()):
        error = error_of(end.receive(request(1, "tools/list", {"_meta": {key: {}}})), 1)
        assert error["code"] == -32602
        assert error["data"] == {"key": PROTOCOL_VERSION_KEY}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (PROTOCOL_VERSION_KEY, 20260728),
        (PROTOCOL_VERSION_KEY, ["2026-07-28"]),
        (PROTOCOL_VERSION_KEY, {}),
        (CLIENT_CAPABILITIES_KEY, []),
        (CLIENT_CAPABILITIES_KEY, "all"),
        (CLIENT_CAPABILITIES_KEY, True),
        (CLIENT_CAPABILITIES_KEY, {"roots": True}),
        (CLIENT_CAPABILITIES_KEY, {"sampling": []}),
        (CLIENT_INFO_KEY, "host"),
        (CLIENT_INFO_KEY, {"name": "host"}),
        (CLIENT_INFO_KEY, {"name": "host", "version": 2}),
        (LOG_LEVEL_KEY, "loud"),
        (LOG_LEVEL_KEY, "INFO"),
        (LOG_LEVEL_KEY, 3),
        (LOG_LEVEL_KEY, "x" * 100_000),
    ],
)
def test_a_member_of_the_wrong_type_is_named(key: str, value: object) -> None:
    end = a_server()
    error = error_of(end.receive(modern(1, "tools/list", **{key: value})), 1)
    assert error["code"] == -32602
    assert f"`{key}`" in error["message"]
    assert error["data"] == {"key": key}
    assert len(error["message"]) < 500
    admitted(end.receive(modern(2, "tools/list")))


@pytest.mark.parametrize("version", ["1900-01-01", "2025-11-25", "2024-11-05", "", "2026-07-29"])
def test_an_unsupported_version_is_told_the_supported(version: str) -> None:
    end = a_server()
    error = error_of(end.receive(modern(1, "tools/list", **{PROTOCOL_VERSION_KEY: version})), 1)
    assert error["code"] == -32022
    assert error["data"] == {"supported": list(SUPPORTED), "requested": version}
    admitted(end.receive(modern(2, "tools/list")))


def test_a_server_without_the_modern_version_says_so() -> None:
    end = a_server(versions=("2025-11-25", "2025-06-18"))
    error = error_of(end.receive(modern(1, "server/discover")), 1)
    assert error["code"] == -32022
    assert error["data"]["supported"] == ["2025-11-25", "2025-06-18"]


def test_a_modern_only_server_asks_for_meta_not_for_initialize() -> None:
    end = a_server(versions=("2026-07-28",))
    error = error_of(end.receive(request(1, "tools/list")), 1)
    assert error["code"] == -32602
    assert PROTOCOL_VERSION_KEY in error["message"]
    admitted(end.receive(modern(2, "tools/list")))


def test_the_same_presentation_is_read_once_and_another_is_read_anew() -> None:
    reception = CallerReader(SUPPORTED)
    first = reception.caller(META)
    assert reception.caller(dict(META)) is first
    louder = reception.caller(META | {LOG_LEVEL_KEY: "debug"})
    assert louder is not first
    assert louder.log_level == "debug"
    assert reception.caller(META).log_level is None


def test_a_handler_that_changes_its_meta_does_not_change_who_calls_next() -> None:
    reception = CallerReader(SUPPORTED)
    given = dict(META)
    reception.caller(given)
    given[LOG_LEVEL_KEY] = "debug"
    assert reception.caller(META | {LOG_LEVEL_KEY: "debug"}).log_level == "debug"


def test_a_bad_presentation_does_not_spoil_the_next() -> None:
    end = a_server()
    admitted(end.receive(modern(1, "tools/list")))
    for id in (2, 3):
        bad = modern(id, "tools/list", **{CLIENT_CAPABILITIES_KEY: {"roots": 1}})
        assert error_of(end.receive(bad), id)["code"] == -32602
    assert admitted(end.receive(modern(4, "tools/list"))).caller.capabilities == (
        ClientCapabilities()
    )


@pytest.mark.parametrize("method", ["server/discover", "subscriptions/listen"])
def test_a_modern_method_without_meta_is_told_what_it_lacks(method: str) -> None:
    for end in (a_server(), a_session()):
        for meta in ({}, {"_meta": {}}, {"_meta": {"progressToken": 1}}):
            error = error_of(end.receive(request(1, method, {"notifications": {}} | meta)), 1)
            assert error["code"] == -32602
            assert PROTOCOL_VERSION_KEY in error["message"]
            assert CLIENT_CAPABILITIES_KEY in error["message"]


# Which methods there are


GONE = [name for name, method in REQUESTS.items() if method.until and method.sender != "server"]
PARAMS: dict[str, dict[str, Any]] = {
    "initialize": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "a", "version": "b"},
    },
    "resources/subscribe": {"uri": "a:b"},
    "resources/unsubscribe": {"uri": "a:b"},
    "logging/setLevel": {"level": "info"},
    "tasks/result": {"taskId": "1"},
}


@pytest.mark.parametrize("method", GONE)
def test_a_method_of_the_legacy_era_is_not_found_in_the_modern(method: str) -> None:
    end = a_session()
    error = error_of(end.receive(modern(1, method, PARAMS.get(method))), 1)
    assert error["code"] == -32601
    assert "2026-07-28" in error["message"]
    assert error["data"] == {"method": method}


def test_a_method_of_the_modern_era_is_not_found_in_the_legacy() -> None:
    params = {"taskId": "1", "inputResponses": {}}
    error = error_of(a_session().receive(request(1, "tasks/update", params)), 1)
    assert error["code"] == -32601


def test_a_method_newer_than_the_session_is_not_found() -> None:
    for version in ("2024-11-05", "2025-03-26", "2025-06-18"):
        error = error_of(a_session(version).receive(request(1, "tasks/get", {"taskId": "1"})), 1)
        assert error["code"] == -32601
        assert version in error["message"]


@pytest.mark.parametrize("method", ["sampling/createMessage", "roots/list", "elicitation/create"])
def test_what_servers_ask_is_nothing_to_ask_a_server(method: str) -> None:
    for message in (request(1, method), modern(1, method)):
        assert error_of(a_session().receive(message), 1)["code"] == -32601


# Discover


def test_discover() -> None:
    end = a_server()
    answer = said(end.receive(modern("d", "server/discover")))
    assert answer == {
        "jsonrpc": "2.0",
        "id": "d",
        "result": {
            "resultType": "complete",
            "supportedVersions": list(SUPPORTED),
            "capabilities": {
                "logging": {},
                "completions": {},
                "prompts": {"listChanged": True},
                "resources": {"subscribe": True, "listChanged": True},
                "tools": {"listChanged": True},
            },
            "instructions": "Forecasts by city.",
            "ttlMs": 0,
            "cacheScope": "private",
            "_meta": WHO,
        },
    }
    assert not end.in_flight


# Results


CACHEABLE: list[Any] = [
    ListToolsResult(tools=[]),
    ListPromptsResult(prompts=[]),
    ListResourcesResult(resources=[]),
    ListResourceTemplatesResult(resource_templates=[]),
    ReadResourceResult(contents=[]),
    DiscoverResult(supported_versions=[], capabilities=ServerCapabilities()),
]
OTHERS: list[Any] = [
    Result(),
    CallToolResult(content=[]),
    GetPromptResult(messages=[]),
    CompleteResult(completion=Completion(values=[])),
    SubscriptionsListenResult(),
    InputRequiredResult(request_state="s"),
]


def stamped(result: Result) -> dict[str, Any]:
    encoded = splice(*Stamp(SERVER).encode(result, MODERN))
    pairs = json.loads(encoded, object_pairs_hook=list)
    names = [name for name, _ in pairs]
    assert len(names) == len(set(names)), "a member is there twice"
    return json.loads(encoded)


def named(results: list[Any]) -> Any:
    return pytest.mark.parametrize("result", results, ids=lambda r: type(r).__name__)


@named(CACHEABLE + OTHERS)
def test_every_result_says_what_it_is_and_who_made_it(result: Any) -> None:
    for meta in (None, {}, {"com.example/trace": 1}):
        sent = stamped(replace(result, meta=meta))
        asks = isinstance(result, InputRequiredResult)
        assert sent["resultType"] == ("input_required" if asks else "complete")
        assert sent["_meta"] == WHO | (meta or {})


@named(CACHEABLE)
def test_every_cacheable_result_says_how_long_it_keeps(result: Any) -> None:
    for meta in (None, {"a": 1}):
        for ttl, scope, sent in [
            (None, None, (0, "private")),
            (None, "public", (0, "public")),
            (5000, None, (5000, "private")),
            (5000, "public", (5000, "public")),
            (0, "private", (0, "private")),
            (-1, "public", (0, "public")),
        ]:
            whole = stamped(replace(result, meta=meta, ttl_ms=ttl, cache_scope=scope))
            assert (whole["ttlMs"], whole["cacheScope"]) == sent


@named(OTHERS)
def test_no_other_result_does(result: Any) -> None:
    for meta in (None, {"a": 1}):
        assert not {"ttlMs", "cacheScope"} & set(stamped(replace(result, meta=meta)))


def test_stamping_leaves_the_handlers_result_alone() -> None:
    result = ListToolsResult(tools=[], meta={"a": 1})
    stamped(result)
    assert result == ListToolsResult(tools=[], meta={"a": 1})


def test_members_of_its_own_stay_in_a_result() -> None:
    sent = stamped(Result(extra={"com.example/more": [1], "resultType": "x", "_meta": 1}))
    assert sent == {"resultType": "complete", "_meta": WHO, "com.example/more": [1]}


def test_a_result_may_name_its_own_type() -> None:
    assert stamped(Result(result_type="task"))["resultType"] == "task"


def test_a_handler_may_speak_for_another_server() -> None:
    behind = {"name": "behind", "version": "9"}
    assert stamped(Result(meta={SERVER_INFO_KEY: behind}))["_meta"] == {SERVER_INFO_KEY: behind}


def test_a_legacy_result_has_none_of_this() -> None:
    end = a_session()
    call = admitted(end.receive(request(1, "tools/list")))
    sent = end.result(call, ListToolsResult(tools=[], ttl_ms=5000, cache_scope="public"))
    assert sent is not None
    assert json.loads(sent)["result"] == {"tools": []}


# Beside a legacy session


def test_both_eras_live_on_one_stream() -> None:
    end = a_session("2025-06-18")
    old = admitted(end.receive(call_tool(1)))
    new = admitted(end.receive(modern("1", "tools/call", {"name": "forecast"})))
    assert (old.caller.version.name, new.caller.version.name) == ("2025-06-18", "2026-07-28")
    sent_new, sent_old = end.result(new, RESULT), end.result(old, RESULT)
    assert sent_new is not None
    assert sent_old is not None
    assert json.loads(sent_new)["result"]["resultType"] == "complete"
    assert "resultType" not in json.loads(sent_old)["result"]
    assert end.caller is old.caller


def test_the_log_level_of_a_request_is_its_own() -> None:
    end = a_session()
    assert said(end.receive(request(1, "logging/setLevel", {"level": "error"})))["result"] == {}
    loud = modern(2, "tools/list", **{LOG_LEVEL_KEY: "debug"})
    assert admitted(end.receive(loud)).caller.log_level == "debug"
    assert admitted(end.receive(request(3, "tools/list"))).caller.log_level == "error"
    assert admitted(end.receive(modern(4, "tools/list"))).caller.log_level is None


def test_a_modern_request_can_be_cancelled_without_a_session() -> None:
    end = a_server()
    call = admitted(end.receive(modern(7, "subscriptions/listen", {"notifications": {}})))
    event = end.receive(notification("notifications/cancelled", {"requestId": 7}))
    assert isinstance(event, Cancel)
    assert event.call is call
    assert end.result(call, Result()) is None


def test_initialize_is_still_possible_after_modern_requests() -> None:
    end = a_server()
    admitted(end.receive(modern(1, "tools/list")))
    assert said(end.receive(initialize(id=2)))["result"]["protocolVersion"] == "2025-11-25"


def test_a_modern_ping_is_unknown_and_a_legacy_one_answered() -> None:
    end = a_server()
    assert error_of(end.receive(modern(1, "ping")), 1)["code"] == -32601
    assert isinstance(end.receive(request(2, "ping")), Reply)


# How a client presents itself


def presentation(log_level: str | None = None) -> Presentation:
    caps = ClientCapabilities(extensions={"io.modelcontextprotocol/ui": {}})
    return Presentation(MODERN, Implementation(name="host", version="2.0"), caps, log_level)


def presented(by: Presentation, token: int | None, more: Any) -> Any:
    return json.loads(b"{%b}" % by.member(token, more))["_meta"]


def test_a_presentation_has_what_every_request_must_have() -> None:
    assert presented(presentation("info"), None, None) == {
        PROTOCOL_VERSION_KEY: "2026-07-28",
        CLIENT_INFO_KEY: {"name": "host", "version": "2.0"},
        CLIENT_CAPABILITIES_KEY: {"extensions": {"io.modelcontextprotocol/ui": {}}},
        LOG_LEVEL_KEY: "info",
    }


def test_a_request_adds_to_it() -> None:
    meta = presented(presentation(), 7, {"traceparent": "00-1"})
    assert meta["progressToken"] == 7
    assert meta["traceparent"] == "00-1"
    assert LOG_LEVEL_KEY not in meta
    assert presented(presentation(), 7, None)["progressToken"] == 7


def test_no_member_is_there_twice() -> None:
    more = {LOG_LEVEL_KEY: "debug", "progressToken": "mine"}
    member = b"{%b}" % presentation("info").member(7, more)
    [(_, pairs)] = json.loads(member, object_pairs_hook=list)
    names = [name for name, _ in pairs]
    assert len(names) == len(set(names))
    assert dict(pairs)[LOG_LEVEL_KEY] == "debug"
    assert dict(pairs)["progressToken"] == 7


def test_a_reception_reads_a_presentation() -> None:
    caller = CallerReader(SUPPORTED).caller(presented(presentation("alert"), 1, {"x": 1}))
    assert caller.log_level == "alert"
    assert caller.capabilities.extensions == {"io.modelcontextprotocol/ui": {}}


def test_what_belongs_to_a_subscription_names_it() -> None:
    assert subscription_meta("s1") == {SUBSCRIPTION_ID_KEY: "s1"}
