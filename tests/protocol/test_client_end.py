"""The client's end: requests in either era, results, what a server may ask, subscriptions."""

import json
from typing import Any

import pytest
from msgspec import Raw

from mcpearl.protocol.errors import InvalidResult, LimitReached
from mcpearl.protocol.events import Answer, Call, Cancel, Event, Ignored, Many, Notice
from mcpearl.protocol.limits import Limits
from mcpearl.types import (
    CallToolRequestParams,
    CallToolResult,
    ElicitResult,
    InputRequiredResult,
    ListRootsResult,
    ListToolsResult,
    PaginatedRequestParams,
    ReadResourceRequestParams,
    Root,
    SubscriptionFilter,
    SubscriptionsListenRequestParams,
)
from mcpearl.types.base import (
    CLIENT_CAPABILITIES_KEY,
    CLIENT_INFO_KEY,
    PROTOCOL_VERSION_KEY,
)

from .ends import (
    a_client,
    a_client_session,
    a_modern_client,
    a_session,
    answer,
    assert_client_works,
    batch,
    error_of,
    notification,
    request,
)

LIST = PaginatedRequestParams()


def sent(message: bytes) -> Any:
    pairs = json.loads(message, object_pairs_hook=list)

    def check(value: Any) -> None:
        if isinstance(value, list) and value and isinstance(value[0], tuple):
            names = [name for name, _ in value]
            assert len(names) == len(set(names)), names
            for _, inner in value:
                check(inner)

    check(pairs)
    return json.loads(message)


# Requests


def test_a_legacy_request_says_only_what_it_must() -> None:
    entry, message = a_client_session().request("tools/list", LIST, None, 0.0, 60.0)
    assert message == b'{"jsonrpc":"2.0","id":%d,"method":"tools/list","params":{}}' % entry.id


def test_a_modern_request_presents_the_client() -> None:
    end = a_modern_client()
    params = CallToolRequestParams(name="forecast", arguments=Raw(b'{"city":"Oslo"}'))
    entry, message = end.request("tools/call", params, None, 0.0, 60.0)
    assert sent(message)["params"] == {
        "name": "forecast",
        "arguments": {"city": "Oslo"},
        "_meta": {
            PROTOCOL_VERSION_KEY: "2026-07-28",
            CLIENT_INFO_KEY: {"name": "host", "version": "2.0"},
            CLIENT_CAPABILITIES_KEY: {
                "roots": {},
                "sampling": {},
                "elicitation": {"form": {}, "url": {}},
            },
        },
    }
    assert sent(message)["id"] == entry.id


@pytest.mark.parametrize("make", [a_client_session, a_modern_client])
def test_progress_is_asked_for_by_the_id(make: Any) -> None:
    entry, message = make().request("tools/list", LIST, None, 0.0, 60.0, progress=True)
    assert sent(message)["params"]["_meta"]["progressToken"] == entry.id


@pytest.mark.parametrize("make", [a_client_session, a_modern_client])
def test_meta_of_a_request_and_of_its_params_become_one(make: Any) -> None:
    params = CallToolRequestParams(name="x", meta={"a": 1, "b": 1, "progressToken": "mine"})
    entry, message = make().request(
        "tools/call", params, None, 0.0, 60.0, progress=True, meta={"b": 2, "c": 3}
    )
    meta = sent(message)["params"]["_meta"]
    assert (meta["a"], meta["b"], meta["c"]) == (1, 2, 3)
    assert meta["progressToken"] == entry.id
    assert params.meta == {"a": 1, "b": 1, "progressToken": "mine"}


def test_a_request_is_in_the_words_of_the_version() -> None:
    params = ReadResourceRequestParams(uri="a:b", request_state="s")
    _, old = a_client_session("2025-06-18").request("resources/read", params, None, 0.0, 60.0)
    assert sent(old)["params"] == {"uri": "a:b"}
    _, new = a_modern_client().request("resources/read", params, None, 0.0, 60.0)
    assert sent(new)["params"]["requestState"] == "s"


def test_a_method_of_any_name_is_one_string() -> None:
    _, message = a_client_session().request('x","id":9,"y":"', LIST, None, 0.0, 60.0)
    assert sent(message)["method"] == 'x","id":9,"y":"'


@pytest.mark.parametrize(
    ("method", "meta"), [("\ud800", None), ("tools/list", {"a": object()}), ("x", {"a": "\udcff"})]
)
def test_a_request_that_cannot_be_encoded_waits_for_nothing(method: str, meta: Any) -> None:
    end = a_client_session()
    with pytest.raises((ValueError, TypeError)):
        end.request(method, LIST, None, 0.0, 60.0, meta=meta)
    assert len(end.pending) == 0


def test_requests_that_wait_are_bounded() -> None:
    end = a_client_session(limits=Limits(max_pending=1))
    end.request("tools/list", LIST, None, 0.0, 60.0)
    with pytest.raises(LimitReached):
        end.request("tools/list", LIST, None, 0.0, 60.0)


def test_a_notification_of_ours() -> None:
    end = a_client_session()
    assert sent(end.notify("notifications/roots/list_changed")) == {
        "jsonrpc": "2.0",
        "method": "notifications/roots/list_changed",
    }


# Answers


@pytest.mark.parametrize("make", [a_client_session, a_modern_client])
def test_an_answer_finds_its_request(make: Any) -> None:
    end = make()
    entry, _ = end.request("tools/list", LIST, "waiter", 0.0, 60.0)
    event = end.receive(answer(entry.id, {"tools": []}))
    assert isinstance(event, Answer)
    assert event.entry.waiter == "waiter"
    assert event.error is None
    assert event.result is not None
    assert end.decode_result("tools/list", ListToolsResult, event.result) == (
        ListToolsResult(tools=[])
    )


@pytest.mark.parametrize("id", [99, 0, -1, "1", "", True, None, 1.0, [1], 10**40])
def test_an_answer_to_a_question_never_asked_is_ignored(id: Any) -> None:
    end = a_client_session()
    entry, _ = end.request("tools/list", LIST, None, 0.0, 60.0)
    assert isinstance(end.receive(answer(id, {})), Ignored)
    assert entry.id in end.pending
    assert_client_works(end)


def test_a_late_answer_is_counted() -> None:
    end = a_client_session()
    entry, _ = end.request("tools/list", LIST, None, 0.0, 60.0)
    end.abandon(entry, "timeout")
    assert isinstance(end.receive(answer(entry.id, {})), Ignored)
    assert (end.pending.late, end.pending.unknown) == (1, 0)


def test_a_malformed_error_object_is_still_an_answer() -> None:
    end = a_client_session()
    entry, _ = end.request("tools/list", LIST, None, 0.0, 60.0)
    event = end.receive(b'{"jsonrpc":"2.0","id":%d,"error":"\xff"}' % entry.id)
    assert isinstance(event, Answer)
    assert event.error is not None


def test_an_answer_that_is_nested_too_deeply_fails_its_request() -> None:
    end = a_client_session()
    entry, _ = end.request("tools/list", LIST, "waiter", 0.0, 60.0)
    deep = b"[" * 200 + b"]" * 200
    event = end.receive(b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (entry.id, deep))
    assert isinstance(event, Answer)
    assert event.entry is entry
    assert event.error is not None
    assert "deeper than 128 levels" in event.error.message
    assert entry.id not in end.pending


@pytest.mark.parametrize(
    "message",
    [
        b"garbage",
        b"{",
        b"[",
        b"{}",
        b'{"jsonrpc":"2.0"}',
        b'{"jsonrpc":"1.0","id":1,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":null,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"?"}}',
        b'{"jsonrpc":"2.0","id":1,"method":"\xff"}',
        b"[" * 10_000,
        batch(request(1, "ping")),
    ],
)
def test_a_client_answers_nothing_that_is_no_message(message: bytes) -> None:
    end = a_client_session()
    assert isinstance(end.receive(message), Ignored)
    assert end.malformed == 1
    assert_client_works(end)


def test_a_client_says_nothing_about_bad_framing() -> None:
    assert isinstance(a_client_session().refuse_frame("too long"), Ignored)


def test_answers_may_come_as_a_batch_where_there_are_batches() -> None:
    end = a_client_session("2025-03-26")
    entries = [end.request("tools/list", LIST, None, 0.0, 60.0)[0] for _ in range(3)]
    event = end.receive(batch(*(answer(entry.id, {}) for entry in entries)))
    assert isinstance(event, Many)
    assert [inner.entry for inner in event.events if isinstance(inner, Answer)] == entries


# What a server may ask


def call(event: Event) -> Call:
    assert isinstance(event, Call), event
    return event


def test_a_legacy_server_may_ask() -> None:
    end = a_client_session()
    asked = call(end.receive(request("s1", "roots/list")))
    message = end.result(asked, ListRootsResult(roots=[Root(uri="file:///a")]))
    assert message is not None
    assert json.loads(message) == {
        "jsonrpc": "2.0",
        "id": "s1",
        "result": {"roots": [{"uri": "file:///a"}]},
    }
    assert end.result(asked, ListRootsResult(roots=[])) is None


def test_a_legacy_server_may_ask_in_a_batch() -> None:
    end = a_client_session("2025-03-26")
    event = end.receive(batch(request(1, "roots/list"), request(2, "ping")))
    assert isinstance(event, Many)
    message = end.result(call(event.events[0]), ListRootsResult(roots=[]))
    assert message is not None
    assert {part["id"] for part in json.loads(message)} == {1, 2}


def test_a_server_may_take_its_question_back() -> None:
    end = a_client_session()
    asked = call(end.receive(request(1, "elicitation/create", {"message": "Who?"})))
    event = end.receive(notification("notifications/cancelled", {"requestId": 1}))
    assert isinstance(event, Cancel)
    assert end.result(asked, ElicitResult(action="accept")) is None


def test_elicitation_is_unknown_before_its_version() -> None:
    message = request(1, "elicitation/create", {"message": "Who?"})
    error = error_of(a_client_session("2025-03-26").receive(message), 1)
    assert error["code"] == -32601


@pytest.mark.parametrize("method", ["tools/call", "initialize", "server/discover", "x", ""])
def test_a_client_is_not_asked_what_servers_are(method: str) -> None:
    assert error_of(a_client_session().receive(request(1, method)), 1)["code"] == -32601


@pytest.mark.parametrize("params", [[], "x", 1, {"message": 7}, {"message": "?", "mode": "shout"}])
def test_questions_of_the_wrong_shape(params: Any) -> None:
    end = a_client_session()
    error = error_of(end.receive(request(1, "elicitation/create", params)), 1)
    assert error["code"] == -32602
    assert_client_works(end)


def test_a_modern_server_never_asks() -> None:
    end = a_modern_client()
    assert isinstance(end.receive(request(1, "roots/list")), Ignored)
    assert not end.in_flight


# Results


def read(end: Any, kind: Any, result: Any) -> Any:
    raw = result if isinstance(result, bytes) else json.dumps(result).encode()
    return end.decode_result("tools/call", kind, Raw(raw))


def test_a_complete_result_is_its_type() -> None:
    result = {"resultType": "complete", "content": [], "com.example/x": 1}
    decoded = read(a_modern_client(), CallToolResult, result)
    assert decoded.content == []
    assert decoded.extra == {"com.example/x": 1}
    assert read(a_modern_client(), CallToolResult, {"content": []}).result_type is None


def test_a_server_may_need_input_first() -> None:
    ask = {"method": "elicitation/create", "params": {"message": "Who?"}}
    result = {"resultType": "input_required", "inputRequests": {"who": ask}, "requestState": "s"}
    decoded = read(a_modern_client(), CallToolResult, result)
    assert isinstance(decoded, InputRequiredResult)
    assert decoded.input_requests is not None
    assert decoded.input_requests["who"].params.message == "Who?"
    assert decoded.request_state == "s"


@pytest.mark.parametrize("kind", [CallToolResult, ListToolsResult, ElicitResult])
@pytest.mark.parametrize(
    "result",
    [
        {"resultType": "input_required"},
        {"resultType": "unheard of"},
        {"resultType": 7, "content": []},
        {"resultType": "complete"},
        {},
        [],
        None,
        "text",
        b'{"content":[{"type":"text","text":"\xff"}]}',
        b"[" * 10_000 + b"]" * 10_000,
        b'{"x":' + b"[" * 10_000 + b"]" * 10_000 + b"}",
    ],
)
def test_a_result_that_is_none_is_told_apart(kind: Any, result: Any) -> None:
    for end in (a_modern_client(), a_client_session()):
        with pytest.raises(InvalidResult, match="tools/call"):
            read(end, kind, result)


def test_an_unknown_result_type_is_invalid_even_if_the_rest_fits() -> None:
    with pytest.raises(InvalidResult, match="unheard of"):
        read(a_modern_client(), CallToolResult, {"resultType": "unheard of", "content": []})


def test_in_a_legacy_session_there_are_no_result_types() -> None:
    decoded = read(a_client_session(), CallToolResult, {"content": [], "resultType": "whatever"})
    assert isinstance(decoded, CallToolResult)
    with pytest.raises(InvalidResult):
        read(a_client_session(), CallToolResult, {"resultType": "input_required"})


# Subscriptions


def listening() -> tuple[Any, Any]:
    end = a_modern_client()
    wanted = SubscriptionFilter(tools_list_changed=True)
    entry, message = end.listen(SubscriptionsListenRequestParams(notifications=wanted), "stream")
    params = sent(message)["params"]
    assert params["notifications"] == {"toolsListChanged": True}
    assert params["_meta"][PROTOCOL_VERSION_KEY] == "2026-07-28"
    return end, entry


def test_a_subscription_waits_for_ever() -> None:
    end, entry = listening()
    assert end.pending.next_deadline() is None
    assert end.pending.expire(1e12) == []
    assert entry.id in end.pending


def test_notices_of_a_subscription_name_it() -> None:
    end, entry = listening()
    meta = {"io.modelcontextprotocol/subscriptionId": entry.id}
    event = end.receive(
        notification(
            "notifications/subscriptions/acknowledged", {"notifications": {}, "_meta": meta}
        )
    )
    assert isinstance(event, Notice)
    assert event.params.meta == meta


def test_a_subscription_ends_with_its_answer() -> None:
    end, entry = listening()
    event = end.receive(answer(entry.id, {"resultType": "complete"}))
    assert isinstance(event, Answer)
    assert event.entry is entry


def test_a_subscription_ends_when_the_server_cancels_it() -> None:
    end, entry = listening()
    other, _ = end.request("tools/list", LIST, None, 0.0, 60.0)
    for wrong in (other.id, str(entry.id), 99, True, None):
        cancel = notification("notifications/cancelled", {"requestId": wrong})
        assert isinstance(end.receive(cancel), Ignored)
    event = end.receive(notification("notifications/cancelled", {"requestId": entry.id}))
    assert isinstance(event, Answer)
    assert event.entry is entry
    assert event.result is not None
    assert entry.id not in end.pending
    assert other.id in end.pending


# Two ends on each other


def exchange(left: Any, right: Any, first: bytes) -> int:
    """Pass what each end sends to the other until neither has anything to send."""
    queue, passed = [(right, first)], 0
    while queue:
        end, message = queue.pop()
        passed += 1
        assert passed < 50, "they never come to rest"
        other = left if end is right else right
        events = [end.receive(message)]
        while events:
            event = events.pop()
            if isinstance(event, Many):
                events += event.events
            said = getattr(event, "message", None)
            if said is not None:
                queue.append((other, said))
    return passed


@pytest.mark.parametrize(
    "first",
    [
        b"garbage",
        b"{}",
        b"[]",
        b"[1,2,3]",
        b'{"jsonrpc":"2.0","id":1}',
        b'{"jsonrpc":"2.0","id":1,"result":{},"error":{}}',
        b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"?"}}',
        b'{"jsonrpc":"2.0","id":1,"error":7}',
        b'{"jsonrpc":"2.0","id":"\xff","result":{}}',
        b'{"jsonrpc":"3.0","id":1,"result":{}}',
        b'{"jsonrpc":"2.0","id":1,"method":null,"result":{}}',
        batch(request(1, "ping"), b"7", request(2, "no/such")),
        batch(answer(1, {}), answer(2, {})),
        batch(b'{"jsonrpc":"2.0","id":null,"error":{}}'),
        request(1, "ping"),
        request(1, "no/such"),
        request(1, "initialize"),
    ],
)
def test_ends_that_hear_each_other_come_to_rest(first: bytes) -> None:
    ends: list[Any] = [
        a_session("2025-03-26"),
        a_session("2025-11-25"),
        a_client_session("2025-03-26"),
        a_client_session("2025-11-25"),
        a_client(),
        a_modern_client(),
    ]
    for left in ends:
        for right in ends:
            assert exchange(left, right, first) <= 3
