"""JSON-RPC bytes to envelopes and back."""

import json
import tracemalloc
from typing import Any

import msgspec
import pytest
from msgspec import UNSET, Raw

from mcpearl.protocol import codec
from mcpearl.protocol.errors import Malformed, McpError
from mcpearl.protocol.nesting import MAX_DEPTH
from mcpearl.types.jsonrpc import ErrorObject


def refused(message: bytes) -> Malformed:
    with pytest.raises(Malformed) as caught:
        codec.decode(message)
    return caught.value


@pytest.mark.parametrize("id", [0, 1, -1, 2**53, 2**64, 10**400, "", "a", "1", "ø", "\0"])
def test_a_request_keeps_its_id(id: int | str) -> None:
    text = json.dumps({"jsonrpc": "2.0", "id": id, "method": "tools/list", "params": {"a": 1}})
    envelope = codec.decode(text.encode())
    assert envelope.id == id
    assert type(envelope.id) is type(id)
    assert envelope.method == "tools/list"
    assert bytes(envelope.params) == b'{"a": 1}'  # type: ignore[arg-type]
    assert envelope.result is envelope.error is UNSET


def test_a_notification_has_no_id() -> None:
    envelope = codec.decode(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
    assert envelope.id is UNSET
    assert envelope.params is UNSET


def test_an_answer_is_a_result_or_an_error() -> None:
    result = codec.decode(b'{"jsonrpc":"2.0","id":7,"result":{"tools":[]}}')
    assert (result.id, result.method, result.error) == (7, UNSET, UNSET)
    error = codec.decode(b'{"jsonrpc":"2.0","id":7,"error":{"code":-1,"message":"no"}}')
    assert isinstance(error.error, Raw)
    assert codec.decode_error(error.error) == ErrorObject(code=-1, message="no")


def test_an_error_without_an_id_is_a_message() -> None:
    assert codec.decode(b'{"jsonrpc":"2.0","error":{"code":-32700,"message":"?"}}').id is UNSET


def test_members_nobody_knows_are_skipped() -> None:
    assert codec.decode(b'{"jsonrpc":"2.0","x":[{}],"method":"ping","id":1}').method == "ping"


def test_the_last_of_two_members_of_one_name_counts() -> None:
    assert codec.decode(b'{"jsonrpc":"2.0","id":1,"method":"a","id":2,"method":"ping"}').id == 2


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"{",
        b"hello",
        b'{"jsonrpc":"2.0","id":1,"method":"ping"',
        b'{"jsonrpc":"2.0","id":1,"method":"ping"}}',
        b'{"jsonrpc":"2.0","id":1,"method":"ping"} {}',
        b"{'jsonrpc':'2.0'}",
        b'{"jsonrpc":"2.0","id":1,"method":"x","params":NaN}',
        b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":-Infinity}}',
        b'{"jsonrpc":"2.0","id":1,"method":"\xff\xfe"}',
        b'{"jsonrpc":"\xc3","id":1,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":"\xed\xa0\x80","method":"ping"}',
        b'{"jsonrpc":"2.0","id":"\\ud800","method":"ping"}',
        b"\xef\xbb\xbf{}",
        b"\x00" * 64,
        b"[" * 10_000,
        b"[" * 10_000 + b"]" * 10_000,
        b'{"a":' * 10_000 + b"1" + b"}" * 10_000,
        # Of the wrong shape before it stops being JSON: it is no JSON all the same.
        b'{"jsonrpc":1,"id":',
        b'{"id":1,"method":"ping"',
        b"[1,",
        b'"abc',
    ],
)
def test_what_is_not_json(message: bytes) -> None:
    error = refused(message)
    assert error.code == -32700
    assert error.id is None
    assert not error.is_answer


@pytest.mark.parametrize(
    ("message", "id"),
    [
        (b"1", None),
        (b"null", None),
        (b'"ping"', None),
        (b"{}", None),
        (b'{"jsonrpc":"2.0"}', None),
        (b'{"jsonrpc":"2.0","id":1}', 1),
        (b'{"jsonrpc":"2.0","id":"a","params":{}}', "a"),
        (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', 1),
        (b'{"jsonrpc":2.0,"id":1,"method":"ping"}', 1),
        (b'{"jsonrpc":"2.0 ","id":1,"method":"ping"}', 1),
        (b'{"id":"x","method":"ping"}', "x"),
        (b'{"jsonrpc":"2.0","id":1,"method":null}', 1),
        (b'{"jsonrpc":"2.0","id":1,"method":7}', 1),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', None),
        (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', None),
        (b'{"jsonrpc":"2.0","id":1.0,"method":"ping"}', None),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', None),
        (b'{"jsonrpc":"2.0","id":1e3,"method":"ping"}', None),
        (b'{"jsonrpc":"2.0","id":[1],"method":"ping"}', None),
        (b'{"jsonrpc":"2.0","id":{},"method":"ping"}', None),
        (b'{"jsonrpc":"2.0","id":%b,"method":"ping"}' % (b"9" * 5000), None),
    ],
)
def test_json_that_is_no_message_is_answered_under_its_id(
    message: bytes, id: int | str | None
) -> None:
    error = refused(message)
    assert error.code == -32600
    assert error.id == id
    assert type(error.id) is type(id)
    assert not error.is_answer


@pytest.mark.parametrize(
    "message",
    [
        b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"?"}}',
        b'{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":"both"}}',
        b'{"jsonrpc":"2.0","result":{}}',
        b'{"jsonrpc":"1.0","id":1,"result":{}}',
        b'{"id":1,"error":{}}',
        b'{"jsonrpc":"2.0","id":true,"result":{}}',
        b'{"jsonrpc":"2.0","id":1.0,"result":{}}',
    ],
)
def test_a_malformed_answer_is_known_as_one(message: bytes) -> None:
    assert refused(message).is_answer


def test_a_reason_quotes_little_of_a_long_message() -> None:
    error = refused(b'{"jsonrpc":"%b","id":1,"method":"ping"}' % (b"x" * 1_000_000))
    assert len(error.message) < 200


@pytest.mark.parametrize(
    "raw",
    [
        b"null",
        b"[]",
        b'"no"',
        b"{}",
        b'{"code":"1","message":"m"}',
        b'{"code":1.5,"message":"m"}',
        b'{"code":1}',
        b'{"code":1,"message":"\xff"}',
        b'{"code":1,"message":"m","data":' + b"[" * 10_000 + b"]" * 10_000 + b"}",
    ],
)
def test_a_malformed_error_object_still_says_something(raw: bytes) -> None:
    error = codec.decode_error(raw)
    assert error.code == -32600
    assert "malformed" in error.message


def test_an_error_object_keeps_its_data() -> None:
    assert codec.decode_error(b'{"code":-32002,"message":"m","data":{"uri":"a:b"}}').data == {
        "uri": "a:b"
    }


@pytest.mark.parametrize("id", [0, 1, 2**70, "a", 'say "hi"\n', "ø"])
def test_encoded_messages_decode_to_what_was_said(id: int | str) -> None:
    def read(message: bytes) -> Any:
        codec.decode(message)
        return json.loads(message)

    assert read(codec.encode_request(id, "ping", b'{"a":1}')) == {
        "jsonrpc": "2.0",
        "id": id,
        "method": "ping",
        "params": {"a": 1},
    }
    assert read(codec.encode_result(id, b"{}")) == {"jsonrpc": "2.0", "id": id, "result": {}}
    for body, members, result in (
        (b"{}", b'"b":2', {"b": 2}),
        (b'{"a":1}', b"", {"a": 1}),
        (b'{"a":1}', b'"b":2,"c":3', {"b": 2, "c": 3, "a": 1}),
    ):
        assert read(codec.encode_result(id, body, members))["result"] == result
    assert read(codec.encode_error(id, McpError(-32602, "no", {"name": "x"}))) == {
        "jsonrpc": "2.0",
        "id": id,
        "error": {"code": -32602, "message": "no", "data": {"name": "x"}},
    }


def test_a_notification_without_params_has_no_params() -> None:
    plain = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'
    assert codec.encode_notification("notifications/initialized") == plain
    assert codec.encode_notification("notifications/initialized", b"{}") == plain
    assert json.loads(codec.encode_notification("n", b'{"a":1}'))["params"] == {"a": 1}


@pytest.mark.parametrize("method", ['a"b', "a\nb", "a\\b", '","id":2,"x":"', "ø/😀", "\0", ""])
def test_a_method_of_any_name_stays_one_string_on_one_line(method: str) -> None:
    for message in (
        codec.encode_request(1, method, b"{}"),
        codec.encode_notification(method),
        codec.encode_notification(method, b'{"a":1}'),
    ):
        assert json.loads(message)["method"] == method
        assert json.loads(message).get("id", 1) == 1
        assert b"\n" not in message


def test_an_error_without_an_id_answers_null() -> None:
    assert json.loads(codec.encode_error(None, Malformed(-32700, "?"))) == {
        "jsonrpc": "2.0",
        "id": None,
        "error": {"code": -32700, "message": "?"},
    }


@pytest.mark.parametrize("data", [object(), {"a": {1, object()}}, "\udcff", {1.5: object()}])
def test_an_error_can_always_be_told(data: object) -> None:
    told = json.loads(codec.encode_error(1, McpError(-32603, "caf\udce9 is closed", data)))
    assert told["error"] == {"code": -32603, "message": "caf? is closed"}


def deep(levels: int) -> list[Any]:
    data: list[Any] = []
    for _ in range(levels):
        data = [data]
    return data


@pytest.mark.parametrize("levels", [MAX_DEPTH, 5000])
def test_an_error_with_data_too_deep_to_encode_is_sent_without_it(levels: int) -> None:
    error = McpError(1, "deep", deep(levels))
    assert "data" not in json.loads(codec.encode_error(1, error))["error"]


# Nesting: the envelope is one level, so its members may have one less.


def nested(levels: int) -> bytes:
    return b'{"a":[' * (levels // 2) + b"[]" * (levels % 2) + b"]}" * (levels // 2)


@pytest.mark.parametrize("member", [b'"method":"m","params"', b'"result"', b'"error"', b'"x"'])
def test_nesting_up_to_the_bound_is_read(member: bytes) -> None:
    message = b'{"jsonrpc":"2.0","id":1,"method":"m",%b:%b}' % (member, nested(MAX_DEPTH - 1))
    assert codec.decode(message).id == 1


@pytest.mark.parametrize("levels", [MAX_DEPTH, MAX_DEPTH + 1, 600])
@pytest.mark.parametrize("member", [b'"method":"m","params"', b'"method":"m","x"'])
def test_nesting_past_the_bound_is_refused_under_its_id(member: bytes, levels: int) -> None:
    with pytest.raises(Malformed, match="deeper than 128 levels") as caught:
        codec.decode(b'{"jsonrpc":"2.0","id":1,%b:%b}' % (member, nested(levels)))
    assert (caught.value.code, caught.value.id, caught.value.is_answer) == (-32700, 1, False)


def test_an_answer_nested_past_the_bound_says_that_it_is_an_answer() -> None:
    with pytest.raises(Malformed, match="deeper than 128 levels") as caught:
        codec.decode(b'{"jsonrpc":"2.0","id":7,"result":%b}' % nested(MAX_DEPTH))
    assert (caught.value.id, caught.value.is_answer) == (7, True)


def test_a_batch_nested_past_the_bound_is_refused() -> None:
    message = b'{"jsonrpc":"2.0","method":"m","params":%b}'
    assert len(codec.decode_batch(b"[%b]" % (message % nested(MAX_DEPTH - 2)), 2)) == 1
    with pytest.raises(Malformed, match="deeper than 128 levels"):
        codec.decode_batch(b"[%b]" % (message % nested(MAX_DEPTH - 1)), 2)


def test_nothing_is_sent_that_is_nested_past_the_bound() -> None:
    for encode in (
        lambda body: codec.encode_result(1, body),
        lambda body: codec.encode_result("x", body),
        lambda body: codec.encode_request(1, "m", body),
        lambda body: codec.encode_notification("m", body),
    ):
        encode(nested(MAX_DEPTH - 1))
        with pytest.raises(ValueError, match="deeper than 128 levels"):
            encode(nested(MAX_DEPTH))


def test_data_of_an_error_may_be_null() -> None:
    assert json.loads(codec.encode_error(1, McpError(1, "m", None)))["error"]["data"] is None
    assert "data" not in json.loads(codec.encode_error(1, McpError(1, "m")))["error"]


@pytest.mark.parametrize(
    ("members", "body", "spliced"),
    [
        (b"", b"{}", b"{}"),
        (b"", b'{"a":1}', b'{"a":1}'),
        (b'"b":2', b"{}", b'{"b":2}'),
        (b'"b":2', b'{"a":1}', b'{"b":2,"a":1}'),
    ],
)
def test_splice_puts_members_in_front(members: bytes, body: bytes, spliced: bytes) -> None:
    assert codec.splice(members, body) == spliced


# Batches


@pytest.mark.parametrize("message", [b"[]", b"[1]", b"  [", b"\r\n\t[1]", b" " * 200 + b"[]"])
def test_a_batch_is_told_by_its_bracket(message: bytes) -> None:
    assert codec.is_batch(message)


@pytest.mark.parametrize("message", [b"", b"{}", b'"["', b"{[", b"1"])
def test_all_else_is_no_batch(message: bytes) -> None:
    assert not codec.is_batch(message)


def test_a_batch_is_cut_into_its_messages() -> None:
    parts = codec.decode_batch(b'[{"a":1}, 2 ,"x",[null]]', 10)
    assert [bytes(part) for part in parts] == [b'{"a":1}', b"2", b'"x"', b"[null]"]


def test_a_batch_may_hold_exactly_the_limit() -> None:
    assert len(codec.decode_batch(b"[1,2,3]", 3)) == 3
    with pytest.raises(Malformed, match="a batch may hold 2 messages") as caught:
        codec.decode_batch(b"[1,2,3]", 2)
    assert caught.value.code == -32600


def test_a_batch_must_not_be_empty() -> None:
    with pytest.raises(Malformed, match="empty") as caught:
        codec.decode_batch(b"[]", 10)
    assert caught.value.code == -32600


@pytest.mark.parametrize("message", [b"[1,", b"[1]]", b"[NaN]", b"[{]", b"[" * 10_000])
def test_a_batch_that_is_not_json(message: bytes) -> None:
    with pytest.raises(Malformed) as caught:
        codec.decode_batch(message, 10)
    assert caught.value.code == -32700


def test_a_batch_over_the_limit_is_refused_without_holding_its_messages() -> None:
    message = b"[" + b"1," * 1_000_000 + b"1]"
    with pytest.raises(Malformed):
        codec.decode_batch(b"[1,1]", 1)
    codec.decode_batch(b"[1]", 1000)  # makes the decoder, which is kept
    tracemalloc.start()
    try:
        with pytest.raises(Malformed):
            codec.decode_batch(message, 1000)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_json_encoded_elsewhere_is_put_on_one_line() -> None:
    raw = b'{"a":\n 1,\r\n"b":"x\\ny z"}'
    for message in (
        codec.encode_result(1, raw),
        codec.encode_result(1, raw[:-1] + b',"c":"%b"}' % (b"x" * 500)),
        codec.encode_request("x", "m", raw),
        codec.encode_notification("m", raw),
        codec.encode_error(1, McpError(1, "", msgspec.Raw(raw))),
    ):
        assert b"\n" not in message
        assert b"\r" not in message
        assert b'{"a":1,"b":"x\\ny z"' in message


def test_what_is_not_json_and_has_line_breaks_is_not_sent() -> None:
    with pytest.raises(msgspec.DecodeError):
        codec.encode_result(1, b'{}\n{"jsonrpc":"2.0","id":2,"result":{}}')


@pytest.mark.parametrize(
    ("head", "id"),
    [
        (b'{"jsonrpc":"2.0","id":7,"result":{"content":', 7),
        (b' {"id" : 12, "jsonrpc": "2.0", "error": {', 12),
        (b'{"jsonrpc":"2.0","id":7,"method":"ping","params":{"id":8,"result":', None),
        (b'{"jsonrpc":"2.0","method":"x","params":{"id":7,"result":', None),
        (b'{"jsonrpc":"2.0","result":{"id":7,"result":1', None),
        (b'{"jsonrpc":"2.0","id":"7","result":', None),
        (b'{"jsonrpc":"2.0","id":7', None),
        (b"", None),
    ],
)
def test_what_the_first_bytes_of_a_message_answer(head: bytes, id: int | None) -> None:
    assert codec.answered_by(head) == id
