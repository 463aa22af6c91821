"""Our client against the reference server `@modelcontextprotocol/server-everything`, both wires.

It is made with the first TypeScript SDK and knows the legacy era only.
"""

import asyncio
import json
from base64 import b64decode
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from mcpearl import Client, McpError
from mcpearl.types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestParams,
    EmbeddedResource,
    ImageContent,
    LoggingMessageNotificationParams,
    ProgressNotificationParams,
    ResourceLink,
    TextContent,
)
from tests.interop.peers import EVERYTHING_SERVER, LEGACY, serving

ALWAYS = {
    *("echo", "get-annotated-message", "get-env", "get-resource-links", "get-resource-reference"),
    *("get-structured-content", "get-sum", "get-tiny-image", "gzip-file-as-resource"),
    *("toggle-simulated-logging", "toggle-subscriber-updates", "trigger-long-running-operation"),
    "simulate-research-query",
}
ASKING = {
    *("get-roots-list", "trigger-sampling-request", "trigger-elicitation-request"),
    *("trigger-url-elicitation", "trigger-sampling-request-async"),
    "trigger-elicitation-request-async",
}
TEXT = "demo://resource/dynamic/text"
BLOB = "demo://resource/dynamic/blob"


Connect = Callable[..., Client]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving([*EVERYTHING_SERVER, "streamableHttp"]) as url:
        yield url


@pytest.fixture(params=["stdio", "http"])
def connect(request: pytest.FixtureRequest) -> Connect:
    """Make a client of a server."""
    if request.param == "http":
        return partial(open_client, request.getfixturevalue("url"))
    return partial(open_client, [*EVERYTHING_SERVER, "stdio"])


def open_client(target: Any, protocol: str = LEGACY[-1], **options: Any) -> Client:
    return Client(target, protocol=protocol, timeout=30, **options)


def text_of(result: Any, index: int = 0) -> str:
    return result.content[index].text


@pytest.mark.parametrize(
    ("protocol", "version"), [("auto", LEGACY[-1]), *((version, version) for version in LEGACY)]
)
async def test_every_version(connect: Connect, protocol: str, version: str):
    async with connect(protocol) as client:
        assert (client.era, client.protocol_version) == ("legacy", version)
        assert client.server_info is not None
        assert client.server_info.name == "mcp-servers/everything"
        assert client.instructions
        await client.ping()
        assert text_of(await client.call_tool("echo", {"message": "hello"})) == "Echo: hello"


async def test_tools_depend_on_what_the_client_can_do(connect: Connect):
    async with connect() as client:
        assert {tool.name async for tool in client.tools()} == ALWAYS
    async with connect(
        sampling=lambda request: "Yes.",
        elicitation=lambda form: True,
        roots=["file:///srv/demo"],
    ) as client:
        tools = {tool.name: tool async for tool in client.tools()}
        assert set(tools) == ALWAYS | ASKING
        echo = tools["echo"]
        assert echo.title == "Echo Tool"
        assert echo.annotations is not None and echo.annotations.idempotent_hint
        assert echo.input_schema["required"] == ["message"]


async def test_results(connect: Connect):
    async with connect() as client:
        result = await client.call_tool("get-sum", {"a": 2, "b": 40})
        assert text_of(result) == "The sum of 2 and 40 is 42."
        wrong = await client.call_tool("get-sum", {"a": "two", "b": 40})
        assert wrong.is_error

        result = await client.call_tool("get-structured-content", {"location": "Chicago"})
        assert result.structured_content == {
            "temperature": 36,
            "conditions": "Light rain / drizzle",
            "humidity": 82,
        }
        assert json.loads(text_of(result)) == result.structured_content

        result = await client.call_tool(
            "get-annotated-message", {"messageType": "error", "includeImage": True}
        )
        text, image = result.content
        assert isinstance(text, TextContent) and text.annotations is not None
        assert text.annotations.priority == 1
        assert text.annotations.audience == ["user", "assistant"]
        assert isinstance(image, ImageContent) and image.annotations is not None
        assert b64decode(image.data).startswith(b"\x89PNG")
        assert image.annotations.audience == ["user"]

        result = await client.call_tool("get-resource-links", {"count": 2})
        assert [type(block) for block in result.content] == [
            TextContent,
            ResourceLink,
            ResourceLink,
        ]
        result = await client.call_tool(
            "get-resource-reference", {"resourceType": "Text", "resourceId": 3}
        )
        (embedded,) = (block for block in result.content if isinstance(block, EmbeddedResource))
        assert embedded.resource.uri == f"{TEXT}/3"


async def test_progress(connect: Connect):
    seen: list[ProgressNotificationParams] = []
    async with connect() as client:
        result = await client.call_tool(
            "trigger-long-running-operation", {"duration": 0.4, "steps": 4}, on_progress=seen.append
        )
        assert text_of(result).startswith("Long running operation completed.")
        # The last step is told in the same breath as the result.
        assert [(step.progress, step.total) for step in seen] == [(1, 4), (2, 4), (3, 4), (4, 4)]


async def test_progress_prolongs_the_timeout(connect: Connect):
    async with connect() as client:
        result = await client.call_tool(
            "trigger-long-running-operation",
            {"duration": 4, "steps": 10},
            timeout=3,
            max_timeout=60,
            on_progress=lambda step: None,
        )
        assert not result.is_error


async def test_sampling(connect: Connect):
    asked: list[CreateMessageRequestParams] = []

    async def think(request: CreateMessageRequestParams) -> CreateMessageResult:
        asked.append(request)
        return CreateMessageResult(
            role="assistant",
            content=TextContent(text="Indeed."),
            model="parrot-1",
            stop_reason="endTurn",
        )

    async with connect(sampling=think) as client:
        result = await client.call_tool(
            "trigger-sampling-request", {"prompt": "Nice?", "maxTokens": 7}
        )
    said = json.loads(text_of(result).partition("\n")[2])
    assert said["model"] == "parrot-1" and said["content"]["text"] == "Indeed."
    assert asked[0].max_tokens == 7
    assert asked[0].system_prompt == "You are a helpful test server."
    content = asked[0].messages[0].content
    assert isinstance(content, TextContent) and content.text.endswith("Nice?")


async def test_elicitation(connect: Connect):
    asked: list[ElicitRequestParams] = []

    def fill_in(form: ElicitRequestParams) -> dict[str, Any]:
        asked.append(form)
        return {"name": "Ada", "check": True, "integer": 7}

    async with connect(elicitation=fill_in) as client:
        result = await client.call_tool("trigger-elicitation-request")
    raw = json.loads(text_of(result, -1).partition(":")[2])
    assert raw["action"] == "accept"
    # What was left open comes with the defaults of the form.
    assert {"name": "Ada", "check": True, "integer": 7, "number": 3.14}.items() <= raw[
        "content"
    ].items()
    assert raw["content"]["untitledMultipleSelectEnum"] == ["Guitar"]
    assert raw["content"]["titledSingleSelectEnum"] == "hero-1"
    assert asked[0].requested_schema is not None
    assert asked[0].requested_schema.required == ["name"]


async def test_elicitation_refused(connect: Connect):
    answers = [False, None]
    async with connect(elicitation=lambda form: answers.pop(0)) as client:
        declined = await client.call_tool("trigger-elicitation-request")
        assert "User declined" in text_of(declined)
        cancelled = await client.call_tool("trigger-elicitation-request")
        assert "User cancelled" in text_of(cancelled)


async def test_elicitation_by_url(connect: Connect):
    asked: list[ElicitRequestParams] = []

    def visit(request: ElicitRequestParams) -> bool:
        asked.append(request)
        return True

    arguments = {"url": "https://pay.example/42", "elicitationId": "pay-42"}
    async with connect(elicitation=visit) as client:
        result = await client.call_tool("trigger-url-elicitation", arguments)
        assert "User completed" in text_of(result)
        assert (asked[0].mode, asked[0].url) == ("url", "https://pay.example/42")
        assert asked[0].elicitation_id == "pay-42"
        with pytest.raises(McpError) as error:
            await client.call_tool("trigger-url-elicitation", {**arguments, "errorPath": True})
        assert error.value.code == -32042
        (required,) = error.value.data["elicitations"]
        assert required["mode"] == "url" and required["elicitationId"]


async def test_roots(connect: Connect):
    roots = ["file:///srv/demo"]
    logs: asyncio.Queue[LoggingMessageNotificationParams] = asyncio.Queue()
    async with connect(roots=lambda: roots, on_log=logs.put_nowait) as client:
        result = await client.call_tool("get-roots-list")
        assert "(1 total)" in text_of(result) and "file:///srv/demo" in text_of(result)
        async with asyncio.timeout(30):
            while "1 root(s)" not in str((await logs.get()).data):
                pass
        roots.append("file:///srv/more")
        client.notify_roots_changed()
        async with asyncio.timeout(30):
            while "2 root(s)" not in str((await logs.get()).data):
                pass
        assert "file:///srv/more" in text_of(await client.call_tool("get-roots-list"))


async def test_resources(connect: Connect):
    async with connect() as client:
        resources = [resource async for resource in client.resources()]
        assert resources and all(resource.uri.startswith("demo://") for resource in resources)
        (first,) = (await client.read_resource(resources[0].uri)).contents
        assert first.text
        templates = [template.uri_template async for template in client.resource_templates()]
        assert templates == [f"{TEXT}/{{resourceId}}", f"{BLOB}/{{resourceId}}"]
        (text,) = (await client.read_resource(f"{TEXT}/7")).contents
        assert text.text is not None and text.text.startswith("Resource 7: ")
        (blob,) = (await client.read_resource(f"{BLOB}/7")).contents
        assert blob.blob is not None and b64decode(blob.blob).startswith(b"Resource 7: ")
        with pytest.raises(McpError):
            await client.read_resource("demo://nothing")


async def test_subscription(connect: Connect):
    heard: asyncio.Queue[str] = asyncio.Queue()

    def noticed(notice: Any) -> None:
        if notice.method == "notifications/resources/updated":
            heard.put_nowait(notice.params.uri)

    async with connect(on_notification=noticed) as client:
        await client.subscribe(f"{TEXT}/1")
        await client.subscribe(f"{TEXT}/2")
        await client.unsubscribe(f"{TEXT}/1")
        await client.call_tool("toggle-subscriber-updates")
        async with asyncio.timeout(30):
            assert await heard.get() == f"{TEXT}/2"
        await client.call_tool("toggle-subscriber-updates")


async def test_prompts(connect: Connect):
    async with connect() as client:
        prompts = {prompt.name: prompt async for prompt in client.prompts()}
        assert set(prompts) == {
            "simple-prompt",
            "args-prompt",
            "completable-prompt",
            "resource-prompt",
        }
        assert [(a.name, a.required) for a in prompts["args-prompt"].arguments or []] == [
            ("city", True),
            ("state", False),
        ]
        simple = await client.get_prompt("simple-prompt")
        assert simple.messages[0].content == TextContent(
            text="This is a simple prompt without arguments."
        )
        filled = await client.get_prompt("args-prompt", {"city": "Salem", "state": "Oregon"})
        assert filled.messages[0].content == TextContent(text="What's weather in Salem, Oregon?")
        # Values that are no text are sent as text.
        _, message = (
            await client.get_prompt("resource-prompt", {"resourceType": "Blob", "resourceId": 5})
        ).messages
        assert isinstance(message.content, EmbeddedResource)
        assert message.content.resource.uri == f"{BLOB}/5"
        with pytest.raises(McpError) as error:
            await client.get_prompt("args-prompt")
        assert error.value.code == -32602


async def test_completion(connect: Connect):
    async with connect() as client:
        found = await client.complete("completable-prompt", "department", "S")
        assert found.values == ["Sales", "Support"]
        found = await client.complete(
            "completable-prompt", "name", "", context={"department": "Engineering"}
        )
        assert found.values == ["Alice", "Bob", "Charlie"]
        found = await client.complete(f"{TEXT}/{{resourceId}}", "resourceId", "12")
        assert (found.values, found.has_more) == (["12"], False)


async def test_log_level(connect: Connect):
    heard: list[LoggingMessageNotificationParams] = []
    async with connect(on_log=heard.append, log_level="info") as client:
        await client.subscribe(f"{TEXT}/1")  # it logs this, at level info
        await client.ping()
        assert [message.level for message in heard] == ["info"]
        assert str(heard[0].data).startswith("Received Subscribe Resource request")
        await client.set_log_level("error")
        await client.unsubscribe(f"{TEXT}/1")
        await client.ping()
        assert len(heard) == 1
