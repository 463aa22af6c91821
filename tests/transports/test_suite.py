"""One set of tests for every wire, in both eras. Whatever is a transport passes all of it."""

import asyncio
import inspect
import json
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from mcpearl import ConnectionLost, Limits, McpError, Transport
from mcpearl.protocol.codec import Envelope
from mcpearl.protocol.framing import Frame
from mcpearl.transports.transport import ClientReceiver
from mcpearl.types.elicitation import ElicitResult
from tests.server.wire import EVERYTHING, HANGS, LEGACY, MODERN, meta
from tests.transports import custom_transport
from tests.transports.raw_http import Raw, modern
from tests.transports.suite_server import BOOK, make_app
from tests.transports.wires import STREAMS, WIRES, Place, place
from tests.waiting import at_rest, eventually

on_every_wire = pytest.mark.parametrize("wire", WIRES)
on_every_stream = pytest.mark.parametrize("wire", STREAMS)
in_both_eras = pytest.mark.parametrize("version", [LEGACY, MODERN])


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short name, since the path of a Unix socket has to be short."""
    with tempfile.TemporaryDirectory(prefix="m") as name:
        yield Path(name)


@pytest.fixture
async def at(wire: str, folder: Path) -> AsyncIterator[Place]:
    async with place(wire, folder) as found:
        yield found


class Ear(ClientReceiver):
    """A receiver that keeps what it is told."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.is_lost = False
        self.reason: Exception | None = None

    def received(self, frames: Sequence[Frame | Envelope]) -> None:
        for frame in frames:
            assert isinstance(frame, bytes)
            self.messages.append(json.loads(frame))

    def ended(self) -> None:
        self.lost(None)

    def lost(self, reason: Exception | None) -> None:
        self.is_lost = True
        self.reason = reason

    def writable(self, flowing: bool) -> None: ...

    def failed(self, request_id: Any, error: Exception) -> None: ...

    def unsent(self, messages: list[bytes]) -> None: ...

    def held(self, request_id: Any, holding: bool) -> None: ...

    async def answer_to(self, id: Any) -> dict[str, Any]:
        def found() -> dict[str, Any] | None:
            answers = (m for m in self.messages if m.get("id") == id and "method" not in m)
            return next(answers, None)

        return await eventually(found)


def request(version: str, method: str, params: dict[str, Any], id: Any) -> bytes:
    if version == MODERN:
        params = {**params, "_meta": meta()}
    return json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).encode()


def call(version: str, tool: str, id: Any, **arguments: Any) -> bytes:
    return request(version, "tools/call", {"name": tool, "arguments": arguments}, id)


async def begin(transport: Transport, version: str) -> Ear:
    """Open a bare transport, and a session where there are sessions."""
    ear = Ear()
    await transport.open(ear)
    if version == LEGACY:
        info = {"name": "ear", "version": "1"}
        params = {"protocolVersion": LEGACY, "capabilities": EVERYTHING, "clientInfo": info}
        transport.send(request(version, "initialize", params, "hello"))
        await ear.answer_to("hello")
        transport.send(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
    return ear


def structured(result: Any) -> Any:
    return result.structured_content["result"]


# Calling


@on_every_wire
@in_both_eras
async def test_calls_and_their_errors(at: Place, version: str):
    async with await at.client(protocol=version) as client:
        assert client.protocol_version == version
        assert client.server_info.name == "suite"
        assert structured(await client.call_tool("add", {"a": 20, "b": 22})) == 42
        failed = await client.call_tool("fail", {"reason": "the moon is full"})
        assert failed.is_error
        assert "the moon is full" in failed.content[0].text
        with pytest.raises(McpError) as caught:
            await client.call_tool("no such tool")
        assert caught.value.code == -32602
        assert "add" in [tool.name async for tool in client.tools()]
        assert (await client.read_resource(BOOK)).contents[0].text == "once upon a time"


@on_every_wire
@in_both_eras
async def test_pings(at: Place, version: str):
    async with await at.client(protocol=version) as client:
        for _ in range(3):
            await client.ping(timeout=HANGS)


@on_every_wire
@in_both_eras
async def test_many_calls_at_once_each_get_their_own_answer(at: Place, version: str):
    async with await at.client(protocol=version) as client:
        numbers = range(300)
        work = (client.call_tool("add", {"a": number, "b": 1}) for number in numbers)
        assert [structured(result) for result in await asyncio.gather(*work)] == [
            number + 1 for number in numbers
        ]


@on_every_wire
@in_both_eras
async def test_large_messages_both_ways(at: Place, version: str):
    text = "grüße " * 700_000  # 5 MB, and no byte of it may get lost
    async with await at.client(protocol=version) as client:
        assert structured(await client.call_tool("echo", {"text": text})) == text


@on_every_wire
@in_both_eras
async def test_strange_text_arrives_as_it_was(at: Place, version: str):
    text = 'line\nline\r\n\t\u2028\u2029 "quoted" \\ \u0000 \U0001f600 Content-Length: 5\r\n\r\n'
    async with await at.client(protocol=version) as client:
        assert structured(await client.call_tool("echo", {"text": text})) == text


# Being told


@on_every_wire
@in_both_eras
async def test_progress_comes_in_order_and_before_the_answer(at: Place, version: str):
    heard: list[float] = []
    async with await at.client(protocol=version) as client:
        await client.call_tool(
            "count", {"steps": 200}, on_progress=lambda told: heard.append(told.progress)
        )
        assert heard == list(range(1, 201))


@on_every_wire
@in_both_eras
async def test_log_messages(at: Place, version: str, folder: Path):
    lines: list[str] = []
    async with await at.client(
        protocol=version, log_level="info", on_log=lambda told: lines.append(told.data)
    ) as client:
        log = str(folder / "log")
        await client.call_tool("talk", {"lines": 50, "size": 1, "log": log})
        await eventually(lambda: len(lines) == 50)
        assert [line.partition(":")[0] for line in lines] == [str(n) for n in range(50)]


@on_every_wire
@in_both_eras
async def test_subscriptions(at: Place, version: str):
    told: list[str] = []
    async with await at.client(
        protocol=version, on_notification=lambda notice: told.append(notice.method)
    ) as client:
        await client.subscribe(BOOK)
        await client.call_tool("write")
        await eventually(lambda: "notifications/resources/updated" in told)
        await client.unsubscribe(BOOK)
        told.clear()
        await client.call_tool("write")
        await client.ping()
        assert "notifications/resources/updated" not in told


@on_every_wire
@in_both_eras
async def test_changed_lists(at: Place, version: str):
    told: list[str] = []
    async with await at.client(
        protocol=version, on_notification=lambda notice: told.append(notice.method)
    ) as client:
        if version == MODERN:
            async with client.listen(tools=True) as changes:
                await client.call_tool("grow")
                async with asyncio.timeout(HANGS):
                    change = await anext(aiter(changes))
                assert change.method == "notifications/tools/list_changed"
        else:
            await client.call_tool("grow")
            await eventually(lambda: "notifications/tools/list_changed" in told)
        assert "another" in [tool.name async for tool in client.tools()]


@on_every_wire
@in_both_eras
async def test_the_server_asks_the_client(at: Place, version: str):
    asked: list[str] = []

    async def answer(params: Any) -> ElicitResult:
        asked.append(params.message)
        return ElicitResult(action="accept", content={"text": "blue"})

    async with await at.client(protocol=version, elicitation=answer) as client:
        assert structured(await client.call_tool("ask", {"question": "Colour?"})) == "blue"
        assert asked == ["Colour?"]


# Giving up and ending


@on_every_wire
@in_both_eras
async def test_a_cancelled_call_ends_on_the_server(at: Place, version: str):
    async with await at.client(protocol=version) as client:
        pending = asyncio.create_task(client.call_tool("work", {"number": 7, "seconds": 60}))

        async def seen() -> dict[str, Any]:
            return (await client.call_tool("report")).structured_content

        async with asyncio.timeout(HANGS):
            while (await seen())["running"] == 0:
                await asyncio.sleep(0.01)
            pending.cancel()
            while (await seen())["cancelled"] == 0:
                await asyncio.sleep(0.01)
        with pytest.raises(asyncio.CancelledError):
            await pending


@on_every_wire
@in_both_eras
async def test_a_client_that_leaves_takes_everything_with_it(at: Place, version: str):
    client = await at.client(protocol=version)
    await client.connect()
    await client.subscribe(BOOK)
    pending = asyncio.create_task(client.call_tool("work", {"number": 7, "seconds": 60}))

    async def is_running() -> bool:
        return (await client.call_tool("report")).structured_content["running"] > 0

    await eventually(is_running)
    await client.close()
    await client.close()  # closing twice is closing
    with pytest.raises((McpError, ConnectionLost)):  # a process has time to say that it ends
        await pending
    if at.app is not None and at.wire != "http":
        app = at.app
        await eventually(lambda: not app.core.roster)
        assert set(app.core.subscriptions.counts().values()) == {0}


@on_every_wire
@in_both_eras
async def test_a_server_that_ends_finishes_what_it_can(at: Place, version: str):
    async with await at.client(protocol=version, validate_output=False, reconnect=False) as client:
        short = asyncio.create_task(client.call_tool("work", {"number": 1, "seconds": 0.5}))
        long = asyncio.create_task(client.call_tool("work", {"number": 2, "seconds": 60}))
        async with asyncio.timeout(HANGS):
            while len((await client.call_tool("report")).structured_content["begun"]) < 2:
                await asyncio.sleep(0.01)
            await at.stop()
            assert structured(await short) == 1
            try:
                assert (await long).is_error
            except (McpError, ConnectionLost) as error:
                assert str(error)
            # And from then on every call fails at once, and says why.
            with pytest.raises(ConnectionLost) as caught:
                await client.call_tool("add", {"a": 1, "b": 1})
            assert str(caught.value)


# Flow


@on_every_stream
@in_both_eras
async def test_a_client_that_does_not_read_makes_the_server_wait(
    at: Place, version: str, folder: Path
):
    log = folder / "log"
    lines, size = 160, 100_000
    transport = await at.transport()
    ear = await begin(transport, version)
    try:
        transport.pause()
        arguments = {"lines": lines, "size": size, "log": str(log)}
        params = {"name": "talk", "arguments": arguments}
        if version == MODERN:
            level = {"io.modelcontextprotocol/logLevel": "info"}
            params["_meta"] = meta(None, **level)
        message = {"jsonrpc": "2.0", "id": "talk", "method": "tools/call", "params": params}
        transport.send(json.dumps(message).encode())
        transport.flush()
        await eventually(log.exists)
        before = await at_rest(lambda: log.stat().st_size, 0.3)
        # 16 MB were to be said, more than sockets hold: the server has stopped on the way.
        assert before < lines
        transport.resume()
        answer = await ear.answer_to("talk")
        assert answer["result"]["structuredContent"] == {"result": lines}
        said = [
            m["params"]["data"] for m in ear.messages if m.get("method", "").endswith("message")
        ]
        assert [line.partition(":")[0] for line in said] == [str(n) for n in range(lines)]
        assert all(len(line.partition(":")[2]) == size for line in said)
    finally:
        await transport.close()


@on_every_stream
@in_both_eras
async def test_a_client_that_floods_is_read_no_faster_than_it_is_served(at: Place, version: str):
    transport = await at.transport()
    ear = await begin(transport, version)
    try:
        for number in range(500):
            transport.send(call(version, "work", number, number=number, seconds=0.01))
        transport.send(call(version, "report", "report"))
        for number in range(500):
            await ear.answer_to(number)
        seen = (await ear.answer_to("report"))["result"]["structuredContent"]
        assert 1 < seen["most"] <= 64  # `Limits.max_in_flight` of the suite's server
        assert seen["begun"] == list(range(500))  # in the order they were sent
    finally:
        await transport.close()


# Bad input

NONSENSE = [
    (b"certainly no JSON", -32700),
    (b'{"jsonrpc":"2.0","id":1,"method":', -32700),
    (b"42", -32600),
    (b'"text"', -32600),
    (b"null", -32600),
    (b"{}", -32600),
    (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', -32600),
    (b'{"jsonrpc":"2.0","id":{},"method":"ping"}', -32600),
    (b"\xff\xfe\xfd", -32700),
]


@on_every_stream
@in_both_eras
async def test_nonsense_is_answered_and_costs_only_itself(at: Place, version: str):
    transport = await at.transport()
    ear = await begin(transport, version)
    try:
        for number, (nonsense, code) in enumerate(NONSENSE):
            ear.messages.clear()
            transport.send(nonsense)
            transport.send(call(version, "add", f"after {number}", a=1, b=number))
            answer = await ear.answer_to(f"after {number}")
            assert answer["result"]["structuredContent"] == {"result": number + 1}
            (error,) = [m["error"] for m in ear.messages if "error" in m]
            assert error["code"] == code, nonsense
            assert error["message"]
    finally:
        await transport.close()


async def test_nonsense_over_http(folder: Path):
    async with place("http", folder) as at:
        url = await at._reach()
        raw = Raw(int(url.split(":")[2].split("/")[0]))
        headers, _ = modern("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}})
        for nonsense, code in NONSENSE:
            answer = await raw.post(nonsense, headers)
            assert answer.status == 400, nonsense
            # Without a message there is nothing the headers could agree with.
            assert answer.code in (code, -32020), nonsense
        assert (await raw.call("add", {"a": 1, "b": 2})).status == 200


@pytest.mark.parametrize("wire", ["stdio", "tcp", "tls", "unix"])
@in_both_eras
async def test_a_message_over_the_limit_is_refused_and_costs_only_itself(at: Place, version: str):
    transport = await at.transport()
    ear = await begin(transport, version)
    try:
        transport.send(call(version, "echo", "big", text="x" * 9_000_000))
        transport.send(call(version, "add", "after", a=1, b=1))
        assert (await ear.answer_to("after"))["result"]["structuredContent"] == {"result": 2}
        (error,) = [m["error"] for m in ear.messages if "error" in m]
        assert "8000000 bytes" in error["message"]
    finally:
        await transport.close()


@pytest.mark.parametrize("wire", ["ws", "wss", "mounted"])
async def test_a_message_over_the_limit_closes_a_websocket(at: Place):
    transport = await at.transport()
    ear = await begin(transport, MODERN)
    transport.send(call(MODERN, "echo", "big", text="x" * 9_000_000))
    transport.flush()
    await eventually(lambda: ear.is_lost)
    assert "1009" in str(ear.reason)
    await transport.close()


# The interface


@pytest.mark.parametrize("wire", [wire for wire in STREAMS if wire != "stdio"])
@in_both_eras
async def test_nothing_is_left_of_clients_that_were_there(at: Place, version: str):
    async def visit() -> None:
        async with await at.client(protocol=version) as client:
            await client.subscribe(BOOK)
            await client.call_tool("add", {"a": 1, "b": 1})

    def held() -> tuple[int, int]:
        return psutil.Process().num_fds(), len(asyncio.all_tasks())

    assert at.app is not None
    app = at.app
    await visit()  # what is made once, such as the loop's own descriptors
    await eventually(lambda: not app.core.roster)
    before = await at_rest(held, 0.1)
    for _ in range(10):
        await visit()
    await asyncio.gather(*(visit() for _ in range(20)))
    await eventually(lambda: not app.core.roster)
    await eventually(lambda: all(now <= then for now, then in zip(held(), before, strict=True)))


@on_every_wire
async def test_what_is_sent_after_the_end_is_dropped_in_silence(at: Place):
    transport = await at.transport()
    await begin(transport, MODERN)
    await transport.close()
    transport.send(b"anything")
    transport.flush()
    transport.pause()
    transport.resume()
    await transport.close()


def test_a_transport_of_ones_own_is_short():
    source = inspect.getsource(custom_transport.QueueTransport)
    assert len(source.splitlines()) < 40


async def test_the_bound_on_calls_in_hand_is_the_servers(folder: Path):
    app = make_app(limits=Limits(max_in_flight=2))
    async with place("tcp", folder, app) as at, await at.client() as client:
        work = (client.call_tool("work", {"number": n, "seconds": 0.05}) for n in range(20))
        await asyncio.gather(*work)
        assert (await client.call_tool("report")).structured_content["most"] == 2
