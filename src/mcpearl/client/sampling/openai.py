"""Sampling answered over the Chat Completions API of OpenAI, or of a compatible endpoint."""

import os
from typing import Any, Unpack

import msgspec

from mcpearl.client.sampling.provider import (
    Json,
    Provider,
    SamplingOptions,
    ToolNames,
    blocks,
    one_or_all,
    parts_of,
)
from mcpearl.types.content import (
    AudioContent,
    ImageContent,
    SamplingMessageContentBlock,
    TextContent,
    ToolResultContent,
    ToolUseContent,
)
from mcpearl.types.sampling import (
    CreateMessageRequestParams,
    CreateMessageResult,
    SamplingMessage,
)
from mcpearl.types.tools import Tool

DEFAULT_URL = "https://api.openai.com/v1"
_MAX_STOPS = 4  # stop sequences that the API accepts
_STOPPED = {
    "stop": "endTurn",
    "length": "maxTokens",
    "tool_calls": "toolUse",
    "function_call": "toolUse",
    "content_filter": "contentFilter",
}
_SOUNDS = {
    "audio/wav": "wav",
    "audio/x-wav": "wav",
    "audio/wave": "wav",
    "audio/mpeg": "mp3",
    "audio/mp3": "mp3",
}


class OpenAISampling(Provider):
    """Answers a server's sampling requests with a model of OpenAI, or of any compatible endpoint.

    >>> Client("server.py", sampling=OpenAISampling("gpt-5-mini"))
    >>> OpenAISampling("qwen3", base_url="http://127.0.0.1:8080/v1")

    Args:
        model: the model that answers unless the server prefers another one that is configured.
        api_key: the API key; by default the one in `OPENAI_API_KEY`, which is sent to OpenAI only, not to
            another `base_url`.
        base_url: the address of the API, up to and including its version.
        options: `models`, `fast`, `smart`, `max_tokens`, `approve`, `timeout`, `attempts`, `tls`, `proxy`
            and `headers`; see `Provider`.
    """

    path = "/chat/completions"
    name = "OpenAI"

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        **options: Unpack[SamplingOptions],
    ) -> None:
        if api_key is None and base_url is None:
            api_key = os.environ.get("OPENAI_API_KEY")
            if not api_key:
                raise ValueError("there is no key for OpenAI; set OPENAI_API_KEY or `api_key=`")
        # Models of OpenAI refuse the older name; most other endpoints know only that one.
        self._limit = "max_completion_tokens" if base_url is None else "max_tokens"
        super().__init__(model, base_url or DEFAULT_URL, api_key, **options)

    def _request(self, params: CreateMessageRequestParams, model: str, names: ToolNames) -> Json:
        messages: list[Json] = []
        if params.system_prompt:
            messages.append({"role": "system", "content": params.system_prompt})
        for message in params.messages:
            messages += self._messages(message, names)
        body: Json = {"model": model, "messages": messages, self._limit: params.max_tokens}
        if params.temperature is not None:
            body["temperature"] = min(max(params.temperature, 0), 2)
        if params.stop_sequences:
            body["stop"] = params.stop_sequences[:_MAX_STOPS]
        if params.tools:
            body["tools"] = [function(tool, names) for tool in params.tools]
            if params.tool_choice is not None and params.tool_choice.mode is not None:
                body["tool_choice"] = params.tool_choice.mode
        return body

    def _messages(self, message: SamplingMessage, names: ToolNames) -> list[Json]:
        """Write one message; results of tools are messages of their own, and come first."""
        parts: list[Json] = []
        calls: list[Json] = []
        results: list[Json] = []
        for block in blocks(message.content):
            match block:
                case ToolUseContent():
                    calls.append(_call(block, names))
                case ToolResultContent():
                    text, images, sounds = parts_of(block)
                    answered = {"tool_call_id": block.tool_use_id}
                    results.append({"role": "tool", **answered, "content": text})
                    # The result itself is text only; images and audio follow it.
                    parts += [self._part(each) for each in images]
                    parts += [self._part(each) for each in sounds]
                case _:
                    parts.append(self._part(block))
        if message.role == "assistant":
            if any(part["type"] != "text" for part in parts):
                raise self._unsupported("images or audio in messages of the assistant")
            text = "".join(part["text"] for part in parts)
            said: Json = {"role": "assistant", "content": text or None}
            return [*results, {**said, "tool_calls": calls} if calls else said]
        return [*results, {"role": "user", "content": _plain(parts)}] if parts else results

    def _part(self, block: SamplingMessageContentBlock) -> Json:
        match block:
            case TextContent():
                return {"type": "text", "text": block.text}
            case ImageContent():
                url = f"data:{block.mime_type};base64,{block.data}"
                return {"type": "image_url", "image_url": {"url": url}}
            case AudioContent(mime_type=kind) if kind in _SOUNDS:
                sound = {"data": block.data, "format": _SOUNDS[kind]}
                return {"type": "input_audio", "input_audio": sound}
            case AudioContent():
                raise self._unsupported(f"audio of the type {block.mime_type[:64]}")
            case _:
                raise self._unsupported(type(block).__name__)

    def _result(self, response: Json, names: ToolNames) -> CreateMessageResult:
        choice = response["choices"][0]
        message = choice["message"]
        content: list[SamplingMessageContentBlock] = []
        text = message.get("content") or message.get("refusal")
        if text:
            content.append(TextContent(text=str(text)))
        for call in message.get("tool_calls") or ():
            called = call["function"]
            given = msgspec.json.decode(called["arguments"] or "{}", type=dict[str, Any])
            name = names.own(called["name"])
            content.append(ToolUseContent(id=str(call["id"]), name=name, input=given))
        stopped = choice.get("finish_reason")
        return CreateMessageResult(
            role="assistant",
            content=one_or_all(content),
            model=str(response.get("model") or "unknown"),
            stop_reason=None if stopped is None else _STOPPED.get(stopped, str(stopped)),
        )


def function(tool: Tool, names: ToolNames) -> Json:
    """Write a tool in the format that several providers share."""
    written: Json = {"name": names.safe(tool.name), "parameters": tool.input_schema}
    if tool.description:
        written["description"] = tool.description
    return {"type": "function", "function": written}


def _call(block: ToolUseContent, names: ToolNames) -> Json:
    arguments = msgspec.json.encode(block.input).decode()
    called = {"name": names.safe(block.name), "arguments": arguments}
    return {"id": block.id, "type": "function", "function": called}


def _plain(parts: list[Json]) -> str | list[Json]:
    """Return a single text part as a plain string, which every compatible endpoint reads."""
    return parts[0]["text"] if len(parts) == 1 and parts[0]["type"] == "text" else parts
