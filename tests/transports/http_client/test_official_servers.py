"""Our HTTP client against the server of the official Python SDK, in both eras and before them."""

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mcpearl import Client
from mcpearl.protocol.errors import ConnectionLost, McpearlError, McpError, RequestTimeout
from mcpearl.protocol.limits import Limits
from mcpearl.transports.http_client.transport import HttpTransport
from mcpearl.types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestParams,
    ElicitResult,
    TextContent,
    ToolUseContent,
)
from tests.waiting import eventually

ROOT = Path(__file__).parents[3]
ERAS = pytest.mark.parametrize(
    ("protocol", "mode"),
    [
        ("2025-11-25", "stream"),
        ("2025-11-25", "json"),
        ("2025-11-25", "events"),
        ("2025-06-18", "stream"),
        ("2025-03-26", "stream"),
        ("2024-11-05", "stream"),
        ("2026-07-28", "stream"),
        ("2026-07-28", "json"),
    ],
)
NOTE = "official://note"
Address = Callable[[str], str]


@pytest.fixture(scope="module")
def address() -> Iterator[Address]:
    """Give the URL of a server in a mode, started when first asked for."""
    running: dict[str, tuple[subprocess.Popen[str], str]] = {}

    def start(mode: str) -> str:
        if mode not in running:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.transports.http_client.official_http_server", mode],
                stdout=subprocess.PIPE,
                text=True,
                cwd=ROOT,
            )
            assert process.stdout is not None
            port = process.stdout.readline().strip()
            path = "sse" if mode == "sse" else "mcp"
            running[mode] = process, f"http://127.0.0.1:{port}/{path}"
        return running[mode][1]

    yield start
    for process, _ in running.values():
        process.kill()
        process.communicate()


def connect(url: str, protocol: str = "auto", **options: Any) -> Client:
    transport = HttpTransport(url, Limits(), reconnect_delay=0.05)
    return Client(transport, protocol=protocol, timeout=30, **options)


def text_of(result: Any) -> str:
    return result.content[0].text


@pytest.mark.parametrize("mode", ["stream", "json", "events"])
async def test_the_era_is_found(address: Address, mode: str) -> None:
    async with connect(address(mode)) as client:
        assert client.protocol_version == "2026-07-28"
        assert client.server_info is not None
        assert client.server_info.name == "official"


@ERAS
async def test_calls_of_every_kind(address: Address, protocol: str, mode: str) -> None:
    async with connect(address(mode), protocol) as client:
        assert client.protocol_version == protocol
        assert "add" in [tool.name async for tool in client.tools()]
        assert text_of(await client.call_tool("add", {"a": 2, "b": 3})) == "5"
        assert (await client.call_tool("fail", {"reason": "x"})).is_error
        assert NOTE in [resource.uri async for resource in client.resources()]
        assert (await client.read_resource("official://Oslo/weather")).contents
        assert (await client.get_prompt("brief", {"city": "Oslo"})).messages
        assert (await client.complete("brief", "city", "L")).values == ["Lisbon"]
        await client.ping()
        with pytest.raises(McpError):
            await client.read_resource("official://nothing")


@ERAS
async def test_many_calls_at_once_and_a_long_one(
    address: Address, protocol: str, mode: str
) -> None:
    long = "naïve 🦪\u2028\n" * 50_000
    async with connect(address(mode), protocol) as client:
        results = await asyncio.gather(
            *(client.call_tool("echo", {"text": f"call {n}"}) for n in range(100)),
            client.call_tool("echo", {"text": long}),
        )
    assert [text_of(result) for result in results] == [*(f"call {n}" for n in range(100)), long]


@pytest.mark.parametrize("protocol", ["2025-11-25", "2026-07-28"])
async def test_progress_on_the_way(address: Address, protocol: str) -> None:
    seen: list[float] = []
    async with connect(address("stream"), protocol) as client:
        result = await client.call_tool(
            "count", {"to": 5}, on_progress=lambda told: seen.append(told.progress)
        )
    assert text_of(result) == "counted to 5"
    assert seen == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("protocol", "mode"),  # its plain JSON answers of the modern era do not watch for the client
    [("2025-11-25", "stream"), ("2025-11-25", "json"), ("2026-07-28", "stream")],
)
async def test_giving_up_reaches_the_server(address: Address, protocol: str, mode: str) -> None:
    async with connect(address(mode), protocol) as client:
        before = int(text_of(await client.call_tool("interrupted")))
        with pytest.raises(RequestTimeout):
            await client.call_tool("sleep", {"seconds": 60}, timeout=2.0)
        await until_interrupted(client, before + 1)


async def until_interrupted(client: Client, times: int) -> None:
    async with asyncio.timeout(30):
        while (now := int(text_of(await client.call_tool("interrupted")))) < times:
            await asyncio.sleep(0.02)
    assert now == times


@pytest.mark.parametrize(
    ("protocol", "mode"),
    [("2025-11-25", "stream"), ("2025-11-25", "events"), ("2026-07-28", "stream")],
)
async def test_questions_of_the_server(address: Address, protocol: str, mode: str) -> None:
    async def answer(params: ElicitRequestParams) -> ElicitResult:
        return ElicitResult(action="accept", content={"city": "Hanoi", "days": 4})

    async with connect(address(mode), protocol, elicitation=answer) as client:
        result = await client.call_tool("book")
    assert "booked 4 days in Hanoi" in text_of(result)


@pytest.mark.parametrize("protocol", ["2025-11-25", "2026-07-28"])
async def test_questions_of_every_kind(address: Address, protocol: str) -> None:
    asked: list[str] = []

    def think(request: CreateMessageRequestParams) -> CreateMessageResult:
        asked.append("sampling")
        if request.tools is None:
            return CreateMessageResult(
                role="assistant", content=TextContent(text="Yes."), model="parrot-1"
            )
        use = ToolUseContent(id="use-1", name="add", input={"a": 20, "b": 22})
        return CreateMessageResult(
            role="assistant", content=[use], model="parrot-1", stop_reason="toolUse"
        )

    def fill_in(form: ElicitRequestParams) -> dict[str, Any]:
        asked.append("elicitation")
        return {"city": "Hanoi"}

    async with connect(
        address("stream"),
        protocol,
        sampling=think,
        elicitation=fill_in,
        roots=["file:///srv/demo"],
    ) as client:
        assert text_of(await client.call_tool("consult")) == "parrot-1: Yes."
        assert text_of(await client.call_tool("delegate")) == "add {'a': 20, 'b': 22}"
        result = await client.call_tool("workplace")
        assert result.structured_content == {"result": ["file:///srv/demo"]}
        assert asked == ["sampling", "sampling"]
        assert text_of(await client.call_tool("survey")) == "1 roots, Hanoi, Yes."
        assert sorted(asked[2:]) == ["elicitation", "sampling"]


async def test_a_question_that_leads_to_a_page(address: Address) -> None:
    completed: asyncio.Queue[Any] = asyncio.Queue()
    async with connect(
        address("stream"),
        "2025-11-25",
        elicitation=lambda request: ElicitResult(action="accept"),
        on_notification=completed.put_nowait,
    ) as client:
        assert text_of(await client.call_tool("pay")) == "accept"
        notice = await asyncio.wait_for(completed.get(), 30)
    assert notice.method == "notifications/elicitation/complete"
    assert notice.params.elicitation_id == "pay-42"


@pytest.mark.parametrize("protocol", ["2025-11-25", "2026-07-28"])
async def test_logging(address: Address, protocol: str) -> None:
    heard: list[Any] = []
    async with connect(
        address("stream"), protocol, on_log=heard.append, log_level="error"
    ) as client:
        await client.call_tool("chatter")
        assert [(message.level, message.data) for message in heard] == [("error", "a problem")]
        await client.set_log_level("info")
        await client.call_tool("chatter")
        assert [message.data for message in heard[1:]] == [{"what": "news"}, "a problem"]


async def test_notices_on_the_standing_stream(address: Address) -> None:
    told = asyncio.Event()
    async with connect(
        address("stream"), "2025-11-25", on_notification=lambda notice: told.set()
    ) as client:

        async def is_told() -> bool:
            await client.call_tool("write", {"text": "second"})
            return told.is_set()

        await eventually(is_told)  # once the stream stands


async def test_notices_of_a_subscription(address: Address) -> None:
    async with (
        connect(address("stream"), "2026-07-28") as client,
        client.listen(resources=[NOTE]) as changes,
    ):
        await client.call_tool("write", {"text": "third"})
        notice = await asyncio.wait_for(anext(changes), 30)
        assert notice.params.uri == NOTE
        await client.call_tool("add", {"a": 1, "b": 1})


async def test_a_stream_the_server_hangs_up_on(address: Address) -> None:
    seen: list[float] = []
    async with connect(address("events"), "2025-11-25") as client:
        result = await client.call_tool(
            "hang_up", on_progress=lambda told: seen.append(told.progress)
        )
    assert text_of(result) == "you came back"
    assert seen == [1, 2]


async def test_parameters_in_headers(address: Address) -> None:
    """The first call lacks them and is refused; the client looks at the tool again and repeats."""
    async with Client(address("json"), protocol="2026-07-28") as client:
        result = await client.call_tool("where", {"region": "Zürich", "floor": 3})
        assert text_of(result) == "Zürich, floor 3"
        result = await client.call_tool("where", {"region": "Oslo", "floor": 1})
        assert text_of(result) == "Oslo, floor 1"


async def test_a_session_that_is_gone(address: Address) -> None:
    transport = HttpTransport(address("stream"), Limits())
    async with Client(transport, protocol="2025-11-25") as client:
        await client.ping()
        transport._endpoint.join_session("no-such-session")
        with pytest.raises(McpearlError, match="ended the session"):
            await client.call_tool("add", {"a": 1, "b": 2})
        with pytest.raises(ConnectionLost):
            await client.call_tool("add", {"a": 1, "b": 2})


async def test_http_and_sse(address: Address) -> None:
    async def answer(params: ElicitRequestParams) -> ElicitResult:
        return ElicitResult(action="accept", content={"city": "Hanoi"})

    async with connect(address("sse"), elicitation=answer) as client:
        assert client.era == "legacy"
        assert text_of(await client.call_tool("add", {"a": 2, "b": 3})) == "5"
        assert "Hanoi" in text_of(await client.call_tool("book"))
        results = await asyncio.gather(
            *(client.call_tool("echo", {"text": f"call {n}"}) for n in range(50))
        )
        assert [text_of(result) for result in results] == [f"call {n}" for n in range(50)]
        before = int(text_of(await client.call_tool("interrupted")))
        with pytest.raises(RequestTimeout):
            await client.call_tool("sleep", {"seconds": 60}, timeout=2.0)
        await until_interrupted(client, before + 1)
