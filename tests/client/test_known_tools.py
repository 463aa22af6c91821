"""What a client remembers of tools is bounded, and doubted when the server may have changed."""

from typing import Any

import pytest

from mcpearl import InvalidResult
from mcpearl.client.known_tools import KnownTools
from mcpearl.types import CallToolResult, Tool
from mcpearl.types.tools import ToolAnnotations

INTEGER = {"type": "object", "properties": {"n": {"type": "integer"}}}
WRONG = CallToolResult(content=[], structured_content={"n": "one"})


def a_tool(name: str = "t", **members: Any) -> Tool:
    return Tool(name=name, input_schema={"type": "object"}, **members)


def test_a_listed_schema_is_checked() -> None:
    known = KnownTools()
    assert not known.check("t", WRONG)
    known.learn([a_tool(output_schema=INTEGER)])
    assert known.check("t", CallToolResult(content=[], structured_content={"n": 1}))
    with pytest.raises(InvalidResult, match="breaks its output schema"):
        known.check("t", WRONG)


def test_a_tool_that_is_not_listed_promises_nothing() -> None:
    known = KnownTools()
    known.settle("t")
    assert known.check("t", WRONG)
    assert known.may_repeat("t") is False


def test_settling_does_not_undo_a_list() -> None:
    known = KnownTools()
    known.learn([a_tool(output_schema=INTEGER)])
    known.settle("t")
    with pytest.raises(InvalidResult):
        known.check("t", WRONG)


def test_after_doubt_schemas_wait_for_a_list_but_hints_stay() -> None:
    known = KnownTools()
    tool = a_tool(output_schema=INTEGER, annotations=ToolAnnotations(idempotent_hint=True))
    known.learn([tool])
    known.doubt()
    assert not known.check("t", WRONG)
    assert known.may_repeat("t")
    known.learn([tool])
    with pytest.raises(InvalidResult):
        known.check("t", WRONG)


def test_after_a_change_nothing_is_known() -> None:
    known = KnownTools()
    known.learn([a_tool(output_schema=INTEGER)])
    known.forget()
    assert not known.knows("t")
    assert known.may_repeat("t") is None


def test_tools_are_kept_within_the_bound() -> None:
    known = KnownTools(max_bytes=10_000)
    schema = {"type": "object", "description": "x" * 900}
    known.learn([a_tool(f"t{number}", output_schema=schema) for number in range(1000)])
    kept = [number for number in range(1000) if known.knows(f"t{number}")]
    assert kept
    assert kept == list(range(kept[0], 1000))
    assert len(kept) <= 10
    known.learn([a_tool("huge", output_schema={"description": "x" * 20_000})])
    assert not known.knows("huge")
    assert known.knows("t999")
