"""What a broken or hostile peer sends, what it gets for it, and that nothing is worse after."""

import json
import sys
import time
import tracemalloc
from typing import Any

import pytest

from mcpearl.protocol.events import Call, Event, Ignored, Reply
from mcpearl.protocol.framing import ContentLengthFramer, FrameError, Framer, NewlineFramer
from mcpearl.protocol.server_end import ServerEnd
from mcpearl.types.base import CLIENT_CAPABILITIES_KEY, LOG_LEVEL_KEY

from .ends import (
    META,
    RESULT,
    a_client_session,
    a_session,
    answer,
    assert_client_works,
    assert_works,
    call_tool,
    error_of,
    modern,
    request,
)

PARSE_ERROR, INVALID_REQUEST, NOT_FOUND, INVALID_PARAMS = -32700, -32600, -32601, -32602


def raw_call(arguments: bytes, id: bytes = b"1") -> bytes:
    return (
        b'{"jsonrpc":"2.0","id":%b,"method":"tools/call","params":{"name":"x","arguments":%b}}'
        % (id, arguments)
    )


def nested(levels: int, inner: bytes = b"1") -> bytes:
    return b'{"a":' * levels + inner + b"}" * levels


REFUSED: dict[str, tuple[bytes, int, Any]] = {
    "nothing": (b"", PARSE_ERROR, None),
    "garbage": (b"\x00\x01\x02\xff\xfe garbage", PARSE_ERROR, None),
    "an HTTP request": (b"GET / HTTP/1.1", PARSE_ERROR, None),
    "a TLS hello": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", PARSE_ERROR, None),
    "UTF-16": ('{"jsonrpc":"2.0","id":1,"method":"ping"}'.encode("utf-16"), PARSE_ERROR, None),
    "truncated": (call_tool(1)[:-1], PARSE_ERROR, None),
    "truncated in a string": (call_tool(1)[:-12], PARSE_ERROR, None),
    "two messages in one": (call_tool(1) + call_tool(2), PARSE_ERROR, None),
    "wrong jsonrpc": (call_tool(1).replace(b"2.0", b"1.0"), INVALID_REQUEST, 1),
    "jsonrpc a number": (call_tool(1).replace(b'"2.0"', b"2.0"), INVALID_REQUEST, 1),
    "no jsonrpc": (b'{"id":1,"method":"ping"}', INVALID_REQUEST, 1),
    "no method": (b'{"jsonrpc":"2.0","id":1,"params":{}}', INVALID_REQUEST, 1),
    "method null": (b'{"jsonrpc":"2.0","id":1,"method":null}', INVALID_REQUEST, 1),
    "method a list": (b'{"jsonrpc":"2.0","id":"a","method":["ping"]}', INVALID_REQUEST, "a"),
    "method empty": (request(1, ""), NOT_FOUND, 1),
    "id null": (request(None, "ping"), INVALID_REQUEST, None),
    "id a float": (request(1.0, "ping"), INVALID_REQUEST, None),
    "id a fraction": (request(1.5, "ping"), INVALID_REQUEST, None),
    "id true": (request(True, "ping"), INVALID_REQUEST, None),
    "id a list": (request([1], "ping"), INVALID_REQUEST, None),
    "id of 5000 digits": (
        b'{"jsonrpc":"2.0","id":%b,"method":"ping"}' % (b"9" * 5000),
        INVALID_REQUEST,
        None,
    ),
    "not UTF-8 in the method": (
        b'{"jsonrpc":"2.0","id":1,"method":"tools\xff"}',
        PARSE_ERROR,
        None,
    ),
    "not UTF-8 in the id": (b'{"jsonrpc":"2.0","id":"\xc3\x28","method":"x"}', PARSE_ERROR, None),
    "not UTF-8 in params": (
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"\xff"}}',
        PARSE_ERROR,
        1,
    ),
    "not UTF-8 in _meta": (
        b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"x":"\xff"}}}',
        PARSE_ERROR,
        1,
    ),
    "half a surrogate pair in the id": (
        b'{"jsonrpc":"2.0","id":"\\ud800","method":"ping"}',
        PARSE_ERROR,
        None,
    ),
    "half a surrogate pair in params": (
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"\\udc00 "}}',
        PARSE_ERROR,
        None,
    ),
    "NaN as params": (b'{"jsonrpc":"2.0","id":1,"method":"x","params":NaN}', PARSE_ERROR, None),
    "NaN in arguments": (raw_call(b'{"a":NaN}'), PARSE_ERROR, None),
    "Infinity in arguments": (raw_call(b'{"a":-Infinity}'), PARSE_ERROR, None),
    "a comment": (b'{"jsonrpc":"2.0",/**/"id":1,"method":"ping"}', PARSE_ERROR, None),
    "params a list": (request(1, "tools/call", ["x"]), INVALID_PARAMS, 1),
    "params a string": (request(1, "tools/call", "x"), INVALID_PARAMS, 1),
    "params a number": (request(1, "tools/list", 7), INVALID_PARAMS, 1),
    "params null": (
        b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":null}',
        INVALID_PARAMS,
        1,
    ),
    "a name that is a number": (request(1, "tools/call", {"name": 7}), INVALID_PARAMS, 1),
    "no name": (request(1, "tools/call", {}), INVALID_PARAMS, 1),
    "_meta a list": (request(1, "tools/list", {"_meta": []}), INVALID_PARAMS, 1),
    "a float that overflows": (
        b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"x":1e999}}}',
        INVALID_PARAMS,
        1,
    ),
    "an integer of 5000 digits in _meta": (
        b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"x":%b}}}'
        % (b"9" * 5000),
        INVALID_PARAMS,
        1,
    ),
    "10,000 levels of objects": (nested(10_000), PARSE_ERROR, None),
    "10,000 open brackets": (b"[" * 10_000, PARSE_ERROR, None),
    "10,000 levels of lists": (b"[" * 10_000 + b"]" * 10_000, PARSE_ERROR, None),
    "10,000 levels in arguments": (raw_call(nested(10_000)), PARSE_ERROR, None),
    "a million levels in arguments": (raw_call(b"[" * 1_000_000), PARSE_ERROR, None),
    "10,000 levels in an unknown member": (
        b'{"jsonrpc":"2.0","id":1,"method":"ping","x":%b}' % nested(10_000),
        PARSE_ERROR,
        None,
    ),
    "a batch": (b"[%b]" % request(1, "ping"), INVALID_REQUEST, None),
    "a number": (b"7", INVALID_REQUEST, None),
    "null": (b"null", INVALID_REQUEST, None),
}


@pytest.mark.parametrize("name", REFUSED)
def test_each_is_refused_and_nothing_is_worse_after(name: str) -> None:
    message, code, id = REFUSED[name]
    end = a_session()
    waiting = end.receive(call_tool("waiting"))
    assert isinstance(waiting, Call)
    event = end.receive(message)
    error = error_of(event, id)
    assert error["code"] == code, error
    assert 0 < len(error["message"]) < 500
    assert isinstance(event, Reply)
    assert event.refused
    assert b"\n" not in event.message
    assert_works(end)
    assert end.in_flight == {"waiting": waiting}


@pytest.mark.parametrize("name", REFUSED)
def test_a_client_stays_calm_too(name: str) -> None:
    end = a_client_session()
    event = end.receive(REFUSED[name][0])
    assert isinstance(event, Ignored | Reply)
    if isinstance(event, Reply):
        assert "error" in json.loads(event.message)
    assert_client_works(end)


IGNORED: dict[str, bytes] = {
    "an answer to no request": answer(99, {}),
    "an answer to a string": answer("1", {}),
    "an answer to true": answer(True, {}),
    "an answer to a float": answer(1.0, {}),
    "an answer to nothing": b'{"jsonrpc":"2.0","result":{}}',
    "an answer of both kinds": b'{"jsonrpc":"2.0","id":1,"result":{},"error":{}}',
    "an error without an id": b'{"jsonrpc":"2.0","error":{"code":-32700,"message":"?"}}',
    "an error with id null": b'{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":""}}',
    "an error that is none": b'{"jsonrpc":"2.0","id":99,"error":"\xff"}',
    "an answer of a wrong version": b'{"jsonrpc":"1.0","id":1,"result":{}}',
    "an answer with a huge id": answer(10**300, {}),
}


@pytest.mark.parametrize("name", IGNORED)
def test_each_is_ignored_and_nothing_is_worse_after(name: str) -> None:
    end = a_session()
    assert isinstance(end.receive(IGNORED[name]), Ignored)
    assert_works(end)
    client = a_client_session()
    assert isinstance(client.receive(IGNORED[name]), Ignored)
    assert_client_works(client)


# Strange, and within the rules


@pytest.mark.parametrize("id", [2**63, 2**64, -(2**70), 10**4000, "", "\0", "\n", "😀" * 100])
def test_a_strange_id_comes_back_as_it_was(id: Any) -> None:
    end = a_session()
    call = end.receive(call_tool(id))
    assert isinstance(call, Call)
    sent = end.result(call, RESULT)
    assert sent is not None
    assert json.loads(sent)["id"] == id
    assert b"\n" not in sent
    error = error_of(end.receive(request(id, "no/such")), id)
    assert error["code"] == NOT_FOUND


def test_the_last_of_two_members_counts() -> None:
    end = a_session()
    call = end.receive(
        b'{"jsonrpc":"2.0","id":1,"id":2,"method":"ping","method":"tools/call",'
        b'"params":{"name":"a","name":"b"}}'
    )
    assert isinstance(call, Call)
    assert (call.id, call.method, call.params.name) == (2, "tools/call", "b")


def test_arguments_are_not_looked_into() -> None:
    """They are decoded once, by the tool; until then they are bytes."""
    call = a_session().receive(raw_call(b'{"a":"\xff"}'))
    assert isinstance(call, Call)
    assert bytes(call.params.arguments) == b'{"a":"\xff"}'


def test_a_control_character_in_an_error_is_escaped() -> None:
    event = a_session().receive(request(1, "no\n\r\u2028such"))
    assert isinstance(event, Reply)
    assert b"\n" not in event.message
    assert b"\r" not in event.message


# Nesting, exactly at the edge


def deep_messages(levels: int) -> list[bytes]:
    meta = json.dumps(META | {CLIENT_CAPABILITIES_KEY: 0}).encode()
    deep = nested(levels)
    capabilities = b'{"experimental":{"x":%b}}' % deep
    return [
        raw_call(deep),
        b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"x":%b}}}' % deep,
        b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"x":%b}}' % deep,
        b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":%b}}'
        % meta.replace(b": 0", b":" + capabilities),
        b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":%b}}'
        % meta.replace(b": 0", b":{},%b:%b" % (json.dumps(LOG_LEVEL_KEY).encode(), deep)),
        b'{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"","data":%b}}' % deep,
        b'{"jsonrpc":"2.0","id":1,"result":%b}' % deep,
        b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"_meta":%b}}' % deep,
        b'{"jsonrpc":"2.0","x":%b}' % deep,
    ]


def test_every_depth_of_nesting_is_admitted_or_refused() -> None:
    """Some step always has the least stack left; none of them may be the one that raises."""
    end, client = a_session(), a_client_session()
    limit = sys.getrecursionlimit()
    for levels in [*range(1, limit - 200, 97), *range(limit - 200, limit + 20)]:
        for message in deep_messages(levels):
            # Twice: the second is compared to what the first left behind.
            for _ in range(2):
                event: Event = end.receive(message)
                if isinstance(event, Call):
                    end.drop(event)
                client.receive(message)
    assert_works(end)
    assert_client_works(client)


def test_a_stack_that_ends_while_a_request_is_admitted(monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(*_: object) -> None:
        raise RecursionError

    end = a_session()
    with monkeypatch.context() as patch:
        patch.setattr(ServerEnd, "_who", exhausted)
        assert error_of(end.receive(call_tool(1)), 1)["code"] == INVALID_PARAMS
    assert_works(end)


# Much


@pytest.mark.parametrize("make", [NewlineFramer, ContentLengthFramer])
def test_a_line_of_a_hundred_megabytes(make: Any) -> None:
    framer: Framer = make(1024 * 1024)
    end = a_session()
    chunk = b"x" * (64 * 1024)
    head = b'{"jsonrpc":"2.0","id":1,"method":"'
    if make is ContentLengthFramer:
        head = b"Content-Length: 104857600\r\n\r\n" + head
    tracemalloc.start()
    try:
        frames = framer.feed(head)
        for _ in range(1600):
            frames += framer.feed(chunk)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2 * 1024 * 1024
    (refused,) = frames
    assert isinstance(refused, FrameError)
    error = error_of(end.refuse_frame(refused.reason), None)
    assert error["code"] == INVALID_REQUEST
    assert "limit" in error["message"]
    following = framer.feed(b"\n" + framer.frame(call_tool(5)))
    assert following == [call_tool(5)]
    assert_works(end)


def answer_size(end: ServerEnd, message: bytes) -> int:
    event = end.receive(message)
    return len(event.message) if isinstance(event, Reply) else 0


@pytest.mark.parametrize(
    "message",
    [
        request(1, "x" * 1_000_000),
        request(1, "tools/call", {"name": "x", "task": {"ttl": "x" * 1_000_000}}),
        request(1, "logging/setLevel", {"level": "x" * 1_000_000}),
        request(1, "x" * 10, "y" * 1_000_000),
        modern(1, "tools/list", **{"io.modelcontextprotocol/protocolVersion": "9" * 1_000_000}),
        modern(1, "tools/list", **{LOG_LEVEL_KEY: "x" * 1_000_000}),
        b'{"jsonrpc":"%b"}' % (b"x" * 1_000_000),
        b'"' + b"x" * 1_000_000 + b'"',
        b"x" * 1_000_000,
    ],
)
def test_a_refusal_is_short_however_long_the_message(message: bytes) -> None:
    assert 0 < answer_size(a_session(), message) < 1500


def test_a_flood_of_garbage_is_counted_and_costs_no_memory() -> None:
    end = a_session()
    junk = [message for message, *_ in REFUSED.values() if len(message) < 1000]
    for message in junk:
        end.receive(message)
    tracemalloc.start()
    try:
        for _ in range(100):
            for message in junk:
                end.receive(message)
        assert tracemalloc.get_traced_memory()[0] < 100_000
    finally:
        tracemalloc.stop()
    assert end.malformed > 1000
    assert_works(end)


def test_who_asks_in_ever_new_ways_is_not_remembered() -> None:
    end = a_session()
    tracemalloc.start()
    try:
        for number in range(2000):
            extensions = {f"com.example/{number}": {"x": "y" * 1000}}
            message = modern(
                1, "tools/list", **{CLIENT_CAPABILITIES_KEY: {"extensions": extensions}}
            )
            event = end.receive(message)
            assert isinstance(event, Call)
            end.drop(event)
        del event, message, extensions
        assert tracemalloc.get_traced_memory()[0] < 100_000
    finally:
        tracemalloc.stop()


def test_a_large_message_is_read_in_a_moment() -> None:
    end = a_session()
    message = raw_call(b"[" + b'{"a":[1,2,3]},' * 500_000 + b"1]")
    start = time.process_time()
    assert isinstance(end.receive(message), Call)
    assert time.process_time() - start < 1.0
