"""Our client against a server of the official Python SDK on stdio, in both eras.

`test_gateway` has most of these checks made through a gateway, too.
"""

import asyncio
import json
from base64 import b64decode
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from mcpearl import Client, McpError, RequestTimeout, ToolError
from mcpearl.client.extensions import ClientExtension
from mcpearl.types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestParams,
    ElicitResult,
    ImageContent,
    LoggingMessageNotificationParams,
    ProgressNotificationParams,
    TextContent,
    ToolUseContent,
)
from tests.interop.peers import LEGACY, MODERN, OFFICIAL_SERVER

BOTH = pytest.mark.parametrize("protocol", [LEGACY[-1], MODERN])
TOOLS = [
    *("add", "forecast", "echo", "picture", "fail", "count", "chatter", "sleep", "interrupted"),
    *("reflect", "book", "consult", "delegate", "workplace", "survey", "pay", "write", "grow"),
]
META: dict[str, Any] = {
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "example.com/more": [1],
}
NOTE = "official://note"
BYTES = bytes(range(16))


class AuditClient(ClientExtension):
    identifier = "com.example/audit"


Connect = Callable[..., Client]


@pytest.fixture
def connect() -> Connect:
    """Make a client of a server of this test's own, in a version."""
    return partial(connect_to, OFFICIAL_SERVER)


def connect_to(target: Any, protocol: str, **options: Any) -> Client:
    return Client(target, protocol=protocol, timeout=30, **options)


def text_of(result: Any) -> str:
    return result.content[0].text


@pytest.mark.parametrize(
    ("protocol", "version"),
    [("auto", MODERN), *((version, version) for version in LEGACY)],
)
async def test_version_and_identity(connect: Connect, protocol: str, version: str):
    async with connect(protocol) as client:
        assert client.protocol_version == version
        assert client.era == ("modern" if version == MODERN else "legacy")
        assert client.server_info is not None
        assert (client.server_info.name, client.server_info.version) == ("official", "2.0.0")
        assert client.instructions == "Made with the official SDK."
        assert client.server_capabilities.tools is not None
        await client.ping()
        assert text_of(await client.call_tool("add", {"a": 2, "b": 3})) == "5"
        assert (await client.read_resource(NOTE)).contents[0].text == "first"
        prompt = await client.get_prompt("brief", {"city": "Oslo"})
        assert prompt.messages[0].content.text == "Give me a short weather briefing for Oslo."


@BOTH
async def test_tools(connect: Connect, protocol: str):
    async with connect(protocol) as client:
        tools = {tool.name: tool async for tool in client.tools()}
        assert list(tools) == TOOLS
        add = tools["add"]
        assert (add.title, add.description) == ("Add", "Add two numbers.")
        assert add.annotations is not None and add.annotations.read_only_hint
        assert add.input_schema["required"] == ["a", "b"]

        result = await client.call_tool("add", {"a": 2, "b": 3})
        assert result.structured_content == {"result": 5} and text_of(result) == "5"
        result = await client.call_tool("forecast", {"city": "Lisbon"})
        weather = {"city": "Lisbon", "days": ["sun", "sun"], "warm": True}
        assert result.structured_content == weather and json.loads(text_of(result)) == weather
        (image,) = (await client.call_tool("picture")).content
        assert isinstance(image, ImageContent) and image.mime_type == "image/png"
        assert b64decode(image.data) == BYTES


@BOTH
async def test_many_calls_at_once_and_long_ones(connect: Connect, protocol: str):
    long = "naïve 🦪\u2028\n" * 50_000
    async with connect(protocol) as client:
        results = await asyncio.gather(
            *(client.call_tool("echo", {"text": f"call {n}"}) for n in range(200)),
            client.call_tool("echo", {"text": long}),
        )
    assert [text_of(result) for result in results] == [*(f"call {n}" for n in range(200)), long]


@BOTH
async def test_tool_errors(connect: Connect, protocol: str):
    async with connect(protocol) as client:
        failed = await client.call_tool("fail", {"reason": "why not"})
        assert failed.is_error and "failed: why not" in text_of(failed)
        with pytest.raises(ToolError, match="failed: why not"):
            await client.call_tool("fail", {"reason": "why not"}, raise_on_error=True)
        wrong = await client.call_tool("add", {"a": 2, "b": "three"})
        assert wrong.is_error
        # The specification wants -32602 for a tool that is not there; this server says it as a result.
        assert (await client.call_tool("nothing")).is_error


@BOTH
async def test_resources(connect: Connect, protocol: str):
    async with connect(protocol) as client:
        resources = {resource.uri: resource async for resource in client.resources()}
        assert list(resources) == [NOTE, "official://bytes"]
        assert resources[NOTE].mime_type == "text/plain"
        templates = [template.uri_template async for template in client.resource_templates()]
        assert templates == ["official://{city}/weather"]

        (text,) = (await client.read_resource(NOTE)).contents
        assert text.text == "first"
        (binary,) = (await client.read_resource("official://bytes")).contents
        assert binary.blob is not None and b64decode(binary.blob) == BYTES
        (weather,) = (await client.read_resource("official://Oslo/weather")).contents
        assert json.loads(weather.text or "") == {"city": "Oslo", "sky": "sun"}
        with pytest.raises(McpError) as error:
            await client.read_resource("official://nothing")
        assert error.value.data == {"uri": "official://nothing"}


@BOTH
async def test_prompts_and_completion(connect: Connect, protocol: str):
    async with connect(protocol) as client:
        prompts = {prompt.name: prompt async for prompt in client.prompts()}
        assert list(prompts) == ["brief", "dialogue"]
        assert [(a.name, a.required) for a in prompts["brief"].arguments or []] == [
            ("city", True),
            ("tone", False),
        ]
        prompt = await client.get_prompt("brief", {"city": "Oslo", "tone": "long"})
        assert prompt.messages[0].content == TextContent(
            text="Give me a long weather briefing for Oslo."
        )
        roles = [message.role for message in (await client.get_prompt("dialogue")).messages]
        assert roles == ["user", "assistant"]

        assert (await client.complete("brief", "city", "L")).values == ["Lisbon"]
        found = await client.complete("official://{city}/weather", "city", "")
        assert (found.values, found.total, found.has_more) == (
            ["Hanoi", "Lisbon", "Oslo"],
            3,
            False,
        )


@BOTH
async def test_progress(connect: Connect, protocol: str):
    seen: list[ProgressNotificationParams] = []
    async with connect(protocol) as client:
        await client.call_tool("count", {"to": 3}, on_progress=seen.append)
        assert [(p.progress, p.total, p.message) for p in seen] == [
            (1, 3, "at 1"),
            (2, 3, "at 2"),
            (3, 3, "at 3"),
        ]


@BOTH
async def test_logging(connect: Connect, protocol: str):
    heard: list[LoggingMessageNotificationParams] = []
    async with connect(protocol, on_log=heard.append, log_level="info") as client:
        await client.call_tool("chatter")
        await client.ping()
        assert [(m.level, m.data, m.logger) for m in heard] == [
            ("info", {"what": "news"}, "official"),
            ("error", "a problem", "official"),
        ]
        heard.clear()
        await client.set_log_level("error")
        await client.call_tool("chatter")
        await client.ping()
        assert [message.level for message in heard] == ["error"]


@BOTH
async def test_elicitation(connect: Connect, protocol: str):
    asked: list[ElicitRequestParams] = []

    def fill_in(form: ElicitRequestParams) -> dict[str, Any]:
        asked.append(form)
        return {"city": "Oslo", "days": 5}

    async with connect(protocol, elicitation=fill_in) as client:
        result = await client.call_tool("book")
        assert text_of(result) == "booked 5 days in Oslo, second class"
    (form,) = asked
    assert form.message == "Where to?" and form.requested_schema is not None
    assert form.requested_schema.required == ["city"]
    assert form.requested_schema.properties["days"]["maximum"] == 30
    assert form.requested_schema.properties["travel_class"]["enum"] == ["first", "second"]


@BOTH
async def test_elicitation_refused(connect: Connect, protocol: str):
    answers = [False, None]
    async with connect(protocol, elicitation=lambda form: answers.pop(0)) as client:
        assert text_of(await client.call_tool("book")) == "not booked: decline"
        assert text_of(await client.call_tool("book")) == "not booked: cancel"


@BOTH
async def test_a_page_to_visit_is_asked_for_in_both_eras(connect: Connect, protocol: str):
    asked: list[ElicitRequestParams] = []

    def visit(request: ElicitRequestParams) -> ElicitResult:
        asked.append(request)
        return ElicitResult(action="accept")

    async with connect(protocol, elicitation=visit) as client:
        assert text_of(await client.call_tool("pay")) == "accept"
    assert [(each.mode, each.url) for each in asked] == [("url", "https://pay.example/42")]


async def test_elicitation_by_url(connect: Connect):
    asked: list[ElicitRequestParams] = []
    completed: asyncio.Queue[Any] = asyncio.Queue()

    async def visit(request: ElicitRequestParams) -> ElicitResult:
        asked.append(request)
        return ElicitResult(action="accept")

    async with connect(
        LEGACY[-1], elicitation=visit, on_notification=completed.put_nowait
    ) as client:
        assert text_of(await client.call_tool("pay")) == "accept"
        async with asyncio.timeout(30):
            notice = await completed.get()
    assert (asked[0].mode, asked[0].url) == ("url", "https://pay.example/42")
    assert notice.method == "notifications/elicitation/complete"
    assert notice.params.elicitation_id == "pay-42"


@BOTH
async def test_sampling(connect: Connect, protocol: str):
    asked: list[CreateMessageRequestParams] = []

    async def think(request: CreateMessageRequestParams) -> CreateMessageResult:
        asked.append(request)
        return CreateMessageResult(
            role="assistant", content=TextContent(text="Yes."), model="parrot-1"
        )

    async with connect(protocol, sampling=think) as client:
        assert text_of(await client.call_tool("consult")) == "parrot-1: Yes."
    assert asked[0].messages[0].content == TextContent(text="Is it nice there?")
    assert (asked[0].max_tokens, asked[0].system_prompt) == (50, "Be brief.")


@BOTH
async def test_sampling_with_tools(connect: Connect, protocol: str):
    asked: list[CreateMessageRequestParams] = []

    async def think(request: CreateMessageRequestParams) -> CreateMessageResult:
        asked.append(request)
        use = ToolUseContent(id="use-1", name="add", input={"a": 20, "b": 22})
        return CreateMessageResult(
            role="assistant", content=[use], model="parrot-1", stop_reason="toolUse"
        )

    async with connect(protocol, sampling=think) as client:
        assert text_of(await client.call_tool("delegate")) == "add {'a': 20, 'b': 22}"
    assert asked[0].tools is not None and asked[0].tools[0].name == "add"
    assert asked[0].tool_choice is not None and asked[0].tool_choice.mode == "required"


@BOTH
async def test_roots_alone_and_three_questions(connect: Connect, protocol: str):
    async with connect(
        protocol,
        elicitation=lambda form: {"city": "Hanoi"},
        sampling=lambda request: "Yes.",
        roots=["file:///srv/demo"],
    ) as client:
        result = await client.call_tool("workplace")
        assert result.structured_content == {"result": ["file:///srv/demo"]}
        assert text_of(await client.call_tool("survey")) == "1 roots, Hanoi, Yes."


@BOTH
async def test_meta_and_a_method_of_an_extension(connect: Connect, protocol: str):
    async with connect(protocol, extensions=[AuditClient()]) as client:
        result = await client.call_tool("reflect", meta=META)
        assert result.structured_content == {"result": META}
        assert (result.meta or {})["example.com/tag"] == [1]
        answer = await client.request("audit/read", {"since": 3, "_meta": META})
        assert answer.extra == {"since": 3, "trace": META["traceparent"]}
        with pytest.raises(McpError):
            await client.request("audit/read", {"since": "long ago"})


@BOTH
async def test_cancelled(connect: Connect, protocol: str):
    async with connect(protocol) as client:
        with pytest.raises(RequestTimeout):
            await client.call_tool("sleep", {"seconds": 60}, timeout=2.0)
        await until_interrupted(client, 1)
        begun = asyncio.Event()
        sleeping = client.call_tool("sleep", {"seconds": 60}, on_progress=lambda _: begun.set())
        call = asyncio.create_task(sleeping)
        await asyncio.wait_for(begun.wait(), 30)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await until_interrupted(client, 2)


async def until_interrupted(client: Client, times: int) -> None:
    async with asyncio.timeout(30):
        while (await client.call_tool("interrupted")).structured_content != {"result": times}:
            await asyncio.sleep(0.05)


async def test_legacy_subscription_and_list_changes(connect: Connect):
    heard: asyncio.Queue[Any] = asyncio.Queue()
    async with connect(LEGACY[-1], on_notification=heard.put_nowait) as client:
        await client.subscribe(NOTE)
        await client.call_tool("write", {"text": "second"})
        async with asyncio.timeout(30):
            notice = await heard.get()
        assert notice.method == "notifications/resources/updated" and notice.params.uri == NOTE
        assert (await client.read_resource(NOTE)).contents[0].text == "second"
        await client.unsubscribe(NOTE)
        await client.call_tool("grow")
        async with asyncio.timeout(30):
            notice = await heard.get()
        assert notice.method == "notifications/tools/list_changed"
        assert "grown" in [tool.name async for tool in client.tools()]


async def test_modern_subscription_and_list_changes(connect: Connect):
    async with connect(MODERN) as client:
        async with (
            client.listen(tools=True, resources=[NOTE]) as changes,
            asyncio.timeout(30),
        ):
            assert changes.granted is not None
            assert changes.granted.tools_list_changed
            assert changes.granted.resource_subscriptions == [NOTE]
            await client.call_tool("write", {"text": "second"})
            notice = await anext(changes)
            assert notice.method == "notifications/resources/updated" and notice.params.uri == NOTE
            await client.call_tool("grow")
            assert (await anext(changes)).method == "notifications/tools/list_changed"
        assert "grown" in [tool.name async for tool in client.tools()]


async def test_modern_subscription_by_the_legacy_words(connect: Connect):
    heard: asyncio.Queue[Any] = asyncio.Queue()
    async with connect(MODERN, on_notification=heard.put_nowait) as client:
        await client.subscribe(NOTE)
        await client.call_tool("write", {"text": "second"})
        async with asyncio.timeout(30):
            notice = await heard.get()
        assert notice.method == "notifications/resources/updated" and notice.params.uri == NOTE
        await client.unsubscribe(NOTE)
        await client.call_tool("write", {"text": "third"})
        assert heard.empty()
