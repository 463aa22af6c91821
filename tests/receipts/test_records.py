"""Records are the same, whatever other entries came in the same message."""

import json
from typing import Any

import msgspec
import pytest

from mcpearl.receipts.records import Formatter

_MESSAGE = b'{"jsonrpc":"2.0","id":1,"result":%s}'


def formatted(*entries: Any) -> list[bytes]:
    encoded = msgspec.msgpack.encode(entries)
    return Formatter(b"secret", "run").lines(msgspec.msgpack.decode(encoded), encoded)


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
    plain = (1, 0.5, 0.25, None, _MESSAGE % b'{"content":[1]}')
    asked = (2, 0.5, "tasks/get", "2025-11-25", 2, b'{"taskId":"t0"}', None)
    ended = (3, 0.5, 0.25, None, _MESSAGE % result)
    assert formatted(plain, asked, ended) == [
        *formatted(plain),
        *formatted(asked),
        *formatted(ended),
    ]
    (line,) = formatted(ended)
    record = json.loads(line)
    assert (record["outcome"], record.get("task")) == (outcome, task)
