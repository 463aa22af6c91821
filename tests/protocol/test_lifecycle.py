"""The phases of a session, as the tables have them, on both ends."""

import json
from typing import Any, get_args

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from mcpearl.protocol.client_end import ClientEnd
from mcpearl.protocol.events import Call, Event, Ignored, Notice, Opened, Ready, Reply
from mcpearl.protocol.lifecycle import (
    RECEIVABLE,
    TRANSITIONS,
    EndRole,
    Lifecycle,
    Phase,
    Step,
    WrongPhase,
)
from mcpearl.protocol.server_end import ServerEnd

from .ends import (
    INITIALIZED,
    a_client,
    a_client_session,
    a_server,
    a_session,
    answer,
    call_tool,
    error_of,
    initialize,
    modern,
    notification,
    request,
    said,
)

P = Phase

PATHS = {
    P.DISCONNECTED: [],
    P.CONNECTING: ["connect"],
    P.INITIALIZING: ["connect", "initialize"],
    P.READY: ["connect", "initialize", "initialized"],
    P.CLOSING: ["connect", "close"],
    P.CLOSED: ["close"],
    P.FAILED: ["connect", "lose"],
}


def in_phase(phase: Phase, role: EndRole = "server") -> Lifecycle:
    life = Lifecycle(role)
    for step in PATHS[phase]:
        life.take(step)
    assert life.phase is phase
    return life


def test_a_whole_life() -> None:
    life = Lifecycle("client")
    assert [life.take(step) for step in ("connect", "initialize", "initialized")] == [
        P.CONNECTING,
        P.INITIALIZING,
        P.READY,
    ]
    assert [life.take(step) for step in ("lose", "connect", "close", "closed")] == [
        P.FAILED,
        P.CONNECTING,
        P.CLOSING,
        P.CLOSED,
    ]


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("step", get_args(Step))
def test_every_step_of_the_table_and_no_other(phase: Phase, step: Step) -> None:
    life = in_phase(phase)
    following = TRANSITIONS[phase].get(step)
    assert life.can(step) is (following is not None)
    if following is not None:
        assert life.take(step) is following
    else:
        with pytest.raises(WrongPhase, match=phase.value):
            life.take(step)
        assert life.phase is phase


def test_nothing_follows_closed_and_all_else_leads_to_it() -> None:
    assert TRANSITIONS[P.CLOSED] == {}
    for phase in set(Phase) - {P.CLOSED}:
        seen, frontier = {phase}, [phase]
        while frontier:
            reached = set(TRANSITIONS[frontier.pop()].values()) - seen
            seen |= reached
            frontier += reached
        assert P.CLOSED in seen


@pytest.mark.parametrize("role", ["client", "server"])
def test_the_tables_have_every_phase(role: EndRole) -> None:
    assert set(TRANSITIONS) == set(RECEIVABLE[role]) == set(Phase)


@pytest.mark.parametrize("role", ["client", "server"])
@pytest.mark.parametrize("phase", [P.CONNECTING, P.INITIALIZING, P.READY, P.CLOSING])
def test_ping_is_welcome_while_there_is_a_connection(role: EndRole, phase: Phase) -> None:
    assert in_phase(phase, role).refuse("ping") is None


@pytest.mark.parametrize("phase", [p for p in Phase if p is not P.CONNECTING])
def test_initialize_is_received_once(phase: Phase) -> None:
    assert in_phase(P.CONNECTING).refuse("initialize") is None
    assert in_phase(phase).refuse("initialize")


@pytest.mark.parametrize("phase", Phase)
def test_a_client_is_never_initialized(phase: Phase) -> None:
    assert in_phase(phase, "client").refuse("initialize")


@pytest.mark.parametrize(
    ("phase", "reason"),
    [
        (P.CONNECTING, "`tools/call` before `initialize`"),
        (P.INITIALIZING, None),
        (P.READY, None),
        (P.CLOSING, "`tools/call` while the session is closing"),
        (P.CLOSED, "`tools/call` while the session is closed"),
        (P.FAILED, "`tools/call` while the session is failed"),
    ],
)
def test_the_reason_says_what_is_missing(phase: Phase, reason: str | None) -> None:
    assert in_phase(phase).refuse("tools/call") == reason


# The same through the server's end


def server_in(phase: Phase) -> ServerEnd:
    end = a_server()
    if phase in (P.INITIALIZING, P.READY, P.CLOSING):
        end.receive(initialize())
    if phase in (P.READY, P.CLOSING):
        end.receive(INITIALIZED)
    if phase is P.CLOSING:
        end.lifecycle.take("close")
    if phase is P.CLOSED:
        end.lifecycle.take("closed")
    if phase is P.FAILED:
        end.lifecycle.take("lose")
    assert end.lifecycle.phase is phase
    return end


LIVE = [P.CONNECTING, P.INITIALIZING, P.READY, P.CLOSING]


def test_the_handshake() -> None:
    end = a_server()
    assert isinstance(end.receive(initialize()), Opened)
    assert end.lifecycle.phase is P.INITIALIZING
    assert end.receive(INITIALIZED) == Ready()
    assert end.lifecycle.phase is P.READY
    assert isinstance(end.receive(call_tool()), Call)


@pytest.mark.parametrize("phase", LIVE)
def test_a_server_answers_ping_in_every_live_phase(phase: Phase) -> None:
    assert said(server_in(phase).receive(request("p", "ping"))) == {
        "jsonrpc": "2.0",
        "id": "p",
        "result": {},
    }


def test_a_request_between_the_answer_and_initialized_is_served() -> None:
    end = server_in(P.INITIALIZING)
    assert isinstance(end.receive(call_tool(5)), Call)
    assert end.lifecycle.phase is P.INITIALIZING
    assert end.receive(INITIALIZED) == Ready()
    assert list(end.in_flight) == [5]


@pytest.mark.parametrize("phase", [P.CONNECTING, P.CLOSING, P.CLOSED, P.FAILED])
def test_a_request_without_a_session_is_refused_and_changes_nothing(phase: Phase) -> None:
    end = server_in(phase)
    error = error_of(end.receive(call_tool(5)), 5)
    assert error["code"] == -32600
    assert "`tools/call`" in error["message"]
    assert end.lifecycle.phase is phase
    assert not end.in_flight


@pytest.mark.parametrize("phase", [P.INITIALIZING, P.READY], ids=lambda p: p.value)
def test_a_second_initialize_is_a_new_handshake(phase: Phase) -> None:
    end = server_in(phase)
    assert isinstance(end.receive(call_tool(5)), Call)
    event = end.receive(initialize("2024-11-05", id="again"))
    assert isinstance(event, Opened)
    assert json.loads(event.message)["result"]["protocolVersion"] == "2024-11-05"
    assert end.caller is not None
    assert end.caller.version.name == "2024-11-05"
    assert end.receive(INITIALIZED) == Ready()
    assert list(end.in_flight) == [5]  # calls of the client before are still answered


@pytest.mark.parametrize(
    ("phase", "renewable"),
    [(P.INITIALIZING, False), (P.READY, False)]
    + [(phase, True) for phase in (P.CLOSING, P.CLOSED, P.FAILED)],
)
def test_a_second_initialize_is_refused_and_changes_nothing(phase: Phase, renewable: bool) -> None:
    end = server_in(phase)
    end.renewable = renewable
    caller = end.caller
    error = error_of(end.receive(initialize("2024-11-05", id="again")), "again")
    assert error["code"] == -32600
    assert end.lifecycle.phase is phase
    assert end.caller is caller


def test_a_modern_request_needs_no_session() -> None:
    for phase in (P.CONNECTING, P.INITIALIZING, P.READY):
        end = server_in(phase)
        assert isinstance(end.receive(modern(1, "tools/list")), Call)
        assert end.lifecycle.phase is phase


def test_initialized_counts_only_after_initialize() -> None:
    end = a_server()
    assert isinstance(end.receive(INITIALIZED), Ignored)
    assert end.lifecycle.phase is P.CONNECTING
    end.receive(initialize())
    assert end.receive(INITIALIZED) == Ready()
    assert isinstance(end.receive(INITIALIZED), Ignored)
    assert end.lifecycle.phase is P.READY


def test_other_notifications_wait_for_initialize() -> None:
    changed = notification("notifications/roots/list_changed")
    end = a_server()
    assert isinstance(end.receive(changed), Ignored)
    end.receive(initialize())
    event = end.receive(changed)
    assert isinstance(event, Notice)
    assert event.method == "notifications/roots/list_changed"


def test_an_initialize_that_is_refused_may_be_tried_again() -> None:
    end = a_server()
    assert error_of(end.receive(request(1, "initialize", {})), 1)["code"] == -32602
    assert end.lifecycle.phase is P.CONNECTING
    assert isinstance(end.receive(initialize(id=2)), Opened)


# And through the client's


def test_a_client_answers_ping_from_the_beginning() -> None:
    end = a_client()
    assert said(end.receive(request(1, "ping")))["result"] == {}
    end.initialize(None, 0.0, 10.0)
    assert said(end.receive(request(2, "ping")))["result"] == {}
    assert said(a_client_session().receive(request(3, "ping")))["result"] == {}


def test_a_server_that_may_be_modern_is_still_answered_a_ping_while_being_probed() -> None:
    end = a_client()
    end.speak_modern()
    assert said(end.receive(request(1, "ping")))["result"] == {}
    end.connected()
    assert isinstance(end.receive(request(1, "ping")), Ignored)


def test_a_client_refuses_requests_before_it_is_ready() -> None:
    end = a_client()
    assert error_of(end.receive(request(1, "roots/list")), 1)["code"] == -32600
    entry, _ = end.initialize(None, 0.0, 10.0)
    assert error_of(end.receive(request(2, "roots/list")), 2)["code"] == -32600
    end.receive(answer(entry.id, {}))
    assert isinstance(a_client_session().receive(request(3, "roots/list")), Call)


def test_a_client_hears_only_logging_and_progress_before_it_is_ready() -> None:
    end = a_client()
    log = notification("notifications/message", {"level": "info", "data": "starting"})
    changed = notification("notifications/tools/list_changed")
    assert isinstance(end.receive(log), Notice)
    assert isinstance(end.receive(changed), Ignored)
    assert isinstance(a_client_session().receive(changed), Notice)


def test_a_client_takes_initialize_once() -> None:
    end = a_client()
    end.initialize(None, 0.0, 10.0)
    with pytest.raises(WrongPhase):
        end.initialize(None, 0.0, 10.0)


# Any sequence of messages

_ids = st.sampled_from([0, 1, 2, "1", "a"])
_messages = st.one_of(
    st.builds(initialize, st.sampled_from(["2024-11-05", "2025-03-26", "2025-11-25", "x"]), _ids),
    st.just(INITIALIZED),
    st.builds(call_tool, _ids),
    st.builds(request, _ids, st.sampled_from(["ping", "tools/list", "roots/list", "no/such"])),
    st.builds(modern, _ids, st.sampled_from(["tools/list", "server/discover", "ping"])),
    st.builds(
        lambda id: notification("notifications/cancelled", {"requestId": id}),
        _ids,
    ),
    st.builds(notification, st.sampled_from(["notifications/roots/list_changed", "no/such"])),
    st.builds(answer, _ids, st.just({})),
    st.lists(st.builds(call_tool, _ids), max_size=3).map(lambda m: b"[" + b",".join(m) + b"]"),
    st.binary(max_size=10),
)

LIVE_STEPS = {(a, b) for a, following in TRANSITIONS.items() for b in following.values()}


class AnyConversation(RuleBasedStateMachine):
    """Both ends hear anything at all, and connections come and go."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: list[ServerEnd | ClientEnd] = [a_server(), a_client()]

    def hear(self, end: ServerEnd | ClientEnd, message: bytes) -> Event:
        before = end.lifecycle.phase
        event = end.receive(message)
        after = end.lifecycle.phase
        assert after is before or (before, after) in LIVE_STEPS
        if isinstance(end, ClientEnd):
            assert after is before  # what a server says alone never moves a client
        if isinstance(event, Opened):
            assert before in (P.CONNECTING, P.INITIALIZING, P.READY)
            assert after is P.INITIALIZING
        if isinstance(event, Ready):
            assert (before, after) == (P.INITIALIZING, P.READY)
        return event

    @rule(message=_messages)
    def message_to_the_server(self, message: bytes) -> None:
        self.hear(self.ends[0], message)

    @rule(message=_messages)
    def message_to_the_client(self, message: bytes) -> None:
        self.hear(self.ends[1], message)

    @rule(which=st.integers(0, 1), step=st.sampled_from(["close", "closed", "lose", "connect"]))
    def step(self, which: int, step: Step) -> None:
        life = self.ends[which].lifecycle
        if life.can(step):
            life.take(step)

    @rule(which=st.integers(0, 1))
    def ping(self, which: int) -> None:
        end = self.ends[which]
        event: Any = self.hear(end, request("ping", "ping"))
        assert isinstance(event, Reply)
        assert event.refused is (end.lifecycle.phase not in LIVE)

    @invariant()
    def phases_are_of_the_table(self) -> None:
        for end in self.ends:
            assert end.lifecycle.phase in TRANSITIONS


AnyConversation.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestAnyConversation = AnyConversation.TestCase


def test_a_session_is_the_one_of_its_version() -> None:
    end = a_session("2025-06-18")
    assert end.caller is not None
    assert end.caller.version.name == "2025-06-18"
