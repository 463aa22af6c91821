"""A session that is taken down as a value and continued at another end."""

import msgspec
import pytest

from mcpearl.protocol.events import Call, Opened, Ready, Reply
from mcpearl.protocol.lifecycle import Phase, WrongPhase
from mcpearl.protocol.snapshot import EndSnapshot

from .ends import (
    INITIALIZED,
    RESULT,
    a_server,
    a_session,
    assert_works,
    call_tool,
    initialize,
    request,
)


def stored(snapshot: EndSnapshot) -> EndSnapshot:
    """What a store would return of it."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(snapshot), type=EndSnapshot)


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
def test_a_restored_end_serves_calls_as_the_first_did(version: str) -> None:
    first = a_session(version)
    second = a_server(principal="ann")
    second.restore(stored(first.snapshot()))
    assert_works(second)
    answers = []
    for end in (first, second):
        call = end.receive(call_tool(7))
        assert isinstance(call, Call)
        assert call.caller.version.name == version
        answers.append(end.result(call, RESULT))
    assert answers[0] == answers[1]
    assert second.caller is not None and second.caller.principal == "ann"


def test_client_capabilities_and_log_level_are_kept() -> None:
    first = a_server()
    opened = first.receive(initialize(elicitation={"url": {}}, experimental={"x": {"y": 1}}))
    assert isinstance(opened, Opened)
    first.receive(INITIALIZED)
    assert isinstance(first.receive(request(1, "logging/setLevel", {"level": "error"})), Reply)
    second = a_server()
    second.restore(stored(first.snapshot()))
    assert first.caller is not None and second.caller is not None
    assert second.caller.capabilities == first.caller.capabilities
    assert second.caller.client == first.caller.client
    assert second.caller.log_level == "error"
    assert second.snapshot() == first.snapshot()


def test_a_handshake_is_continued_where_it_was() -> None:
    first = a_server()
    first.receive(initialize())
    assert not first.snapshot().ready
    second = a_server()
    second.restore(stored(first.snapshot()))
    assert second.lifecycle.phase is Phase.INITIALIZING
    assert isinstance(second.receive(INITIALIZED), Ready)
    assert_works(second)


def test_an_end_with_a_session_is_not_restored_into() -> None:
    end = a_session()
    with pytest.raises(WrongPhase):
        end.restore(EndSnapshot("2025-06-18"))


def test_what_changed_at_another_end_is_adopted() -> None:
    first, second = a_server(), a_server()
    first.receive(initialize())
    second.restore(stored(first.snapshot()))
    first.receive(INITIALIZED)
    first.receive(request(1, "logging/setLevel", {"level": "error"}))
    changed = stored(first.snapshot())
    assert second.adopt(changed), "it became ready"
    assert not second.adopt(changed), "it was ready before"
    assert second.caller is not None and second.caller.log_level == "error"
    assert_works(second)
