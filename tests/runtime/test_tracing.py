"""The ids that `traceparent` names."""

from typing import Any

import pytest

from mcpearl.runtime.tracing import ids_of

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.mark.parametrize(
    "parent", [f"00-{TRACE}-{SPAN}-01", f"cc-{TRACE}-{SPAN}-01-what-the-future-will-be-like"]
)
def test_the_ids_are_found(parent: str) -> None:
    assert ids_of(parent) == (TRACE, SPAN)


@pytest.mark.parametrize(
    "parent",
    [
        None,
        5,
        b"00-" + TRACE.encode(),
        [TRACE],
        "",
        "nonsense",
        "x" * 100_000,
        f"00-{TRACE}-{SPAN}-",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE[:-1]}g-{SPAN}-01",
        f"00-{TRACE}_{SPAN}-01",
        f"00_{TRACE}-{SPAN}-01",
        f"00-{TRACE[:-1]}--{SPAN[:-1]}--01",
    ],
)
def test_anything_else_has_none(parent: Any) -> None:
    assert ids_of(parent) is None
