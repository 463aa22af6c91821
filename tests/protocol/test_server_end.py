"""The server's end: admitting requests, answering them once, batches, asking a legacy client."""

import gc
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcpearl.protocol.end import progress_token
from mcpearl.protocol.errors import McpError
from mcpearl.protocol.events import (
    Answer,
    Call,
    Cancel,
    Event,
    Ignored,
    Many,
    Notice,
    Ready,
    Reply,
)
from mcpearl.protocol.limits import Limits
from mcpearl.types import (
    AudioContent,
    CallToolResult,
    ElicitRequestParams,
    RequestParams,
    TextContent,
)

from .ends import (
    INITIALIZED,
    RESULT,
    a_server,
    a_session,
    answer,
    assert_works,
    batch,
    call_tool,
    error_of,
    initialize,
    modern,
    notification,
    request,
    said,
)

BATCHING = "2025-03-26"


def admitted(event: Event) -> Call:
    assert isinstance(event, Call), event
    return event


# Calls


def test_a_request_comes_out_as_a_call() -> None:
    end = a_session()
    call = admitted(end.receive(call_tool(7, "forecast")))
    assert (call.id, call.method, call.params.name) == (7, "tools/call", "forecast")
    assert bytes(call.params.arguments) == b'{"city": "Oslo"}'
    assert end.is_open(call)
    assert end.result(call, RESULT) == (
        b'{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"sunny"}]}}'
    )
    assert not end.is_open(call)


def test_a_call_is_answered_once() -> None:
    end = a_session()
    call = admitted(end.receive(call_tool(7)))
    assert end.result(call, RESULT) is not None
    assert end.result(call, RESULT) is None
    assert end.fail(call, McpError(-32603, "late")) is None
    assert end.drop(call) is None


def test_a_call_may_fail() -> None:
    end = a_session()
    call = admitted(end.receive(call_tool("a")))
    sent = end.fail(call, McpError(-32602, "Unknown tool: forecast", {"name": "forecast"}))
    assert sent is not None
    assert json.loads(sent) == {
        "jsonrpc": "2.0",
        "id": "a",
        "error": {
            "code": -32602,
            "message": "Unknown tool: forecast",
            "data": {"name": "forecast"},
        },
    }
    assert not end.in_flight


def test_a_failure_that_cannot_be_encoded_still_ends_the_call() -> None:
    end = a_session()
    call = admitted(end.receive(call_tool(1)))
    sent = end.fail(call, McpError(-32603, "no file caf\udce9", {"at": object()}))
    assert sent is not None
    assert json.loads(sent)["error"] == {"code": -32603, "message": "no file caf?"}
    assert not end.in_flight


@pytest.mark.parametrize("bad", ["\ud800", object()])
def test_a_result_that_cannot_be_encoded_leaves_the_call_to_be_failed(bad: Any) -> None:
    end = a_session()
    call = admitted(end.receive(call_tool(1)))
    with pytest.raises((ValueError, TypeError)):
        end.result(call, CallToolResult(content=[], structured_content={"a": bad}))
    assert end.is_open(call)
    assert end.fail(call, McpError(-32603, "Internal error")) is not None


def test_a_result_is_in_the_words_of_the_version() -> None:
    result = CallToolResult(
        content=[AudioContent(data="AA==", mime_type="audio/wav"), TextContent(text="x")],
        structured_content={"a": 1},
    )
    end = a_session("2024-11-05")
    sent = end.result(admitted(end.receive(call_tool(1))), result)
    assert sent is not None
    assert json.loads(sent)["result"] == {
        "content": [
            {"type": "text", "text": "[audio, audio/wav]"},
            {"type": "text", "text": "x"},
        ],
        "structuredContent": {"a": 1},
    }


def test_an_int_and_a_string_of_the_same_look_are_two_ids() -> None:
    end = a_session()
    first, second = admitted(end.receive(call_tool(1))), admitted(end.receive(call_tool("1")))
    assert len(end.in_flight) == 2
    cancelled = end.receive(notification("notifications/cancelled", {"requestId": "1"}))
    assert isinstance(cancelled, Cancel)
    assert cancelled.call is second
    assert end.is_open(first)
    sent = end.result(first, RESULT)
    assert sent is not None
    assert json.loads(sent)["id"] == 1


def test_an_id_in_flight_is_not_used_again() -> None:
    end = a_session()
    call = admitted(end.receive(call_tool(1)))
    error = error_of(end.receive(call_tool(1)), 1)
    assert error["code"] == -32600
    assert "still in flight" in error["message"]
    assert end.in_flight == {1: call}
    end.result(call, RESULT)
    admitted(end.receive(call_tool(1)))


def test_a_long_id_is_not_quoted_whole() -> None:
    end = a_session()
    end.receive(call_tool("x" * 100_000))
    error = error_of(end.receive(call_tool("x" * 100_000)), "x" * 100_000)
    assert len(error["message"]) < 300
    event = end.receive(answer("y" * 100_000, {}))
    assert isinstance(event, Ignored)
    assert len(event.reason) < 300
    event = end.receive(notification("notifications/cancelled", {"requestId": "z" * 100_000}))
    assert isinstance(event, Ignored)
    assert len(event.reason) < 300


def test_requests_in_flight_are_bounded() -> None:
    end = a_session(limits=Limits(max_in_flight_hard=3))
    calls = [admitted(end.receive(call_tool(i))) for i in range(3)]
    error = error_of(end.receive(call_tool(99)), 99)
    assert error["code"] == -32603
    assert "the limit is 3" in error["message"]
    assert said(end.receive(request(100, "ping")))["result"] == {}
    end.drop(calls[0])
    admitted(end.receive(call_tool(99)))


def calls_alive() -> int:
    gc.collect()
    return sum(type(thing) is Call for thing in gc.get_objects())


def test_a_stream_of_calls_leaves_nothing_behind() -> None:
    end = a_session()
    before = calls_alive()
    for id in range(2000):
        end.result(admitted(end.receive(call_tool(id))), RESULT)
        end.result(admitted(end.receive(modern(id, "tools/call", {"name": str(id)}))), RESULT)
        end.receive(call_tool(id))
        end.receive(notification("notifications/cancelled", {"requestId": id}))
        end.receive(answer(id, {}))
    assert end.in_flight == {}
    assert calls_alive() <= before


def test_an_unknown_method_is_not_found() -> None:
    error = error_of(a_session().receive(request(1, "tools/destroy")), 1)
    assert error == {
        "code": -32601,
        "message": "Method not found: tools/destroy",
        "data": {"method": "tools/destroy"},
    }
    long = error_of(a_session().receive(request(1, "x" * 100_000)), 1)
    assert len(long["message"]) < 200


def test_params_may_be_left_out_where_none_are_needed() -> None:
    assert admitted(a_session().receive(request(1, "tools/list"))).params.cursor is None
    assert error_of(a_session().receive(request(1, "tools/call")), 1)["code"] == -32602


@pytest.mark.parametrize(
    ("token", "read"),
    [(7, 7), ("t", "t"), (0, 0), (True, None), (1.5, None), (None, None), ([1], None), ({}, None)],
)
def test_a_progress_token_is_an_integer_or_a_string(token: object, read: object) -> None:
    call = admitted(a_session().receive(call_tool(1, progressToken=token)))
    assert call.progress_token == read
    assert type(call.progress_token) is type(read)
    assert progress_token(None) is None


# Notifications


def test_notifications_come_out_as_notices() -> None:
    event = a_session().receive(notification("notifications/roots/list_changed"))
    assert isinstance(event, Notice)
    progress = notification("notifications/progress", {"progressToken": 1, "progress": 0.5})
    event = a_session().receive(progress)
    assert isinstance(event, Notice)
    assert (event.params.progress_token, event.params.progress) == (1, 0.5)


@pytest.mark.parametrize(
    "message",
    [
        notification("notifications/nothing"),
        notification("x" * 100_000),
        notification("tools/call", {"name": "x"}),
        notification("notifications/cancelled", {"requestId": 99}),
        notification("notifications/cancelled", {"requestId": True}),
        notification("notifications/cancelled", {"requestId": 1.0}),
        notification("notifications/cancelled", {"requestId": None}),
        notification("notifications/cancelled", {}),
        notification("notifications/cancelled", []),
        notification("notifications/cancelled"),
        notification("notifications/progress", {"progressToken": True, "progress": 1}),
        notification("notifications/progress", {"progressToken": 1.0, "progress": 1}),
        notification("notifications/progress", {"progress": 1}),
        notification("notifications/progress", "half"),
        notification("notifications/tools/list_changed"),
        b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"\xff"}}',
    ],
)
def test_a_notification_is_never_answered(message: bytes) -> None:
    end = a_session()
    call = admitted(end.receive(call_tool(1)))
    event = end.receive(message)
    assert isinstance(event, Ignored)
    assert len(event.reason) < 500
    assert end.is_open(call)


# Cancelling


def test_a_cancelled_call_is_not_answered() -> None:
    end = a_session()
    call = admitted(end.receive(call_tool(1)))
    event = end.receive(
        notification("notifications/cancelled", {"requestId": 1, "reason": "changed my mind"})
    )
    assert event == Cancel(call, "changed my mind", None)
    assert end.result(call, RESULT) is None
    again = end.receive(notification("notifications/cancelled", {"requestId": 1}))
    assert isinstance(again, Ignored)


def test_the_end_of_an_old_call_does_not_touch_a_new_one_of_the_same_id() -> None:
    end = a_session()
    old = admitted(end.receive(call_tool(1)))
    end.receive(notification("notifications/cancelled", {"requestId": 1}))
    new = admitted(end.receive(call_tool(1)))
    assert end.result(old, RESULT) is None
    assert end.fail(old, McpError(1, "")) is None
    assert end.drop(old) is None
    assert end.is_open(new)
    assert end.result(new, RESULT) is not None


# Asking the client


def test_asking_a_legacy_client() -> None:
    end = a_session()
    params = ElicitRequestParams(message="Which city?", mode="form")
    entry, message = end.ask("elicitation/create", params, "waiter", now=0.0, timeout=60.0)
    assert json.loads(message) == {
        "jsonrpc": "2.0",
        "id": entry.id,
        "method": "elicitation/create",
        "params": {"message": "Which city?", "mode": "form"},
    }
    event = end.receive(answer(entry.id, {"action": "decline"}))
    assert isinstance(event, Answer)
    assert event.entry is entry
    assert event.result is not None
    assert json.loads(bytes(event.result)) == {"action": "decline"}


def test_an_ask_is_in_the_words_of_the_version() -> None:
    end = a_session("2025-06-18")
    params = ElicitRequestParams(message="Which city?", mode="form")
    _, message = end.ask("elicitation/create", params, None, 0.0, 60.0)
    assert json.loads(message)["params"] == {"message": "Which city?"}


def test_an_error_answer_is_an_answer() -> None:
    end = a_session()
    entry, _ = end.ask("roots/list", RequestParams(), None, 0.0, 60.0)
    error = {"jsonrpc": "2.0", "id": entry.id, "error": {"code": -1, "message": "rejected"}}
    event = end.receive(json.dumps(error).encode())
    assert isinstance(event, Answer)
    assert event.error is not None
    assert (event.error.code, event.error.message) == (-1, "rejected")


def test_giving_up_tells_the_peer() -> None:
    end = a_session()
    entry, _ = end.ask("roots/list", RequestParams(), None, 0.0, 60.0)
    assert json.loads(end.abandon(entry, 'no "answer"\nin time')) == {
        "jsonrpc": "2.0",
        "method": "notifications/cancelled",
        "params": {"requestId": entry.id, "reason": 'no "answer"\nin time'},
    }
    assert isinstance(end.receive(answer(entry.id, {})), Ignored)
    assert end.pending.late == 1


def test_our_ids_and_the_peers_do_not_mix() -> None:
    end = a_session()
    entry, _ = end.ask("roots/list", RequestParams(), None, 0.0, 60.0)
    call = admitted(end.receive(call_tool(entry.id)))
    event = end.receive(notification("notifications/cancelled", {"requestId": entry.id}))
    assert isinstance(event, Cancel)
    assert event.call is call
    assert entry.id in end.pending


# Batches


def many(event: Event) -> list[Event]:
    assert isinstance(event, Many), event
    return event.events


def array(message: bytes | None) -> list[Any]:
    assert message is not None
    whole = json.loads(message)
    assert isinstance(whole, list)
    return whole


def test_answers_of_a_batch_leave_together() -> None:
    end = a_session(BATCHING)
    first, second = many(end.receive(batch(call_tool(1), call_tool(2))))
    assert end.result(admitted(second), RESULT) is None
    whole = array(end.result(admitted(first), RESULT))
    assert {part["id"] for part in whole} == {1, 2}


def test_the_answers_of_a_batch_are_bounded_together() -> None:
    end = a_session(BATCHING, limits=Limits(max_outgoing=1000))
    long = CallToolResult(content=[TextContent(text="x" * 300)])
    calls = many(end.receive(batch(*(call_tool(id) for id in range(1, 6)))))
    sent = [end.result(admitted(call), long) for call in calls]
    assert sent[:-1] == [None] * 4
    answers = array(sent[-1])
    assert [answer["id"] for answer in answers] == [1, 2, 3, 4, 5]
    assert ["result" in answer for answer in answers] == [True, True, False, False, False]
    assert all("max_outgoing" in answer["error"]["message"] for answer in answers[2:])


def test_notifications_in_a_batch_get_no_answer() -> None:
    end = a_session(BATCHING)
    changed = notification("notifications/roots/list_changed")
    events = many(end.receive(batch(changed, call_tool(1), changed)))
    assert [type(event) for event in events] == [Notice, Call, Notice]
    assert [part["id"] for part in array(end.result(admitted(events[1]), RESULT))] == [1]
    assert [type(e) for e in many(end.receive(batch(changed, changed)))] == [Notice, Notice]


def test_a_batch_answered_on_the_spot() -> None:
    end = a_session(BATCHING)
    (event,) = many(end.receive(batch(request(1, "ping"), request(2, "no/such"), b"7")))
    assert isinstance(event, Reply)
    by_id = {part["id"]: part for part in array(event.message)}
    assert by_id[1]["result"] == {}
    assert by_id[2]["error"]["code"] == -32601
    assert by_id[None]["error"]["code"] == -32600


def test_refusals_wait_for_the_calls_of_their_batch() -> None:
    end = a_session(BATCHING)
    (event,) = many(end.receive(batch(call_tool(1), call_tool(1), request(2, "ping"))))
    whole = array(end.fail(admitted(event), McpError(-32603, "broke")))
    assert [(part["id"], "error" in part) for part in whole] == [(1, True), (2, False), (1, True)]


def test_answers_to_us_in_a_batch_are_answers() -> None:
    end = a_session(BATCHING)
    entries = [end.ask("roots/list", RequestParams(), None, 0.0, 60.0)[0] for _ in range(2)]
    events = many(end.receive(batch(*(answer(entry.id, {}) for entry in entries))))
    assert [event.entry for event in events if isinstance(event, Answer)] == entries


def test_cancelling_the_last_call_of_a_batch_sends_the_rest() -> None:
    end = a_session(BATCHING)
    first, second = map(admitted, many(end.receive(batch(call_tool(1), call_tool(2)))))
    assert end.result(first, RESULT) is None
    event = end.receive(notification("notifications/cancelled", {"requestId": 2}))
    assert isinstance(event, Cancel)
    assert event.call is second
    assert [part["id"] for part in array(event.message)] == [1]


def test_a_batch_whose_calls_are_all_cancelled_gets_nothing() -> None:
    end = a_session(BATCHING)
    cancel = notification("notifications/cancelled", {"requestId": 1})
    call, event = many(end.receive(batch(call_tool(1), cancel)))
    assert isinstance(event, Cancel)
    assert event.message is None
    assert end.result(admitted(call), RESULT) is None
    assert not end.in_flight


def test_a_session_may_become_ready_in_a_batch() -> None:
    end = a_server()
    end.receive(initialize(BATCHING))
    ready, call = many(end.receive(batch(INITIALIZED, call_tool(1))))
    assert ready == Ready()
    assert len(array(end.result(admitted(call), RESULT))) == 1


def test_initialize_cannot_be_part_of_a_batch() -> None:
    assert error_of(a_server().receive(batch(initialize(BATCHING))), None)["code"] == -32600
    (event,) = many(a_session(BATCHING).receive(batch(initialize(BATCHING, id=5))))
    assert isinstance(event, Reply)
    assert array(event.message)[0]["error"]["code"] == -32600


@pytest.mark.parametrize("version", ["2024-11-05", "2025-06-18", "2025-11-25"])
def test_other_versions_have_no_batches(version: str) -> None:
    end = a_session(version)
    error = error_of(end.receive(batch(request(1, "ping"))), None)
    assert error["code"] == -32600
    assert version in error["message"]
    assert_works(end)


def test_a_modern_call_is_not_part_of_a_batch() -> None:
    end = a_session(BATCHING)
    mixed = batch(call_tool(1), modern(2, "tools/call", {"name": "add", "arguments": {}}))
    (call,) = many(end.receive(mixed))
    assert list(end.in_flight) == [1]
    answers = array(end.result(admitted(call), RESULT))
    (refused,) = (each["error"] for each in answers if each["id"] == 2)
    assert refused["code"] == -32600
    assert "2026-07-28" in refused["message"]


def test_before_initialize_there_are_no_batches() -> None:
    error = error_of(a_server().receive(batch(request(1, "ping"))), None)
    assert error["code"] == -32600
    assert "before initialize" in error["message"]


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (b"[]", -32600),
        (b" [ ] ", -32600),
        (batch(*[request(i, "ping") for i in range(4)]), -32600),
        (b"[" + request(1, "ping"), -32700),
        (b"[" * 10_000, -32700),
    ],
)
def test_a_batch_that_is_none_is_refused_as_one_message(message: bytes, code: int) -> None:
    end = a_session(BATCHING, limits=Limits(max_batch=3))
    assert error_of(end.receive(message), None)["code"] == code
    assert_works(end)


def test_a_batch_within_a_batch_is_no_message() -> None:
    (event,) = many(a_session(BATCHING).receive(batch(batch(request(1, "ping")))))
    assert isinstance(event, Reply)
    assert array(event.message)[0]["error"]["code"] == -32600


def test_blanks_before_a_batch_do_not_matter() -> None:
    (event,) = many(a_session(BATCHING).receive(b" " * 300 + batch(request(1, "ping"))))
    assert isinstance(event, Reply)


# Any interleaving

KINDS = ("call", "call", "ping", "unknown", "garbage", "notify", "cancel")
_kinds = st.tuples(st.sampled_from(KINDS), st.integers(0, 99))
_steps = st.one_of(
    st.builds(lambda kind: ("single", [kind]), _kinds),
    st.lists(_kinds, min_size=1, max_size=6).map(lambda kinds: ("batch", kinds)),
    st.builds(lambda place, fails: ("finish", (place, fails)), st.integers(0, 99), st.booleans()),
)


class Conversation:
    """A client that keeps book of what it asked, and a server that answers in any order."""

    def __init__(self) -> None:
        self.end = a_session(BATCHING)
        self.open: list[Call] = []
        self.sent: list[Any] = []
        self.asked: list[int] = []  # every id, in order; each is used once
        self.cancelled: set[int] = set()
        self.owed: list[list[int | None]] = []  # the ids of one batch, or of one message

    def say(self, kinds: list[tuple[str, int]], *, as_batch: bool) -> None:
        owed: list[int | None] = []
        parts = [self.part(kind, place, owed) for kind, place in kinds]
        self.owed.append(owed)
        self.hear(self.end.receive(batch(*parts) if as_batch else parts[0]))

    def part(self, kind: str, place: int, owed: list[int | None]) -> bytes:
        if kind == "notify":
            return notification("notifications/roots/list_changed")
        if kind == "garbage":
            owed.append(None)
            return b'{"jsonrpc":"2.0"}'
        if kind == "cancel":
            id = self.asked[place % len(self.asked)] if self.asked else 0
            return notification("notifications/cancelled", {"requestId": id})
        id = len(self.asked) + 1
        self.asked.append(id)
        owed.append(id)
        return call_tool(id) if kind == "call" else request(id, "ping" if kind == "ping" else "?")

    def hear(self, event: Event) -> None:
        match event:
            case Many(events=events):
                for inner in events:
                    self.hear(inner)
            case Call():
                self.open.append(event)
            case Cancel(call=call, message=message):
                self.open.remove(call)
                assert isinstance(call.id, int)
                self.cancelled.add(call.id)
                self.send(message)
            case Reply(message=message):
                self.send(message)

    def finish(self, place: int, fails: bool) -> None:
        if self.open:
            call = self.open.pop(place % len(self.open))
            error = McpError(-32603, "Internal error")
            self.send(self.end.fail(call, error) if fails else self.end.result(call, RESULT))

    def send(self, message: bytes | None) -> None:
        if message is not None:
            self.sent.append(json.loads(message))


@settings(max_examples=200, deadline=None)
@given(steps=st.lists(_steps, max_size=30))
def test_every_call_gets_one_answer_and_every_batch_one_array(steps: list[Any]) -> None:
    talk = Conversation()
    for step, what in steps:
        if step == "finish":
            talk.finish(*what)
        else:
            talk.say(what, as_batch=step == "batch")
    while talk.open:
        talk.finish(0, False)

    def ids(answers: list[int | None]) -> list[str]:
        return sorted(str(id) for id in answers if id not in talk.cancelled)

    got = [
        [part["id"] for part in whole] if isinstance(whole, list) else [whole["id"]]
        for whole in talk.sent
    ]
    assert sorted(map(ids, got)) == sorted(filter(None, map(ids, talk.owed)))
    assert not talk.cancelled & {id for answers in got for id in answers}
    assert not talk.end.in_flight
