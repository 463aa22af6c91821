"""Sampling messages: one block or several."""

import json

from mcpearl.types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    SamplingMessage,
    TextContent,
    ToolUseContent,
    decode,
    encode,
)


def test_a_message_has_one_block_or_a_list() -> None:
    one = SamplingMessage(role="user", content=TextContent(text="a"))
    several = SamplingMessage(
        role="assistant",
        content=[TextContent(text="b"), ToolUseContent(id="1", name="add", input={})],
    )
    params = CreateMessageRequestParams(messages=[one, several], max_tokens=10)
    assert decode(CreateMessageRequestParams, encode(params)) == params
    assert json.loads(encode(params))["messages"][0]["content"] == {"type": "text", "text": "a"}


def test_why_a_model_stopped_is_an_open_set() -> None:
    wire = (
        b'{"role":"assistant","content":{"type":"text","text":"x"},'
        b'"model":"m","stopReason":"bored","usage":{"tokens":1}}'
    )
    result = decode(CreateMessageResult, wire)
    assert result.stop_reason == "bored"
    assert result.extra == {"usage": {"tokens": 1}}
    assert encode(result) == wire
