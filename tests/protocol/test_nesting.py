"""How deeply JSON may be nested: the same on every Python, whatever strings contain."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpearl.protocol.nesting import MAX_DEPTH, is_too_deep

TEXT = st.text(alphabet='[]{}"\\a/\n\u00e9,:', max_size=6)
VALUES = st.recursive(
    st.one_of(TEXT, st.none(), st.integers()),
    lambda inner: st.one_of(st.lists(inner), st.dictionaries(TEXT, inner)),
    max_leaves=12,
)


def depth(value: Any) -> int:
    if not isinstance(value, dict | list):
        return 0
    inner = value.values() if isinstance(value, dict) else value
    return 1 + max(map(depth, inner), default=0)


def wrapped(value: Any, levels: int) -> Any:
    for level in range(levels):
        value = [value, '[["'] if level % 2 else {'{"[': value, "\\": 1}
    return value


@given(VALUES)
def test_the_bound_is_exact(value: Any) -> None:
    room = MAX_DEPTH - depth(value)
    for ascii in (True, False):
        assert not is_too_deep(json.dumps(wrapped(value, room), ensure_ascii=ascii).encode())
        assert is_too_deep(json.dumps(wrapped(value, room + 1), ensure_ascii=ascii).encode())


@pytest.mark.parametrize(
    "inner",
    [
        b"[]," * 5000 + b"[]",
        b"[[[[[[]]]]]]," * 500 + b"1",
        b'{"[[[[":"]]]]"},' * 3000 + b'"\\\\"',
        b'"' + b"[" * 100_000 + b'"',
        b'"' + b'\\"[' * 30_000 + b'"',
        b'"' + b"\\\\" * 30_000 + b'"',
    ],
    ids=["empty ones", "branches", "strings", "one string", "escaped quotes", "backslashes"],
)
def test_many_brackets_are_not_many_levels(inner: bytes) -> None:
    deepest = depth(json.loads(b"[%b]" % inner))
    room = MAX_DEPTH - deepest
    assert not is_too_deep(b"[" * (room + 1) + inner + b"]" * (room + 1))
    assert is_too_deep(b"[" * (room + 2) + inner + b"]" * (room + 2))


def test_the_shortest_objects_that_are_too_deep_are_found_without_an_array() -> None:
    def nested(levels: int) -> bytes:
        return b'{"":' * (levels - 1) + b"{}" + b"}" * (levels - 1)

    assert not is_too_deep(nested(MAX_DEPTH))
    assert is_too_deep(nested(MAX_DEPTH + 1))
    assert is_too_deep(nested(MAX_DEPTH).replace(b"{}", b"[{}]"))
