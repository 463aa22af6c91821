"""One POST and its answer, on ASGI's own two functions."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from mcpearl.net.http_server.asgi_request import AsgiHeads, AsgiRequest
from mcpearl.protocol.events import Call, Caller
from mcpearl.protocol.versions import VERSIONS
from mcpearl.runtime.budget import Budget
from mcpearl.runtime.late import LateWatch
from mcpearl.stores.memory_events import MemoryEventStore
from mcpearl.transports.http_server.callers import Callers
from mcpearl.transports.http_server.event_stream import KeptStream
from mcpearl.transports.http_server.gate import Refused
from mcpearl.transports.http_server.post import PostOutlet, Terms
from mcpearl.transports.http_server.responses import Pace
from mcpearl.types.capabilities import ClientCapabilities
from tests.waiting import eventually, turns

CALL = Call(
    1, "tools/call", None, b"{}", Caller(VERSIONS["2025-11-25"], None, ClientCapabilities())
)


def terms() -> Terms:
    return Terms(
        max_body=100,
        body_timeout=0.05,
        max_outgoing=100_000,
        keep_alive=0.05,
        pace=Pace(0.05),
        lingering=LateWatch(1.0),
        callers=Callers(Budget(), None),
    )


class Wire:
    """A client as ASGI shows it."""

    def __init__(self, *events: dict[str, Any]) -> None:
        self.events = asyncio.Queue[dict[str, Any]]()
        for event in events:
            self.events.put_nowait(event)
        self.sent: list[dict[str, Any]] = []

    async def receive(self) -> dict[str, Any]:
        return await self.events.get()

    async def send(self, event: dict[str, Any]) -> None:
        self.sent.append(event)

    def request(self, **headers: str) -> AsgiRequest:
        given = [(name.replace("_", "-").encode(), text.encode()) for name, text in headers.items()]
        scope = {"method": "POST", "path": "/mcp", "headers": given}
        return AsgiRequest(scope, self.receive, self.send, AsgiHeads().head_of(scope))

    @property
    def body(self) -> bytes:
        return b"".join(event.get("body", b"") for event in self.sent)

    def leave(self) -> None:
        self.events.put_nowait({"type": "http.disconnect"})


class Answering:
    """A conversation whose one call does what a test says."""

    def __init__(self, work: Any) -> None:
        self.work = work
        self.given_up: list[Any] = []
        self.task: asyncio.Task[Any] | None = None

    def run_at_once(self, calls: list[Any]) -> bool:
        return False  # it may wait

    async def run(self, calls: list[Any]) -> None:
        self.task = asyncio.current_task()
        assert self.task is not None
        try:
            await self.work()
        except asyncio.CancelledError:
            self.task.uncancel()

    def give_up(self, calls: list[Any]) -> None:
        self.given_up += calls
        assert self.task is not None
        if self.task is not asyncio.current_task():
            self.task.cancel()


class OneSession:
    """A session, and the table it is in, as far as a POST needs them."""

    def new_stream(self, calls: Sequence[Call]) -> KeptStream:
        return KeptStream("1", 1000, "session", MemoryEventStore(), Budget().account())

    def leave(self, session: "OneSession") -> None:
        """Note nothing: there is no other request."""


SESSION: Any = OneSession()


def part(body: bytes, more: bool = False) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


def status(exchange: PostOutlet) -> int:
    return 200


async def serve(exchange: PostOutlet, conversation: Answering, calls: list[Any]) -> None:
    rest = exchange.serve(conversation, calls, status)
    if rest is not None:
        await rest


async def test_an_answer_that_comes_first_is_plain() -> None:
    wire = Wire()
    exchange = PostOutlet(terms(), wire.request(), None)

    async def work() -> None:
        exchange.finish(b"answer")
        exchange.send(b"too late")

    await serve(exchange, Answering(work), [CALL])
    exchange.close()
    assert [event["type"] for event in wire.sent] == ["http.response.start", "http.response.body"]
    assert wire.body == b"answer"
    assert exchange.stream is None


async def test_what_is_said_before_the_answer_makes_it_a_stream() -> None:
    wire = Wire()
    exchange = PostOutlet(terms(), wire.request(), None)
    exchange.belong(SESSION, SESSION, primes=True)

    async def work() -> None:
        exchange.send(b"news")
        await asyncio.sleep(0.01)
        exchange.finish(b"answer")

    await serve(exchange, Answering(work), [CALL])
    exchange.close()
    assert [line for line in wire.body.split(b"\r\n") if line] == [
        *(b"id: 1.1", b"data: ", b"id: 1.2", b"data: news", b"id: 1.3", b"data: answer")
    ]


async def test_a_call_of_a_session_that_ends_without_an_answer_is_an_empty_stream() -> None:
    wire = Wire()
    exchange = PostOutlet(terms(), wire.request(), None)
    exchange.belong(SESSION, SESSION, primes=False)

    async def work() -> None:
        pass

    await serve(exchange, Answering(work), [CALL])
    exchange.close()
    assert wire.body == b""
    assert wire.sent[0]["headers"][0] == (b"content-type", b"text/event-stream")


async def test_nothing_to_run_and_nothing_to_say_is_accepted() -> None:
    wire = Wire()
    exchange = PostOutlet(terms(), wire.request(), None)
    await serve(exchange, Answering(None), [])
    exchange.close()
    assert wire.sent[0]["status"] == 202


@pytest.mark.parametrize("streams", [False, True])
async def test_a_late_call_whose_client_leaves_is_given_up(streams: bool) -> None:
    wire = Wire()
    exchange = PostOutlet(terms(), wire.request(), None)

    async def work() -> None:
        if streams:
            exchange.send(b"news")
        else:
            exchange.late()
        asyncio.get_running_loop().call_later(0.01, wire.leave)
        await asyncio.sleep(30)

    conversation = Answering(work)
    async with asyncio.timeout(30):
        await serve(exchange, conversation, [CALL])
    exchange.close()
    assert conversation.given_up[0] is CALL


async def test_a_late_call_of_a_session_goes_on_without_its_client() -> None:
    wire = Wire()
    exchange = PostOutlet(terms(), wire.request(), None)
    exchange.belong(SESSION, SESSION, primes=False)

    async def work() -> None:
        exchange.send(b"news")
        wire.leave()
        await turns()
        exchange.finish(b"answer")

    conversation = Answering(work)
    await serve(exchange, conversation, [CALL])
    exchange.close()
    assert not conversation.given_up
    assert b"answer" not in wire.body
    assert isinstance(exchange.stream, KeptStream)
    assert b"answer" in (await exchange.stream.resume(1)).take()


async def test_a_silent_call_shows_signs_of_life() -> None:
    wire = Wire()
    exchange = PostOutlet(terms(), wire.request(), None)

    async def work() -> None:
        exchange.late()
        await eventually(lambda: b":\r\n\r\n" in wire.body)
        exchange.finish(b"answer")

    async with asyncio.timeout(30):
        await serve(exchange, Answering(work), [CALL])
    exchange.close()
    assert wire.body.endswith(b"data: answer\r\n\r\n")


async def test_a_body_comes_in_parts() -> None:
    wire = Wire(part(b"one ", more=True), part(b"two ", more=True), part(b"three"))
    exchange = PostOutlet(terms(), wire.request(), None)
    assert await exchange.read_body() == b"one two three"


@pytest.mark.parametrize("parts", [(100,), (101,), (60, 40), (60, 41)])
async def test_a_body_is_bounded(parts: tuple[int, ...]) -> None:
    events = [part(b"x" * size, more=place < len(parts) - 1) for place, size in enumerate(parts)]
    wire = Wire(*events)
    exchange = PostOutlet(terms(), wire.request(), None)
    if sum(parts) <= 100:
        assert len(await exchange.read_body()) == 100
        return
    with pytest.raises(Refused, match="over the limit of 100 bytes") as refused:
        await exchange.read_body()
    assert refused.value.status == 413


async def test_a_body_that_does_not_come_in_time() -> None:
    wire = Wire(part(b"x", more=True))
    exchange = PostOutlet(terms(), wire.request(), None)
    exchange.late()
    with pytest.raises(Refused, match="did not arrive in time") as refused:
        await exchange.read_body()
    assert refused.value.status == 408
    task = asyncio.current_task()
    assert task is not None and not task.cancelling()


async def test_a_client_that_leaves_within_its_body() -> None:
    wire = Wire(part(b"x", more=True))
    wire.leave()
    exchange = PostOutlet(terms(), wire.request(), None)
    with pytest.raises(Refused, match="left before its body was complete"):
        await exchange.read_body()
