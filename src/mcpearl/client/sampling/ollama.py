"""Sampling answered by a model that Ollama runs, usually on the same machine."""

import os
from typing import Unpack

from mcpearl.client.sampling.openai import function
from mcpearl.client.sampling.provider import (
    Json,
    Provider,
    SamplingOptions,
    ToolNames,
    blocks,
    one_or_all,
    parts_of,
)
from mcpearl.runtime import clock
from mcpearl.types.content import (
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

DEFAULT_URL = "http://127.0.0.1:11434"
_STOPPED = {"stop": "endTurn", "length": "maxTokens"}


class OllamaSampling(Provider):
    """Answers a server's sampling requests with a model that Ollama runs.

    Ollama cannot be made to call a tool: `required` is treated as `auto`.

    >>> Client("server.py", sampling=OllamaSampling("llama3.3"))

    Args:
        model: the model that answers unless the server prefers another one that is configured.
        api_key: the API key, if Ollama needs one.
        base_url: the address of Ollama; by default the one in `OLLAMA_HOST`, or this machine.
        options: `models`, `fast`, `smart`, `max_tokens`, `approve`, `timeout`, `attempts`, `tls`, `proxy`
            and `headers`; see `Provider`.
    """

    path = "/api/chat"
    name = "Ollama"

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        **options: Unpack[SamplingOptions],
    ) -> None:
        super().__init__(
            model, base_url or _address(os.environ.get("OLLAMA_HOST")), api_key, **options
        )

    def _request(self, params: CreateMessageRequestParams, model: str, names: ToolNames) -> Json:
        messages: list[Json] = []
        if params.system_prompt:
            messages.append({"role": "system", "content": params.system_prompt})
        called = {  # a result names its tool, not the call
            block.id: block.name
            for message in params.messages
            for block in blocks(message.content)
            if isinstance(block, ToolUseContent)
        }
        for message in params.messages:
            messages += self._messages(message, names, called)
        options: Json = {"num_predict": params.max_tokens}
        if params.temperature is not None:
            options["temperature"] = max(params.temperature, 0)
        if params.stop_sequences:
            options["stop"] = params.stop_sequences
        body: Json = {"model": model, "messages": messages, "stream": False, "options": options}
        forbidden = params.tool_choice is not None and params.tool_choice.mode == "none"
        if params.tools and not forbidden:
            body["tools"] = [function(tool, names) for tool in params.tools]
        return body

    def _messages(
        self, message: SamplingMessage, names: ToolNames, called: dict[str, str]
    ) -> list[Json]:
        texts: list[str] = []
        images: list[str] = []
        calls: list[Json] = []
        results: list[Json] = []
        for block in blocks(message.content):
            match block:
                case TextContent():
                    texts.append(block.text)
                case ImageContent():
                    images.append(block.data)
                case ToolUseContent():
                    used = {"name": names.safe(block.name), "arguments": block.input}
                    calls.append({"function": used})
                case ToolResultContent():
                    results.append(self._tool_result(block, names, called))
                case _:
                    raise self._unsupported("audio")
        if results and not texts and not images and not calls:
            return results
        said: Json = {"role": message.role, "content": "\n".join(texts)}
        if images:
            said["images"] = images
        if calls:
            said["tool_calls"] = calls
        return [*results, said]

    def _tool_result(
        self, block: ToolResultContent, names: ToolNames, called: dict[str, str]
    ) -> Json:
        text, images, sounds = parts_of(block)
        if sounds:
            raise self._unsupported("audio")
        result: Json = {"role": "tool", "content": text}
        if block.tool_use_id in called:
            result["tool_name"] = names.safe(called[block.tool_use_id])
        if images:
            result["images"] = [image.data for image in images]
        return result

    def _result(self, response: Json, names: ToolNames) -> CreateMessageResult:
        message = response["message"]
        content: list[SamplingMessageContentBlock] = []
        if message.get("content"):
            content.append(TextContent(text=str(message["content"])))
        calls = message.get("tool_calls") or ()
        for call in calls:
            name, given = names.own(call["function"]["name"]), call["function"]["arguments"]
            id = f"call_{clock.token(9)}"  # Ollama's calls have none
            content.append(ToolUseContent(id=id, name=name, input=dict(given)))
        stopped = response.get("done_reason")
        reason = None if stopped is None else _STOPPED.get(stopped, str(stopped))
        return CreateMessageResult(
            role="assistant",
            content=one_or_all(content),
            model=str(response.get("model") or "unknown"),
            stop_reason="toolUse" if calls else reason,
        )


def _address(host: str | None) -> str:
    """Return the address in `OLLAMA_HOST`, which may lack the scheme and the port."""
    if not host:
        return DEFAULT_URL
    url = host if "://" in host else f"http://{host}"
    url = url.replace("//0.0.0.0", "//127.0.0.1", 1)
    _, _, place = url.partition("://")
    return url if ":" in place or "://" in host else f"{url}:11434"
