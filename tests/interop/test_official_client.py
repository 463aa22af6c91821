"""The client of the official Python SDK against our server on stdio and over HTTP, in both eras.

`test_gateway` has most of these checks made through a gateway, too.
"""

import asyncio
import json
from base64 import b64decode
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp import Client, ClientSession, MCPError, StdioServerParameters
from mcp.client.extension import advertise
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

from tests.interop.demo_server import NOTE, PIXEL
from tests.interop.peers import DEMO_SERVER, LEGACY, MODERN, serving

# The legacy era's own methods are deprecated there, and tried here on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")

BOTH = pytest.mark.parametrize("mode", ["legacy", MODERN])
TOOLS = [
    *("add", "forecast", "echo", "show", "fail", "count", "chatter", "sleep", "interrupted"),
    *("reflect", "book", "pay", "consult", "delegate", "workplace", "survey", "write", "grow"),
]

META: Any = {
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "example.com/more": [1],
}


class Audited(types.Result):
    since: int
    trace: str | None


Demo = StdioServerParameters | str
Connect = Callable[..., Client]


def on_stdio() -> StdioServerParameters:
    return StdioServerParameters(command=DEMO_SERVER[0], args=DEMO_SERVER[1:])


@pytest.fixture(params=["stdio", "http"])
def demo(request: pytest.FixtureRequest) -> Iterator[Demo]:
    """A server of this test's own."""
    if request.param == "stdio":
        yield on_stdio()
        return
    with serving(DEMO_SERVER) as url:
        yield url


@pytest.fixture
def connect(demo: Demo) -> Connect:
    """Make a client of that server, in a mode."""
    return partial(Client, demo, read_timeout_seconds=10)


async def listed(list_page: Any, member: str) -> list[Any]:
    """All pages of a list."""
    found, cursor = [], None
    while True:
        page = await list_page(cursor=cursor)
        found += getattr(page, member)
        cursor = page.next_cursor
        if cursor is None:
            return found


def text_of(result: types.CallToolResult) -> str:
    block = result.content[0]
    assert isinstance(block, types.TextContent)
    return block.text


class Person:
    """Answers what a server asks, and keeps what was asked."""

    def __init__(self, *answers: types.ElicitResult) -> None:
        self.answers = list(answers)
        self.asked: list[Any] = []

    async def elicit(self, context: Any, params: Any) -> types.ElicitResult:
        self.asked.append(params)
        return self.answers.pop(0)

    async def sample(self, context: Any, params: Any) -> types.CreateMessageResult:
        self.asked.append(params)
        return types.CreateMessageResult(
            role="assistant",
            content=types.TextContent(type="text", text="Yes."),
            model="parrot-1",
            stop_reason="endTurn",
        )

    async def roots(self, context: Any) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[types.Root(uri="file:///srv/demo", name="demo")])

    def callbacks(self) -> dict[str, Any]:
        return {
            "elicitation_callback": self.elicit,
            "sampling_callback": self.sample,
            "list_roots_callback": self.roots,
        }


def accept(**content: Any) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content=content)


@pytest.mark.parametrize(
    ("mode", "version"), [("legacy", LEGACY[-1]), ("auto", MODERN), (MODERN, MODERN)]
)
async def test_version_and_identity(connect: Connect, mode: str, version: str):
    async with connect(mode=mode) as client:
        assert client.protocol_version == version
        if mode == MODERN:
            return  # pinned, it does not ask who is there
        assert client.server_info is not None
        assert (client.server_info.name, client.server_info.version) == ("demo", "1.2.3")
        assert client.server_info.title == "Demo"
        assert client.instructions == "Try everything."
        capabilities = client.server_capabilities
        assert capabilities.tools is not None and capabilities.tools.list_changed
        assert capabilities.resources is not None and capabilities.resources.subscribe
        assert capabilities.prompts is not None and capabilities.completions is not None


@asynccontextmanager
async def session_of(
    demo: Demo, version: str
) -> AsyncIterator[tuple[ClientSession, types.InitializeResult]]:
    """A session with a version of one's own choice, which `Client` does not let one choose."""
    transport = streamable_http_client(demo) if isinstance(demo, str) else stdio_client(demo)
    async with (
        transport as streams,
        ClientSession(*streams, read_timeout_seconds=10) as session,
    ):
        params = types.InitializeRequestParams(
            protocol_version=version,
            capabilities=types.ClientCapabilities(),
            client_info=types.Implementation(name="tester", version="1"),
        )
        request = types.InitializeRequest(params=params)
        result = await session.send_request(request, types.InitializeResult)
        session.adopt(result)
        await session.send_notification(types.InitializedNotification())
        yield session, result


@pytest.mark.parametrize("version", LEGACY)
async def test_every_legacy_version(demo: Demo, version: str):
    async with session_of(demo, version) as (session, introduction):
        assert introduction.protocol_version == version
        await session.send_ping()
        # The session checks each result against the schema of the version.
        assert (await session.list_tools()).tools[0].name == "add"
        assert text_of(await session.call_tool("add", {"a": 2, "b": 3})) == "5"
        failed = await session.call_tool("fail", {"reason": "why not"})
        assert failed.is_error
        read = await session.read_resource(NOTE)
        assert read.contents[0].text == "first"
        assert len((await session.list_prompts()).prompts) == 4
        prompt = await session.get_prompt("brief", {"city": "Oslo"})
        assert prompt.messages[0].content.text == "Give me a short weather briefing for Oslo."
        with pytest.raises(MCPError) as error:
            await session.read_resource("demo://nothing")
        assert error.value.error.code == -32002
        if version == LEGACY[-1]:
            assert (await session.call_tool("add", {"a": 2})).is_error
        else:
            with pytest.raises(MCPError) as error:
                await session.call_tool("add", {"a": 2})
            assert error.value.error.code == types.INVALID_PARAMS


async def test_a_version_nobody_knows_is_answered_with_ours(demo: Demo):
    async with session_of(demo, "1999-12-31") as (_, introduction):
        assert introduction.protocol_version == LEGACY[-1]


@BOTH
async def test_tools(connect: Connect, mode: str):
    async with connect(mode=mode) as client:
        tools = {tool.name: tool for tool in await listed(client.list_tools, "tools")}
        assert list(tools) == TOOLS
        add = tools["add"]
        assert add.title == "Add" and add.description == "Add two numbers."
        assert add.annotations is not None and add.annotations.read_only_hint
        assert add.input_schema["required"] == ["a", "b"]
        assert add.input_schema["properties"]["a"] == {
            "type": "integer",
            "description": "One of them.",
        }

        result = await client.call_tool("add", {"a": 2, "b": 3})
        assert result.structured_content == {"result": 5} and text_of(result) == "5"
        result = await client.call_tool("forecast", {"city": "Lisbon"})
        weather = {"city": "Lisbon", "days": ["sun", "sun"], "warm": True}
        assert result.structured_content == weather and json.loads(text_of(result)) == weather


@BOTH
async def test_content_of_every_kind(connect: Connect, mode: str):
    async with connect(mode=mode) as client:
        text, image, audio, link, embedded = (await client.call_tool("show")).content
    assert text.text == "look"
    assert text.annotations.audience == ["user"] and text.annotations.priority == 0.5
    assert image.mime_type == "image/png" and b64decode(image.data) == PIXEL
    assert audio.mime_type == "audio/wav" and b64decode(audio.data) == b"RIFF"
    assert link.uri == NOTE and link.name == "note"
    assert embedded.resource.text == "inside"


@BOTH
async def test_many_calls_at_once_and_long_ones(connect: Connect, mode: str):
    long = "naïve 🦪\u2028\n" * 50_000
    async with connect(mode=mode) as client:
        results = await asyncio.gather(
            *(client.call_tool("echo", {"text": f"call {n}"}) for n in range(200)),
            client.call_tool("echo", {"text": long}),
        )
    assert [text_of(result) for result in results] == [*(f"call {n}" for n in range(200)), long]


@BOTH
async def test_tool_errors(connect: Connect, mode: str):
    async with connect(mode=mode) as client:
        failed = await client.call_tool("fail", {"reason": "why not"})
        assert failed.is_error and text_of(failed) == "failed: why not"
        wrong = await client.call_tool("add", {"a": 2, "b": "three"})
        assert wrong.is_error and "`b`" in text_of(wrong)
        with pytest.raises(MCPError) as error:
            await client.call_tool("nothing")
        assert error.value.error.code == types.INVALID_PARAMS
        assert text_of(await client.call_tool("add", {"a": 1, "b": 1})) == "2"


@BOTH
async def test_resources(connect: Connect, mode: str):
    async with connect(mode=mode) as client:
        resources = {r.uri: r for r in await listed(client.list_resources, "resources")}
        assert list(resources) == [NOTE, "demo://pixel"]
        assert resources["demo://pixel"].size == len(PIXEL)
        templates = await listed(client.list_resource_templates, "resource_templates")
        assert [t.uri_template for t in templates] == [
            "demo://{city}/weather",
            "demo://{city}/secret",
        ]

        (text,) = (await client.read_resource(NOTE)).contents
        assert (text.text, text.mime_type) == ("first", "text/plain")
        (binary,) = (await client.read_resource("demo://pixel")).contents
        assert b64decode(binary.blob) == PIXEL and binary.mime_type == "image/png"
        (weather,) = (await client.read_resource("demo://Oslo/weather")).contents
        assert weather.uri == "demo://Oslo/weather"
        assert json.loads(weather.text) == {"city": "Oslo", "sky": "snow"}

        with pytest.raises(MCPError) as error:
            await client.read_resource("demo://nothing")
        assert error.value.error.code == (-32602 if mode == MODERN else -32002)


@BOTH
async def test_prompts(connect: Connect, mode: str):
    async with connect(mode=mode) as client:
        prompts = {p.name: p for p in await listed(client.list_prompts, "prompts")}
        assert list(prompts) == ["brief", "dialogue", "personal", "visit"]
        assert [(a.name, a.required) for a in prompts["brief"].arguments or []] == [
            ("city", True),
            ("tone", False),
        ]
        prompt = await client.get_prompt("brief", {"city": "Oslo", "tone": "long"})
        assert prompt.messages[0].content.text == "Give me a long weather briefing for Oslo."
        question, note, answer = (await client.get_prompt("dialogue")).messages
        assert (question.role, note.content.resource.text) == ("user", "a note")
        assert (answer.role, answer.content.text) == ("assistant", "A note.")
        with pytest.raises(MCPError) as error:
            await client.get_prompt("brief", {})
        assert error.value.error.code == types.INVALID_PARAMS


@BOTH
async def test_completion(connect: Connect, mode: str):
    prompt = types.PromptReference(type="ref/prompt", name="brief")
    template = types.ResourceTemplateReference(type="ref/resource", uri="demo://{city}/weather")
    visit = types.PromptReference(type="ref/prompt", name="visit")
    async with connect(mode=mode) as client:
        found = await client.complete(prompt, {"name": "city", "value": "L"})
        assert found.completion.values == ["Lisbon"]
        found = await client.complete(template, {"name": "city", "value": ""})
        assert found.completion.values == ["Hanoi", "Lisbon", "Oslo"]
        assert found.completion.total == 3 and not found.completion.has_more
        found = await client.complete(visit, {"name": "street", "value": "K"}, {"city": "Oslo"})
        assert found.completion.values == ["Karl Johans gate", "Kirkeveien"]


@BOTH
async def test_progress(connect: Connect, mode: str):
    seen = []

    async def progressed(progress: float, total: float | None, message: str | None) -> None:
        seen.append((progress, total, message))

    async with connect(mode=mode) as client:
        await client.call_tool("count", {"to": 3}, progress_callback=progressed)
        await client.call_tool("count", {"to": 3})  # nobody wants to know
    assert sorted(seen) == [(1, 3, "at 1"), (2, 3, "at 2"), (3, 3, "at 3")]


@pytest.mark.parametrize(
    ("level", "said"),
    [
        ("debug", ["a detail", {"what": "news"}, "a problem"]),
        ("info", [{"what": "news"}, "a problem"]),
        ("critical", []),
    ],
)
@BOTH
async def test_logging(connect: Connect, mode: str, level: Any, said: list[Any]):
    heard: list[types.LoggingMessageNotificationParams] = []

    async def logged(params: types.LoggingMessageNotificationParams) -> None:
        heard.append(params)

    async with connect(mode=mode, logging_callback=logged, log_level=level) as client:
        if mode == "legacy":
            await client.set_logging_level(level)
        await client.call_tool("chatter")
        await client.call_tool("add", {"a": 1, "b": 1})
    # Callbacks run concurrently there, so what arrived in order may be heard in another.
    assert sorted(map(repr, said)) == sorted(repr(message.data) for message in heard)
    assert {message.logger for message in heard} <= {"demo"}


async def test_a_modern_client_that_does_not_ask_hears_no_log(connect: Connect):
    heard = []

    async def logged(params: types.LoggingMessageNotificationParams) -> None:
        heard.append(params)

    async with connect(mode=MODERN, logging_callback=logged) as client:
        await client.call_tool("chatter")
        await client.call_tool("add", {"a": 1, "b": 1})
    assert heard == []


@BOTH
async def test_elicitation(connect: Connect, mode: str):
    person = Person(accept(city="Oslo", insured=True), accept())
    async with connect(mode=mode, **person.callbacks()) as client:
        result = await client.call_tool("book")
        assert text_of(result) == "booked 1: second class, insured True"
    form, sure = person.asked
    assert form.message == "Where to?"
    fields = form.requested_schema["properties"]
    assert fields["city"] == {"type": "string"}
    assert fields["days"] == {"type": "integer", "minimum": 1, "maximum": 30, "default": 3}
    assert fields["travel_class"]["enum"] == ["first", "second"]
    assert fields["insured"] == {"type": "boolean", "default": False}
    assert form.requested_schema["required"] == ["city"]
    assert sure.message == "3 days in Oslo. Sure?"


@BOTH
async def test_elicitation_refused(connect: Connect, mode: str):
    person = Person(types.ElicitResult(action="decline"), types.ElicitResult(action="cancel"))
    async with connect(mode=mode, **person.callbacks()) as client:
        assert text_of(await client.call_tool("book")) == "not booked: decline"
        assert text_of(await client.call_tool("book")) == "not booked: cancel"


@BOTH
async def test_elicitation_by_url(connect: Connect, mode: str):
    person = Person(types.ElicitResult(action="accept"))
    async with connect(mode=mode, **person.callbacks()) as client:
        assert text_of(await client.call_tool("pay")) == "accept"
    (asked,) = person.asked
    assert (asked.mode, asked.url) == ("url", "https://pay.example/42")


@BOTH
async def test_sampling(connect: Connect, mode: str):
    person = Person()
    async with connect(mode=mode, **person.callbacks()) as client:
        assert text_of(await client.call_tool("consult", {"question": "Nice?"})) == "parrot-1: Yes."
    (asked,) = person.asked
    assert asked.messages[0].content.text == "Nice?"
    assert (asked.max_tokens, asked.system_prompt) == (50, "Be brief.")


@BOTH
async def test_sampling_with_tools(connect: Connect, mode: str):
    asked: list[types.CreateMessageRequestParams] = []

    async def think(context: Any, params: Any) -> types.CreateMessageResultWithTools:
        asked.append(params)
        block: Any
        if len(asked) == 1:
            numbers = {"a": 20, "b": 22}
            block = types.ToolUseContent(type="tool_use", id="use-1", name="add", input=numbers)
        else:
            result = params.messages[-1].content[0]
            assert (result.type, result.tool_use_id) == ("tool_result", "use-1")
            block = types.TextContent(type="text", text=f"It is {result.content[0].text}.")
        return types.CreateMessageResultWithTools(
            role="assistant", content=[block], model="parrot-1", stop_reason="endTurn"
        )

    tools = types.SamplingCapability(tools=types.SamplingToolsCapability())
    async with connect(mode=mode, sampling_callback=think, sampling_capabilities=tools) as client:
        result = await client.call_tool("delegate", {"question": "20 + 22?"})
        assert text_of(result) == "It is 42."
    assert asked[0].tools is not None and asked[0].tools[0].name == "add"
    assert asked[0].tool_choice is not None and asked[0].tool_choice.mode == "required"


@BOTH
async def test_roots(connect: Connect, mode: str):
    async with connect(mode=mode, **Person().callbacks()) as client:
        result = await client.call_tool("workplace")
        assert result.structured_content == {"result": ["file:///srv/demo"]}


@BOTH
async def test_three_questions_at_once(connect: Connect, mode: str):
    person = Person(accept(city="Hanoi"))
    async with connect(mode=mode, **person.callbacks()) as client:
        assert text_of(await client.call_tool("survey")) == "1 roots, Hanoi, Yes."


async def test_three_questions_are_one_round(connect: Connect):
    async with connect(mode=MODERN, **Person().callbacks()) as client:
        asked = await client.session.call_tool("survey", allow_input_required=True)
    assert isinstance(asked, types.InputRequiredResult)
    methods = sorted(request.method for request in (asked.input_requests or {}).values())
    assert methods == ["elicitation/create", "roots/list", "sampling/createMessage"]
    assert asked.request_state


@BOTH
async def test_asking_is_nothing_to_complain_of(mode: str, tmp_path: Path):
    person = Person(accept(city="Hanoi"), accept(city="Oslo"), accept())
    stderr = tmp_path / "stderr"
    with stderr.open("w") as errlog:
        transport = stdio_client(on_stdio(), errlog=errlog)
        async with Client(transport, mode=mode, **person.callbacks()) as client:
            await client.call_tool("survey")
            await client.call_tool("book")
    complaints = [line for line in stderr.read_text().splitlines() if " INFO " not in line]
    assert complaints == ["demo is listening"]


@BOTH
async def test_resources_and_prompts_may_ask_too(connect: Connect, mode: str):
    person = Person(accept(), accept(city="Lisbon"))
    async with connect(mode=mode, **person.callbacks()) as client:
        (secret,) = (await client.read_resource("demo://Oslo/secret")).contents
        assert secret.text == "Oslo accept"
        prompt = await client.get_prompt("personal")
        assert prompt.messages[0].content.text == "I want to go to Lisbon."


@BOTH
async def test_a_client_that_cannot_be_asked(connect: Connect, mode: str):
    async with connect(mode=mode) as client:
        if mode == MODERN:
            with pytest.raises(MCPError) as error:
                await client.call_tool("consult", {"question": "Nice?"})
            assert error.value.error.code == types.MISSING_REQUIRED_CLIENT_CAPABILITY
            assert error.value.error.data["requiredCapabilities"] == {"sampling": {}}
        else:
            result = await client.call_tool("consult", {"question": "Nice?"})
            assert result.is_error and "`sampling`" in text_of(result)


@BOTH
async def test_meta_and_a_method_of_an_extension(connect: Connect, mode: str):
    async with connect(mode=mode, extensions=[advertise("com.example/audit")]) as client:
        result = await client.call_tool("reflect", meta=META)
        assert result.structured_content == {"result": META}
        assert (result.meta or {})["example.com/tag"] == [1]
        params = {"since": 3, "_meta": META}
        request = types.Request[dict[str, Any], str](method="audit/read", params=params)
        answer = await client.session.send_request(request, Audited)
        assert (answer.since, answer.trace) == (3, META["traceparent"])


@BOTH
async def test_cancelled_by_timeout(connect: Connect, mode: str):
    async with connect(mode=mode) as client:
        with pytest.raises(MCPError) as error:
            await client.call_tool("sleep", {"seconds": 60}, read_timeout_seconds=2.0)
        assert error.value.error.code == types.REQUEST_TIMEOUT
        # The cancellation and this call race to the server; what counts is that it arrives.
        async with asyncio.timeout(30):
            while (await client.call_tool("interrupted")).structured_content != {"result": 1}:
                await asyncio.sleep(0.05)


async def test_legacy_subscription_and_list_changes(connect: Connect):
    heard: asyncio.Queue[Any] = asyncio.Queue()

    async def noticed(message: Any) -> None:
        await heard.put(message)

    async with connect(mode="legacy", message_handler=noticed) as client:
        await client.call_tool("write", {"text": "unheard"})
        await client.subscribe_resource(NOTE)
        await client.call_tool("write", {"text": "second"})
        async with asyncio.timeout(30):
            updated = await heard.get()
        assert isinstance(updated, types.ResourceUpdatedNotification) and updated.params.uri == NOTE
        assert (await client.read_resource(NOTE)).contents[0].text == "second"
        await client.unsubscribe_resource(NOTE)
        await client.call_tool("write", {"text": "unheard"})

        await client.call_tool("grow")
        async with asyncio.timeout(30):
            changes = {type(await heard.get()) for _ in range(3)}
        assert changes == {
            types.ToolListChangedNotification,
            types.ResourceListChangedNotification,
            types.PromptListChangedNotification,
        }
        assert "grown" in [tool.name for tool in await listed(client.list_tools, "tools")]


async def test_modern_subscription_and_list_changes(connect: Connect):
    wanted = {
        "tools_list_changed": True,
        "prompts_list_changed": True,
        "resources_list_changed": True,
        "resource_subscriptions": [NOTE],
    }
    async with connect(mode=MODERN) as client:
        async with client.listen(**wanted) as changes, asyncio.timeout(30):
            assert changes.honored == types.SubscriptionFilter(**wanted)
            await client.call_tool("write", {"text": "second"})
            assert type(await anext(changes)).__name__ == "ResourceUpdated"
            await client.call_tool("grow")
            kinds = {type(await anext(changes)).__name__ for _ in range(3)}
            assert kinds == {"ToolsListChanged", "PromptsListChanged", "ResourcesListChanged"}
        # The subscription has ended and the connection goes on.
        assert text_of(await client.call_tool("write", {"text": "unheard"})) == "written"


async def test_http_and_sse():
    """The transport of 2024-11-05, which its client still has."""
    heard: asyncio.Queue[Any] = asyncio.Queue()
    seen = []

    async def noticed(message: Any) -> None:
        await heard.put(message)

    async def progressed(progress: float, total: float | None, message: str | None) -> None:
        seen.append(progress)

    person = Person(accept(city="Oslo", insured=True), accept())
    with serving(DEMO_SERVER) as url:
        async with Client(
            sse_client(url.replace("/mcp", "/sse")),
            mode="legacy",
            read_timeout_seconds=10,
            message_handler=noticed,
            **person.callbacks(),
        ) as client:
            tools = await listed(client.list_tools, "tools")
            assert [tool.name for tool in tools] == TOOLS
            await client.call_tool("count", {"to": 3}, progress_callback=progressed)
            assert sorted(seen) == [1, 2, 3]
            booked = await client.call_tool("book")
            assert text_of(booked) == "booked 1: second class, insured True"
            assert text_of(await client.call_tool("add", {"a": 1, "b": 1})) == "2"
            while not heard.empty():
                heard.get_nowait()
            await client.subscribe_resource(NOTE)
            await client.call_tool("write", {"text": "second"})
            async with asyncio.timeout(30):
                updated = await heard.get()
            assert isinstance(updated, types.ResourceUpdatedNotification)
