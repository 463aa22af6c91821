"""Records are the same, whatever other entries came in the same message."""

import json
from typing import Any

import msgspec
import pytest

from mcpearl.receipts.records import Formatter

_MESSAGE = b'{"jsonrpc":"2.0","id":1,"result":%s}'


def formatted(*calls: tuple[Any, ...]) -> list[bytes]:
    columns = [column for call in calls for column in call]
    encoded = msgspec.msgpack.encode(columns)
    return Formatter(b"secret", "run").lines(1e9, 0, msgspec.msgpack.decode(encoded), encoded)


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
