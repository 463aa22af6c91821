"""Records are the same, whatever other entries came in the same message."""

import json
from hashlib import sha256
from typing import Any

import msgspec
import pytest

from mcpearl.receipts.records import Formatter, Salts

_MESSAGE = b'{"jsonrpc":"2.0","id":1,"result":%s}'


def formatted(*calls: tuple[Any, ...]) -> list[bytes]:
    columns = [column for call in calls for column in call]
    received = msgspec.msgpack.decode(msgspec.msgpack.encode(columns))
    return Formatter(b"secret", "run").lines(1e9, 0, received)


def ended(number: int, answer: Any) -> tuple[Any, ...]:
    """Return the note of a call whose begin was noted before."""
    return (0.5, 0.75, None, None, None, None, number, answer)


@pytest.mark.parametrize(
    ("result", "outcome", "task"),
    [
        (b'{"content":[]}', "result", None),
        (b'{"content":[],"isError":true}', "tool_error", None),
        (b'{"resultType":"input_required"}', "input_required", None),
        (b'{"task":{"taskId":"t1"}}', "result", "t1"),
        (b'{"content":[{"text":"isError\\":true"}]}', "result", None),
    ],
)
def test_a_record_does_not_depend_on_the_others_of_its_message(
    result: bytes, outcome: str, task: str | None
) -> None:
    plain = ended(3, _MESSAGE % b'{"content":[1]}')
    asked = (0.5, None, "tasks/get", "2025-11-25", 2, None, b'{"taskId":"t0"}', None)
    last = ended(4, _MESSAGE % result)
    assert formatted(plain, asked, last) == [
        *formatted(plain),
        *formatted(asked),
        *formatted(last),
    ]
    (line,) = formatted(last)
    record = json.loads(line)
    assert (record["outcome"], record.get("task")) == (outcome, task)


@pytest.mark.parametrize(
    "id", ["1", "12345678901234567890", '"a"', '",\\"result\\":"', '"%s"' % ("x" * 99)]
)
@pytest.mark.parametrize(
    ("member", "contents"),
    [
        ("result", "{}"),
        ("result", '{"a":1,"result":{"b":2},"error":{"code":1}}'),
        ("error", '{"code":1,"message":""}'),
        ("error", '{"code":1,"message":"","data":{"a":1,"result":{}}}'),
        ("error", '{"code":1,"result":{}}'),
    ],
)
def test_the_digest_of_an_answer_is_of_its_contents(id: str, member: str, contents: str) -> None:
    answer = f'{{"jsonrpc":"2.0","id":{id},"{member}":{contents}}}'.encode()
    (line,) = formatted(ended(3, answer))
    record = json.loads(line)
    salt = Salts(b"secret", "run").of(3)[1]
    assert record["outcome"] == member
    assert record["result"] == sha256(salt + contents.encode()).hexdigest()


def test_many_calls_are_recorded_as_each_of_them_is() -> None:
    answers = [_MESSAGE % b'{"isError":%s}' % (b"true" if n % 7 else b"false") for n in range(300)]
    params = [b'{"name":"t%d"}' % n for n in range(300)]
    calls = [
        (n + 0.5, n + 0.75, "tools/call", "2025-11-25", n, None, params[n], answers[n])
        for n in range(300)
    ]
    together = list(map(json.loads, formatted(*calls)))
    assert [each["call"] for each in together[::2]] == [f"run-{n}" for n in range(1, 301)]
    salts = Salts(b"secret", "run")
    for n, (begin, end) in enumerate(zip(together[::2], together[1::2], strict=True)):
        of_params, of_result = salts.of(n + 1)
        assert (begin["name"], begin["request"], end["call"]) == (f"t{n}", n, begin["call"])
        assert begin["arguments"] == sha256(of_params + params[n]).hexdigest()
        contents = answers[n][len(_MESSAGE) - 3 : -1]
        assert end["result"] == sha256(of_result + contents).hexdigest()
        assert end["outcome"] == ("tool_error" if n % 7 else "result")


def test_a_call_noted_at_once_has_the_records_of_one_noted_in_two_parts() -> None:
    params, answer = b'{"name":"add","arguments":{"a":1}}', _MESSAGE % b'{"content":[1]}'
    about = ("tools/call", "2025-11-25", 7, ["alice", None, "https://issuer.example"], params)
    at_once = formatted((0.5, 0.75, *about, answer))
    assert at_once == formatted((0.5, None, *about, None), ended(1, answer))
    begin, end = map(json.loads, at_once)
    assert begin == {
        "kind": "begin",
        "call": "run-1",
        "at": 1e9 + 0.5,
        "method": "tools/call",
        "version": "2025-11-25",
        "request": 7,
        "arguments": begin["arguments"],
        "name": "add",
        "principal": "alice",
        "issuer": "https://issuer.example",
    }
    assert (end["call"], end["at"], end["duration"]) == ("run-1", 1e9 + 0.75, 0.25)


def test_calls_are_numbered_in_the_order_in_which_they_began() -> None:
    call = (0.5, 0.75, "tools/call", "2025-11-25", 7, None, b"{}", _MESSAGE % b"{}")
    other = (None, None, None, None, None, None, {"kind": "gap"}, None)
    held = [json.loads(line) for line in formatted(call, ended(9, ("cancelled", b"")), other, call)]
    assert [(each["kind"], each.get("call")) for each in held] == [
        ("begin", "run-1"),
        ("end", "run-1"),
        ("end", "run-9"),
        ("gap", None),
        ("begin", "run-2"),
        ("end", "run-2"),
    ]
    assert held[2]["outcome"] == "cancelled"
    assert "result" not in held[2]
