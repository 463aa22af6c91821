"""No input makes an end raise, and every end goes on working after it."""

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mcpearl.protocol.client_end import ClientEnd
from mcpearl.protocol.events import (
    Answer,
    Call,
    Cancel,
    Event,
    Ignored,
    Many,
    Notice,
    Opened,
    Ready,
    Reply,
)
from mcpearl.protocol.server_end import ServerEnd
from mcpearl.types import PaginatedRequestParams, RequestParams
from mcpearl.types.methods import NOTIFICATIONS, REQUESTS

from .ends import (
    META,
    a_client,
    a_client_session,
    a_modern_client,
    a_server,
    a_session,
    answer,
    assert_client_works,
    assert_works,
    batch,
    call_tool,
    initialize,
    modern,
    notification,
    request,
)

MANY = settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
EVENTS = Answer | Call | Cancel | Ignored | Many | Notice | Opened | Ready | Reply

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
    | st.sampled_from(["2.0", "2025-11-25", "2026-07-28", "info", 1, 0, 2**64]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                [
                    "jsonrpc",
                    "id",
                    "method",
                    "params",
                    "result",
                    "error",
                    "code",
                    "message",
                    "name",
                    "uri",
                    "arguments",
                    "requestId",
                    "progressToken",
                    "progress",
                    "protocolVersion",
                    "capabilities",
                    "clientInfo",
                    "_meta",
                    "notifications",
                    *META,
                ]
            )
            | st.text(max_size=4),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)
methods = st.sampled_from([*REQUESTS, *NOTIFICATIONS]) | st.text(max_size=6)
ids = st.sampled_from([1, 2, "1", "a", 0, -1, 10**30, True, None, 1.0])
messages = st.one_of(
    json_values,
    st.fixed_dictionaries(
        {"jsonrpc": st.sampled_from(["2.0", "2.0", "2.0", "1.0", 2.0])},
        optional={
            "id": ids,
            "method": methods,
            "params": json_values | st.fixed_dictionaries({"_meta": st.just(META) | json_values}),
            "result": json_values,
            "error": json_values,
        },
    ),
).map(lambda value: json.dumps(value).encode())

VALID = [
    call_tool(1),
    call_tool("a", progressToken=7),
    initialize(),
    modern(1, "tools/call", {"name": "x", "arguments": {"a": [1, 2.5, None, "ø"]}}),
    modern(2, "server/discover"),
    modern(3, "subscriptions/listen", {"notifications": {"toolsListChanged": True}}),
    notification("notifications/cancelled", {"requestId": 1, "reason": "no"}),
    notification("notifications/progress", {"progressToken": 1, "progress": 0.5}),
    notification("notifications/message", {"level": "info", "data": {"a": 1}}),
    answer(1, {"tools": [], "resultType": "complete"}),
    b'{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"no","data":[1]}}',
    batch(call_tool(1), request(2, "ping"), notification("x"), answer(1, {})),
    request(1, "elicitation/create", {"message": "?", "requestedSchema": {"properties": {}}}),
]


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A valid message with some bytes changed, taken out, doubled or put in."""
    message = bytearray(draw(st.sampled_from(VALID)))
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, max(0, len(message) - 1)))
        length = draw(st.integers(0, 12))
        patch = draw(
            st.sampled_from([b"", b"null", b"[", b"}", b'"', b"\\u", b"\xff", b"1e999", b"-"])
            | st.binary(max_size=3)
            | st.just(bytes(message[place : place + 20]))
        )
        message[place : place + length] = patch
    return bytes(message)


anything = st.one_of(messages, mutated(), st.binary(max_size=60), st.sampled_from(VALID))


def ends() -> list[Any]:
    listening = a_modern_client()
    listening.request("tools/list", PaginatedRequestParams(), None, 0.0, 60.0)
    asking = a_session("2025-03-26")
    asking.ask("roots/list", RequestParams(), None, 0.0, 60.0)
    return [
        a_server(),
        a_session(),
        asking,
        a_server(versions=("2026-07-28",)),
        a_client(),
        a_client_session(),
        a_client_session("2025-03-26"),
        listening,
    ]


def check(end: ServerEnd | ClientEnd, event: Event) -> None:
    assert isinstance(event, EVENTS)
    if isinstance(event, Many):
        for inner in event.events:
            check(end, inner)
    said = getattr(event, "message", None)
    if said is not None:
        assert b"\n" not in said
        for part in _parts(json.loads(said)):
            assert part["jsonrpc"] == "2.0"
            assert ("result" in part) is not ("error" in part)
            assert "method" not in part
    if isinstance(event, Call):
        assert type(event.id) in (int, str)


def _parts(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


@MANY
@given(st.lists(anything, min_size=1, max_size=6))
def test_nothing_raises_on_any_end(stream: list[bytes]) -> None:
    for end in ends():
        for message in stream:
            check(end, end.receive(message))


@MANY
@given(st.lists(anything, max_size=8))
def test_a_session_goes_on_after_anything(stream: list[bytes]) -> None:
    end = a_session()
    for message in stream:
        end.receive(message)
    assert_works(end)
    client = a_client_session()
    for message in stream:
        client.receive(message)
    assert_client_works(client)


@MANY
@given(st.binary(max_size=200))
def test_bytes_that_are_not_json_are_told_so(message: bytes) -> None:
    try:
        json.loads(message)
    except ValueError:
        event = a_session().receive(message)
        assert isinstance(event, Reply)
        assert json.loads(event.message)["error"]["code"] == -32700


@MANY
@given(messages)
def test_json_gets_an_answer_exactly_when_it_asks(message: bytes) -> None:
    """A request is answered or admitted; a notification and an answer never are."""
    value = json.loads(message)
    event = a_session().receive(message)
    if not isinstance(value, dict) or value.get("jsonrpc") != "2.0":
        return
    has_id = type(value.get("id")) in (int, str)
    if type(value.get("method")) is str and has_id:
        assert isinstance(event, Call | Reply)
        answered = json.loads(event.message)["id"] if isinstance(event, Reply) else event.id
        assert answered == value["id"]
    elif type(value.get("method")) is str and "id" not in value:
        assert not isinstance(event, Call | Reply)
    elif "method" not in value and ("result" in value or "error" in value):
        assert isinstance(event, Ignored | Answer)
