"""A request of an ASGI server, as the endpoint sees it."""

import asyncio
from typing import Any

import pytest

from mcpearl.net.http_server.asgi_request import AsgiHeads, AsgiRequest, peer_of
from mcpearl.net.http_server.request import BodyTooLarge, ClientLeft, PeerInfo
from mcpearl.runtime.budget import Budget, Holding
from mcpearl.runtime.late import LateWatch
from mcpearl.testing.clock import MovableClock


def scope(*headers: tuple[bytes, bytes], **more: Any) -> dict[str, Any]:
    return {"method": "POST", "path": "/mcp", "headers": [*headers], **more}


class Wire:
    """What an ASGI server passes in: events to receive, and a list of those sent."""

    def __init__(self, *events: dict[str, Any]) -> None:
        self.events = [*events]
        self.sent: list[dict[str, Any]] = []

    async def receive(self) -> dict[str, Any]:
        return self.events.pop(0)

    async def send(self, event: dict[str, Any]) -> None:
        self.sent.append(event)

    def request(self, asked: dict[str, Any] | None = None) -> AsgiRequest:
        asked = asked or scope()
        return AsgiRequest(asked, self.receive, self.send, AsgiHeads().head_of(asked))


def part(body: bytes, more: bool = False) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


def holding() -> Holding:
    return Budget().account().open("bodies")


LEFT = {"type": "http.disconnect"}


async def test_a_body_in_parts() -> None:
    assert await Wire(part(b"whole")).request().read(5, holding()) == b"whole"
    assert (
        await Wire(part(b"a", True), part(b"b", True), part(b"c")).request().read(3, holding())
        == b"abc"
    )


async def test_a_body_that_is_too_large_or_never_complete() -> None:
    with pytest.raises(BodyTooLarge):
        await Wire(part(b"abc")).request().read(2, holding())
    endless = Wire(*(part(b"x" * 10, True) for _ in range(10)))
    with pytest.raises(BodyTooLarge):
        await endless.request().read(25, holding())
    assert len(endless.events) == 7  # no more was received than it took to know
    with pytest.raises(ClientLeft):
        await Wire(part(b"a", True), LEFT).request().read(10, holding())


async def test_a_client_that_leaves() -> None:
    wire = Wire(part(b""), LEFT)
    await wire.request().until_gone()
    assert wire.events == []


async def test_responses() -> None:
    wire = Wire()
    request = wire.request()
    request.extra = ((b"vary", b"origin"),)
    await request.respond(200, b"{}")
    start, body = wire.sent
    assert (start["status"], dict(start["headers"])) == (
        200,
        {b"content-length": b"2", b"content-type": b"application/json", b"vary": b"origin"},
    )
    assert (body["body"], body["more_body"]) == (b"{}", False)
    wire.sent.clear()
    await request.start(200, ())
    await request.write(b"one")
    await request.end(b"two")
    assert [event.get("body") for event in wire.sent] == [None, b"one", b"two"]
    assert [event.get("more_body") for event in wire.sent] == [None, True, False]


def test_heads_that_come_again_are_the_same_object() -> None:
    heads = AsgiHeads()
    head = heads.head_of(scope((b"accept", b"a"), (b"accept", b" b ")))
    assert head.headers == {b"accept": b"a, b"}
    assert heads.head_of(scope((b"accept", b"a"), (b"accept", b" b "))) is head
    assert heads.head_of(scope((b"accept", b"a, b"))) is not head
    assert heads.head_of(scope((b"accept", b"a"), query_string=b"x")) is not head
    proof = scope((b"dpop", b"proof"))
    assert heads.head_of(proof) is not heads.head_of(proof)
    for number in range(5000):
        heads.head_of(scope((b"x", b"%d" % number)))
    assert len(heads._known) <= 1024


@pytest.mark.parametrize(
    "large",
    [
        {"path": "/" + "x" * 3000},
        {"query_string": b"x" * 3000},
        {"headers": [(b"x" * 3000, b"")]},
        {"headers": [(b"x", b"x" * 3000)]},
    ],
)
def test_large_heads_are_not_remembered(large: dict[str, Any]) -> None:
    heads, asked = AsgiHeads(), {**scope(), **large}
    assert heads.head_of(asked) is not heads.head_of(asked)


def test_where_an_application_is_mounted() -> None:
    for path in ("/root/mcp", "/mcp"):  # with the root, as the specification says, and without
        request = Wire().request(scope(path=path, root_path="/root"))
        assert (request.path, request.root) == ("/mcp", "/root")


def test_how_a_client_came() -> None:
    assert peer_of(scope()) == PeerInfo()
    tls: dict[str, Any] = {"client_cert_chain": ["PEM", "CA"], "client_cert_error": None}
    asked = scope(scheme="https", client=["10.0.0.1", 5], extensions={"tls": tls})
    assert peer_of(asked) == PeerInfo("https", ("10.0.0.1", 5), "PEM")
    tls["client_cert_error"] = "expired"
    assert peer_of(asked).certificate is None


async def test_a_client_that_does_not_read_a_part_in_time_has_left(clock: MovableClock) -> None:
    async def never_taken(event: dict[str, Any]) -> None:
        if event["type"] == "http.response.body":
            await asyncio.Event().wait()

    asked = {"type": "http", "method": "GET", "path": "/", "headers": []}
    head = AsgiHeads().head_of(asked)
    request = AsgiRequest(asked, Wire().receive, never_taken, head, LateWatch(30.0))
    await request.start(200, ())
    writing = asyncio.create_task(request.write(b"part"))
    await asyncio.sleep(0)
    await clock.advance(29)
    assert not writing.done()
    await clock.advance(40)
    assert isinstance(writing.exception(), ClientLeft)
