"""Sampling answered by Claude, over Anthropic's Messages API."""

import os
from typing import Unpack

from mcpearl.client.sampling.provider import (
    Json,
    Provider,
    SamplingOptions,
    ToolNames,
    blocks,
    one_or_all,
    parts_of,
)
from mcpearl.net.http_client.exchange import Header
from mcpearl.types.content import (
    ImageContent,
    SamplingMessageContentBlock,
    TextContent,
    ToolResultContent,
    ToolUseContent,
)
from mcpearl.types.sampling import CreateMessageRequestParams, CreateMessageResult

DEFAULT_URL = "https://api.anthropic.com"
_VERSION = "2023-06-01"
_STOPPED = {
    "end_turn": "endTurn",
    "max_tokens": "maxTokens",
    "stop_sequence": "stopSequence",
    "tool_use": "toolUse",
}
_CHOICES = {"auto": "auto", "required": "any", "none": "none"}


class AnthropicSampling(Provider):
    """Answers a server's sampling requests with Claude.

    >>> Client("server.py", sampling=AnthropicSampling("claude-sonnet-4-5"))

    Args:
        model: the model that answers unless the server prefers another one that is configured.
        api_key: the API key; by default the one in `ANTHROPIC_API_KEY`, which is sent to Anthropic only,
            not to another `base_url`.
        base_url: the address of the API.
        options: `models`, `fast`, `smart`, `max_tokens`, `approve`, `timeout`, `attempts`, `tls`, `proxy`
            and `headers`; see `Provider`.
    """

    path = "/v1/messages"
    name = "Anthropic"

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        **options: Unpack[SamplingOptions],
    ) -> None:
        if api_key is None and base_url is None:
            api_key = os.environ.get("ANTHROPIC_API_KEY")
            if not api_key:
                raise ValueError(
                    "there is no key for Anthropic; set ANTHROPIC_API_KEY or `api_key=`"
                )
        options["headers"] = {"anthropic-version": _VERSION, **(options.get("headers") or {})}
        super().__init__(model, base_url or DEFAULT_URL, api_key, **options)

    def _authorization(self, key: str) -> list[Header]:
        return [("x-api-key", key)]

    def _request(self, params: CreateMessageRequestParams, model: str, names: ToolNames) -> Json:
        body: Json = {
            "model": model,
            "max_tokens": params.max_tokens,
            "messages": [
                {
                    "role": message.role,
                    "content": [self._block(each, names) for each in blocks(message.content)],
                }
                for message in params.messages
            ],
        }
        if params.system_prompt:
            body["system"] = params.system_prompt
        if params.temperature is not None:
            body["temperature"] = min(max(params.temperature, 0), 1)
        if params.stop_sequences:
            body["stop_sequences"] = params.stop_sequences
        if params.tools:
            body["tools"] = [
                {
                    "name": names.safe(tool.name),
                    "description": tool.description or "",
                    "input_schema": tool.input_schema,
                }
                for tool in params.tools
            ]
            if params.tool_choice is not None and params.tool_choice.mode is not None:
                body["tool_choice"] = {"type": _CHOICES[params.tool_choice.mode]}
        user = (params.metadata or {}).get("user_id")
        if isinstance(user, str):
            body["metadata"] = {"user_id": user}
        return body

    def _block(self, block: SamplingMessageContentBlock, names: ToolNames) -> Json:
        match block:
            case TextContent():
                return {"type": "text", "text": block.text}
            case ImageContent():
                return _image(block)
            case ToolUseContent():
                called = names.safe(block.name)
                return {"type": "tool_use", "id": block.id, "name": called, "input": block.input}
            case ToolResultContent():
                return self._tool_result(block)
            case _:
                raise self._unsupported("audio")

    def _tool_result(self, block: ToolResultContent) -> Json:
        text, images, sounds = parts_of(block)
        if sounds:
            raise self._unsupported("audio")
        content: list[Json] = [{"type": "text", "text": text}] if text else []
        content += [_image(image) for image in images]
        result: Json = {"type": "tool_result", "tool_use_id": block.tool_use_id}
        if content:
            result["content"] = content
        return {**result, "is_error": True} if block.is_error else result

    def _result(self, response: Json, names: ToolNames) -> CreateMessageResult:
        content: list[SamplingMessageContentBlock] = []
        for block in response["content"]:
            if block["type"] == "text":
                content.append(TextContent(text=str(block["text"])))
            elif block["type"] == "tool_use":
                called, given = names.own(block["name"]), dict(block["input"])
                content.append(ToolUseContent(id=str(block["id"]), name=called, input=given))
        stopped = response.get("stop_reason")
        return CreateMessageResult(
            role="assistant",
            content=one_or_all(content),
            model=str(response.get("model") or "unknown"),
            stop_reason=None if stopped is None else _STOPPED.get(stopped, str(stopped)),
        )


def _image(image: ImageContent) -> Json:
    source = {"type": "base64", "media_type": image.mime_type, "data": image.data}
    return {"type": "image", "source": source}
