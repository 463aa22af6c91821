"""Sampling answered by providers of models: requests as their documentation has them, and responses."""

import asyncio
import logging
import socket
from typing import Any

import pytest

from mcpearl import (
    AnthropicSampling,
    Client,
    Context,
    McpError,
    OllamaSampling,
    OpenAISampling,
    Overloaded,
    RateLimited,
    Server,
)
from mcpearl.client.sampling.provider import MAX_RESPONSE, Provider
from mcpearl.types.content import (
    AudioContent,
    ImageContent,
    ResourceLink,
    TextContent,
    ToolResultContent,
    ToolUseContent,
)
from mcpearl.types.sampling import (
    CreateMessageRequestParams,
    ModelHint,
    ModelPreferences,
    SamplingMessage,
    ToolChoice,
)
from mcpearl.types.tools import Tool
from tests.client.sampling.provider_peer import Answer, model_server

KEY = "sk-very-secret-0123456789"
CLAUDE_TEXT = {
    "id": "msg_013Zva2CMHLNnXjNJJKqJ2EF",
    "type": "message",
    "role": "assistant",
    "model": "claude-sonnet-4-5-20250929",
    "content": [{"type": "text", "text": "Hi! My name is Claude."}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 2095, "output_tokens": 503},
}
CLAUDE_TOOLS = {
    **CLAUDE_TEXT,
    "content": [
        {"type": "thinking", "thinking": "…", "signature": "x"},
        {"type": "text", "text": "I'll check."},
        {
            "type": "tool_use",
            "id": "toolu_01A09q90qw90lq917835lq9",
            "name": "get_weather",
            "input": {"location": "Oslo"},
        },
        {"type": "tool_use", "id": "toolu_02", "name": "math_add_1", "input": {}},
    ],
    "stop_reason": "tool_use",
}
GPT_TEXT = {
    "id": "chatcmpl-B9MBs8CjcvOU2jLn4n570S5qMJKcT",
    "object": "chat.completion",
    "created": 1741569952,
    "model": "gpt-5-mini-2025-08-07",
    "choices": [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": "Hello! How can I help?",
                "refusal": None,
                "annotations": [],
            },
            "logprobs": None,
            "finish_reason": "stop",
        }
    ],
    "usage": {"prompt_tokens": 19, "completion_tokens": 10, "total_tokens": 29},
}
GPT_TOOLS = {
    **GPT_TEXT,
    "choices": [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {
                        "id": "call_abc123",
                        "type": "function",
                        "function": {
                            "name": "get_weather",
                            "arguments": '{\n"location": "Oslo"\n}',
                        },
                    },
                    {
                        "id": "call_2",
                        "type": "function",
                        "function": {"name": "math_add_1", "arguments": ""},
                    },
                ],
            },
            "finish_reason": "tool_calls",
        }
    ],
}
OLLAMA_TEXT = {
    "model": "llama3.3",
    "created_at": "2025-10-17T23:14:07.414671Z",
    "message": {"role": "assistant", "content": "Hello! How can I help?"},
    "done": True,
    "done_reason": "stop",
    "total_duration": 174560334,
    "eval_count": 18,
}
OLLAMA_TOOLS = {
    **OLLAMA_TEXT,
    "message": {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {"function": {"name": "get_weather", "arguments": {"location": "Oslo"}}},
            {"function": {"name": "math_add_1", "arguments": {}}},
        ],
    },
}
PROVIDERS: dict[type[Provider], tuple[Any, Any]] = {
    AnthropicSampling: (CLAUDE_TEXT, CLAUDE_TOOLS),
    OpenAISampling: (GPT_TEXT, GPT_TOOLS),
    OllamaSampling: (OLLAMA_TEXT, OLLAMA_TOOLS),
}
ALL = pytest.mark.parametrize("provider", PROVIDERS)


def make(provider: type[Any], url: str, **options: Any) -> Provider:
    options = {"model": "small", "api_key": KEY, **options}
    made: Provider = provider(base_url=url, **options)
    return made


def asks(*messages: SamplingMessage | str, **members: Any) -> CreateMessageRequestParams:
    said = [
        SamplingMessage(role="user", content=TextContent(text=each))
        if isinstance(each, str)
        else each
        for each in messages or ("Hello",)
    ]
    return CreateMessageRequestParams(messages=said, **{"max_tokens": 100, **members})


TOOLS = [
    Tool(name="get_weather", description="Weather", input_schema={"type": "object"}),
    Tool(name="math.add", input_schema={"type": "object", "properties": {"a": {}}}),
]
CONVERSATION = (
    "What is the weather?",
    SamplingMessage(
        role="assistant",
        content=[
            TextContent(text="Looking."),
            ToolUseContent(id="t1", name="get_weather", input={"location": "Oslo"}),
            ToolUseContent(id="t2", name="math.add", input={}),
        ],
    ),
    SamplingMessage(
        role="user",
        content=[
            ToolResultContent(
                tool_use_id="t1",
                content=[
                    TextContent(text="sunny"),
                    ResourceLink(name="map", uri="file:///map"),
                    ImageContent(data="aW1n", mime_type="image/png"),
                ],
            ),
            ToolResultContent(
                tool_use_id="t2", content=[], structured_content={"sum": 3}, is_error=True
            ),
        ],
    ),
)


@pytest.mark.parametrize("protocol", ["2025-11-25", "2026-07-28"])
@ALL
async def test_a_server_is_answered_by_a_model(provider: type[Provider], protocol: str) -> None:
    app = Server("asks")

    @app.tool
    async def think(ctx: Context) -> list[str | None]:
        answer = await ctx.sample("Hello", system_prompt="Be brief", temperature=0.5)
        assert isinstance(answer.content, TextContent)
        return [answer.content.text, answer.model, answer.stop_reason]

    async with model_server(PROVIDERS[provider][0]) as models:
        sampling = make(provider, models.url)
        async with Client(app, sampling=sampling, protocol=protocol) as client:
            text, model, reason = (await client.call_tool("think")).data
        assert str(text).startswith("H")
        assert model == PROVIDERS[provider][0]["model"]
        assert reason == "endTurn"
        assert len(models.asked) == 1


async def test_the_request_to_anthropic() -> None:
    async with model_server(CLAUDE_TOOLS) as models:
        sampling = AnthropicSampling("claude-x", api_key=KEY, base_url=models.url)
        result = await sampling(
            asks(
                *CONVERSATION,
                tools=TOOLS,
                tool_choice=ToolChoice(mode="required"),
                system_prompt="Be brief",
                temperature=1.7,
                stop_sequences=["END"],
                metadata={"user_id": "u1", "other": 1},
            )
        )
        ((path, headers, body),) = models.asked
    assert path == "/v1/messages"
    assert headers["x-api-key"] == KEY
    assert headers["anthropic-version"] == "2023-06-01"
    assert body == {
        "model": "claude-x",
        "max_tokens": 100,
        "system": "Be brief",
        "temperature": 1,
        "stop_sequences": ["END"],
        "metadata": {"user_id": "u1"},
        "tool_choice": {"type": "any"},
        "tools": [
            {
                "name": "get_weather",
                "description": "Weather",
                "input_schema": {"type": "object"},
            },
            {
                "name": "math_add_1",
                "description": "",
                "input_schema": {"type": "object", "properties": {"a": {}}},
            },
        ],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "What is the weather?"}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "Looking."},
                    {
                        "type": "tool_use",
                        "id": "t1",
                        "name": "get_weather",
                        "input": {"location": "Oslo"},
                    },
                    {"type": "tool_use", "id": "t2", "name": "math_add_1", "input": {}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "t1",
                        "content": [
                            {"type": "text", "text": "sunny\nmap: file:///map"},
                            {
                                "type": "image",
                                "source": {
                                    "type": "base64",
                                    "media_type": "image/png",
                                    "data": "aW1n",
                                },
                            },
                        ],
                    },
                    {
                        "type": "tool_result",
                        "tool_use_id": "t2",
                        "content": [{"type": "text", "text": '{"sum":3}'}],
                        "is_error": True,
                    },
                ],
            },
        ],
    }
    assert result is not None
    assert result.content == [
        TextContent(text="I'll check."),
        ToolUseContent(
            id="toolu_01A09q90qw90lq917835lq9", name="get_weather", input={"location": "Oslo"}
        ),
        ToolUseContent(id="toolu_02", name="math.add", input={}),
    ]
    assert result.stop_reason == "toolUse"


async def test_the_request_to_openai() -> None:
    sound = AudioContent(data="c291bmQ=", mime_type="audio/mpeg")
    heard = SamplingMessage(role="user", content=[TextContent(text="And this?"), sound])
    async with model_server(GPT_TOOLS) as models:
        sampling = OpenAISampling("gpt-x", api_key=KEY, base_url=f"{models.url}/v1/")
        result = await sampling(
            asks(
                *CONVERSATION,
                heard,
                tools=TOOLS,
                tool_choice=ToolChoice(mode="auto"),
                system_prompt="Be brief",
                temperature=0.5,
                stop_sequences=["1", "2", "3", "4", "5"],
            )
        )
        ((path, headers, body),) = models.asked
    assert path == "/v1/chat/completions"
    assert headers["authorization"] == f"Bearer {KEY}"
    assert body == {
        "model": "gpt-x",
        "max_tokens": 100,
        "temperature": 0.5,
        "stop": ["1", "2", "3", "4"],
        "tool_choice": "auto",
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "get_weather",
                    "description": "Weather",
                    "parameters": {"type": "object"},
                },
            },
            {
                "type": "function",
                "function": {
                    "name": "math_add_1",
                    "parameters": {"type": "object", "properties": {"a": {}}},
                },
            },
        ],
        "messages": [
            {"role": "system", "content": "Be brief"},
            {"role": "user", "content": "What is the weather?"},
            {
                "role": "assistant",
                "content": "Looking.",
                "tool_calls": [
                    {
                        "id": "t1",
                        "type": "function",
                        "function": {
                            "name": "get_weather",
                            "arguments": '{"location":"Oslo"}',
                        },
                    },
                    {
                        "id": "t2",
                        "type": "function",
                        "function": {"name": "math_add_1", "arguments": "{}"},
                    },
                ],
            },
            {"role": "tool", "tool_call_id": "t1", "content": "sunny\nmap: file:///map"},
            {"role": "tool", "tool_call_id": "t2", "content": '{"sum":3}'},
            {
                "role": "user",
                "content": [
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,aW1n"}}
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "And this?"},
                    {
                        "type": "input_audio",
                        "input_audio": {"data": "c291bmQ=", "format": "mp3"},
                    },
                ],
            },
        ],
    }
    assert result is not None
    assert result.content == [
        ToolUseContent(id="call_abc123", name="get_weather", input={"location": "Oslo"}),
        ToolUseContent(id="call_2", name="math.add", input={}),
    ]
    assert result.stop_reason == "toolUse"


async def test_the_request_to_ollama() -> None:
    image = ImageContent(data="aW1n", mime_type="image/png")
    seen = SamplingMessage(role="user", content=[TextContent(text="What is this?"), image])
    async with model_server(OLLAMA_TOOLS) as models:
        sampling = OllamaSampling("llama", base_url=models.url)
        result = await sampling(
            asks(*CONVERSATION, seen, tools=TOOLS, temperature=0.5, stop_sequences=["END"])
        )
        await sampling(asks(tools=TOOLS, tool_choice=ToolChoice(mode="none")))
        (path, headers, body), without = models.asked
    assert path == "/api/chat"
    assert "authorization" not in headers
    assert "tools" not in without.body
    assert body["options"] == {"num_predict": 100, "temperature": 0.5, "stop": ["END"]}
    assert body["stream"] is False
    assert [tool["function"]["name"] for tool in body["tools"]] == ["get_weather", "math_add_1"]
    assert body["messages"] == [
        {"role": "user", "content": "What is the weather?"},
        {
            "role": "assistant",
            "content": "Looking.",
            "tool_calls": [
                {"function": {"name": "get_weather", "arguments": {"location": "Oslo"}}},
                {"function": {"name": "math_add_1", "arguments": {}}},
            ],
        },
        {
            "role": "tool",
            "content": "sunny\nmap: file:///map",
            "tool_name": "get_weather",
            "images": ["aW1n"],
        },
        {"role": "tool", "content": '{"sum":3}', "tool_name": "math_add_1"},
        {"role": "user", "content": "What is this?", "images": ["aW1n"]},
    ]
    assert result is not None
    assert isinstance(result.content, list)
    first, second = result.content
    assert isinstance(first, ToolUseContent)
    assert isinstance(second, ToolUseContent)
    assert (first.name, first.input, second.name) == (
        "get_weather",
        {"location": "Oslo"},
        "math.add",
    )
    assert first.id != second.id
    assert result.stop_reason == "toolUse"


@pytest.mark.parametrize(
    ("provider", "member", "said", "reason"),
    [
        (AnthropicSampling, ("stop_reason",), "max_tokens", "maxTokens"),
        (AnthropicSampling, ("stop_reason",), "stop_sequence", "stopSequence"),
        (AnthropicSampling, ("stop_reason",), "refusal", "refusal"),
        (OpenAISampling, ("choices", 0, "finish_reason"), "length", "maxTokens"),
        (OpenAISampling, ("choices", 0, "finish_reason"), "content_filter", "contentFilter"),
        (OllamaSampling, ("done_reason",), "length", "maxTokens"),
        (OllamaSampling, ("done_reason",), None, None),
    ],
)
async def test_why_a_model_stopped(
    provider: type[Provider], member: tuple[Any, ...], said: str | None, reason: str | None
) -> None:
    def changed(value: Any, path: tuple[Any, ...]) -> Any:
        if not path:
            return said
        if isinstance(value, list):
            return [changed(each, path[1:]) for each in value]
        return {**value, path[0]: changed(value[path[0]], path[1:])}

    async with model_server(changed(PROVIDERS[provider][0], member)) as models:
        result = await make(provider, models.url)(asks())
    assert result is not None
    assert result.stop_reason == reason


@pytest.mark.parametrize(
    ("preferences", "model"),
    [
        (None, "claude-sonnet"),
        (ModelPreferences(hints=[ModelHint(name="haiku")]), "claude-haiku"),
        (ModelPreferences(hints=[ModelHint(name="nope"), ModelHint(name="OPUS")]), "claude-opus"),
        (ModelPreferences(hints=[ModelHint(name="gpt-5-mini")]), "claude-haiku"),
        (ModelPreferences(hints=[ModelHint(name="unknown"), ModelHint()]), "claude-sonnet"),
        (ModelPreferences(speed_priority=0.9, intelligence_priority=0.2), "claude-haiku"),
        (ModelPreferences(cost_priority=0.9), "claude-haiku"),
        (ModelPreferences(intelligence_priority=0.9, cost_priority=0.3), "claude-opus"),
        (ModelPreferences(intelligence_priority=0.5, cost_priority=0.5), "claude-sonnet"),
    ],
)
async def test_the_model_is_one_that_is_configured(
    preferences: ModelPreferences | None, model: str
) -> None:
    async with model_server(CLAUDE_TEXT) as models:
        sampling = AnthropicSampling(
            "claude-sonnet",
            api_key=KEY,
            base_url=models.url,
            models={"gpt": "claude-haiku"},
            fast="claude-haiku",
            smart="claude-opus",
        )
        await sampling(asks(model_preferences=preferences))
        assert models.asked[0].body["model"] == model


async def test_bounds_and_approval() -> None:
    asked = []

    def approve(params: CreateMessageRequestParams) -> bool:
        asked.append(params)
        return len(asked) == 1

    async with model_server(CLAUDE_TEXT) as models:
        sampling = make(AnthropicSampling, models.url, max_tokens=50, approve=approve)
        await sampling(asks())
        assert models.asked[0].body["max_tokens"] == 50
        app = Server("asks")

        @app.tool
        async def think(ctx: Context) -> str:
            await ctx.sample("Hello")
            return "answered"

        async with Client(app, sampling=sampling) as client:
            with pytest.raises(McpError, match="refused"):
                await client.call_tool("think")
        assert len(models.asked) == 1


@ALL
@pytest.mark.parametrize(
    ("status", "kind", "said"),
    [
        (401, McpError, "does not accept the client's API key"),
        (403, McpError, "does not accept the client's API key"),
        (404, McpError, "HTTP 404: no such model"),
        (400, McpError, "refused this: no such model"),
        (429, RateLimited, "Over the limit of the client's model"),
        (529, Overloaded, "overloaded"),
        (500, McpError, "HTTP 500"),
        (302, McpError, "HTTP 302"),
    ],
)
async def test_errors_of_a_provider(
    provider: type[Provider],
    status: int,
    kind: type[McpError],
    said: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    text = f"no such model (key {KEY})"
    error: Any = {"type": "error", "error": {"type": "x", "message": text}}
    if provider is OllamaSampling:
        error = {"error": text}
    caplog.set_level(logging.DEBUG)
    async with model_server(Answer(error, status, {"Retry-After": "3"})) as models:
        sampling = make(provider, models.url, attempts=1)
        with pytest.raises(kind, match=said) as caught:
            await sampling(asks())
    assert KEY not in f"{caught.value}{caught.value.data}{caplog.text}{sampling!r}"
    if status == 429:
        assert isinstance(caught.value, RateLimited)
        assert caught.value.retry_after == 3


async def test_a_busy_provider_is_asked_again(clock: Any) -> None:
    busy = Answer({"error": {"message": "busy"}}, 529)
    wait = Answer({"error": {"message": "slow down"}}, 429, {"retry-after": "2"})
    async with model_server(busy, wait, CLAUDE_TEXT) as models:
        asking = asyncio.ensure_future(make(AnthropicSampling, models.url)(asks()))
        while not asking.done():
            await clock.advance(0.5)
        assert (await asking) is not None
        assert len(models.asked) == 3
    long = Answer({"error": {"message": "slow down"}}, 429, {"retry-after": "3600"})
    async with model_server(long) as models:
        with pytest.raises(RateLimited):
            await make(AnthropicSampling, models.url)(asks())
        assert len(models.asked) == 1


@ALL
@pytest.mark.parametrize(
    "body",
    [b"", b"<html>", b"[]", b"{}", b'{"content": 5, "choices": {}, "message": []}', b"null"],
)
async def test_what_is_not_an_answer(provider: type[Provider], body: bytes) -> None:
    async with model_server(Answer(body)) as models:
        with pytest.raises(McpError, match="not in the provider's format"):
            await make(provider, models.url)(asks())


async def test_an_answer_without_end() -> None:
    async with model_server(Answer(b" " * (MAX_RESPONSE + 1))) as models:
        with pytest.raises(McpError, match="more than"):
            await make(OpenAISampling, models.url)(asks())


async def test_a_provider_that_is_not_there(clock: Any) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        asking = asyncio.ensure_future(make(OllamaSampling, url)(asks()))
        while not asking.done():
            await clock.advance(0.5)
        with pytest.raises(McpError, match="did not answer: cannot connect"):
            await asking


async def test_a_provider_that_is_silent(clock: Any) -> None:
    held = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await held.wait()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    asking = asyncio.ensure_future(make(OllamaSampling, url, timeout=5)(asks()))
    while not asking.done():
        await clock.advance(0.5)
    with pytest.raises(McpError, match="no answer within 5 s"):
        await asking
    held.set()
    server.close()


@pytest.mark.parametrize(
    ("provider", "block", "said"),
    [
        (AnthropicSampling, AudioContent(data="", mime_type="audio/wav"), "takes no audio"),
        (OllamaSampling, AudioContent(data="", mime_type="audio/wav"), "takes no audio"),
        (
            OpenAISampling,
            AudioContent(data="", mime_type="audio/ogg"),
            "audio of the type audio/ogg",
        ),
    ],
)
async def test_content_that_a_provider_does_not_take(
    provider: type[Provider], block: Any, said: str
) -> None:
    sampling = make(provider, "http://127.0.0.1:1")
    with pytest.raises(McpError, match=said):
        await sampling(asks(SamplingMessage(role="user", content=block)))


def test_keys_of_the_environment_go_to_their_provider_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    assert AnthropicSampling("m")._key == KEY
    assert OpenAISampling("m")._key == KEY
    assert OpenAISampling("m", base_url="http://127.0.0.1:1/v1")._key is None
    assert AnthropicSampling("m", base_url="http://127.0.0.1:1")._key is None
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    with pytest.raises(ValueError, match="set ANTHROPIC_API_KEY"):
        AnthropicSampling("m")
    assert KEY not in repr(OpenAISampling("m"))


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("", "http://127.0.0.1:11434/api/chat"),
        ("box", "http://box:11434/api/chat"),
        ("0.0.0.0:80", "http://127.0.0.1:80/api/chat"),
        ("https://ollama.example.com", "https://ollama.example.com/api/chat"),
    ],
)
def test_where_ollama_is(host: str, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLLAMA_HOST", host)
    assert OllamaSampling("m")._url == url


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"base_url": "nowhere"}, "not an http"),
        ({"api_key": "two\nlines"}, "other characters"),
        ({"model": ""}, "name of a model"),
        ({"models": "one"}, "must be a list"),
        ({"attempts": 0}, "at least 1"),
    ],
)
def test_what_cannot_be_configured(options: dict[str, Any], said: str) -> None:
    given = {"model": "m", "api_key": KEY, "base_url": "http://127.0.0.1:1", **options}
    with pytest.raises((ValueError, TypeError), match=said) as caught:
        OpenAISampling(**given)
    assert KEY not in str(caught.value)
