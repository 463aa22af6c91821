"""Content blocks on the wire."""

import json
from typing import Any

import msgspec
import pytest

from mcpearl.types import (
    Annotations,
    AudioContent,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    PromptMessage,
    ResourceContents,
    ResourceLink,
    TextContent,
    TextResourceContents,
    ToolResultContent,
    ToolUseContent,
    decode,
    encode,
)

BLOCKS: list[tuple[Any, dict[str, Any]]] = [
    (
        TextContent(text="hi", annotations=Annotations(audience=["user"], priority=1)),
        {"type": "text", "text": "hi", "annotations": {"audience": ["user"], "priority": 1}},
    ),
    (
        ImageContent(data="AA==", mime_type="image/png"),
        {"type": "image", "data": "AA==", "mimeType": "image/png"},
    ),
    (
        AudioContent(data="AA==", mime_type="audio/wav", meta={"a": 1}),
        {"type": "audio", "data": "AA==", "mimeType": "audio/wav", "_meta": {"a": 1}},
    ),
    (
        ResourceLink(uri="file:///a", name="a", size=3),
        {"type": "resource_link", "uri": "file:///a", "name": "a", "size": 3},
    ),
    (
        EmbeddedResource(resource=ResourceContents(uri="file:///a", text="x")),
        {"type": "resource", "resource": {"uri": "file:///a", "text": "x"}},
    ),
]


@pytest.mark.parametrize(("block", "wire"), BLOCKS)
def test_a_block_is_told_by_its_type(block: Any, wire: dict[str, Any]) -> None:
    assert json.loads(encode(block)) == wire
    raw = json.dumps({"role": "user", "content": wire}).encode()
    assert decode(PromptMessage, raw).content == block


def test_blocks_of_all_kinds_share_a_list() -> None:
    raw = json.dumps({"content": [wire for _, wire in BLOCKS]}).encode()
    assert decode(CallToolResult, raw).content == [block for block, _ in BLOCKS]


def test_contents_built_with_a_narrower_type_read_as_the_common_one() -> None:
    block = EmbeddedResource(resource=TextResourceContents(uri="file:///a", text=""))
    again = decode(EmbeddedResource, encode(block))
    assert type(again.resource) is ResourceContents
    assert again.resource.text == ""


def test_a_tool_result_carries_blocks_and_data() -> None:
    block = ToolResultContent(
        tool_use_id="1", content=[TextContent(text="4")], structured_content={"n": None}
    )
    assert json.loads(encode(block)) == {
        "type": "tool_result",
        "toolUseId": "1",
        "content": [{"type": "text", "text": "4"}],
        "structuredContent": {"n": None},
    }


def test_tool_use_is_no_block_of_a_prompt() -> None:
    wire = encode(ToolUseContent(id="1", name="add", input={"a": 1}))
    with pytest.raises(msgspec.ValidationError, match="tool_use"):
        decode(PromptMessage, b'{"role":"user","content":' + wire + b"}")
