"""What authorizes requests: asked for each of them, and again when the server refuses."""

import asyncio
from collections.abc import Mapping

import pytest

from mcpearl import Client
from mcpearl.net.http_client.exchange import Header
from mcpearl.protocol.errors import AuthorizationFailed
from mcpearl.protocol.limits import Limits
from mcpearl.transports.http_client.authorizer import Refusal
from mcpearl.transports.http_client.transport import HttpTransport
from tests.transports.http_client.test_transport import call, modern_request, old, wired
from tests.transports.http_peer import HttpPeer, Request, http_peer
from tests.waiting import eventually, turns


class Keeper:
    """Has a new ticket after each refusal, once `ready`."""

    def __init__(self) -> None:
        self.tickets = 0
        self.refusals: list[Refusal] = []
        self.asked: list[tuple[str, str]] = []
        self.statuses: list[int] = []
        self.ready = asyncio.Event()
        self.ready.set()
        self.again = True

    def headers(self, method: str, url: str) -> list[Header]:
        self.asked.append((method, url))
        return [("Authorization", f"Ticket {self.tickets}")] if self.tickets else []

    async def refused(self, refusal: Refusal) -> bool:
        self.refusals.append(refusal)
        await self.ready.wait()
        self.tickets += 1
        return self.again

    def answered(self, status: int, headers: Mapping[str, str]) -> None:
        self.statuses.append(status)


def strict(peer: HttpPeer, ticket: int) -> None:
    """Let the peer refuse whatever does not show this ticket."""
    answers = dict(peer.answers)

    def wrap(name: str) -> None:
        async def answer(request: Request) -> None:
            if request.headers.get("authorization") == f"Ticket {ticket}":
                await answers[name](request)
            else:
                challenge = {"WWW_Authenticate": 'Ticket realm="a"'}
                await request.respond(401, "no", kind="text/plain", **challenge)

        peer.answers[name] = answer

    for name in answers:
        wrap(name)


async def test_a_refused_request_is_sent_again() -> None:
    async with http_peer() as peer:
        peer.on("tools/call")(call)
        strict(peer, 2)
        keeper = Keeper()
        async with wired(peer, authorizer=keeper) as (wire, heard):
            wire.send(modern_request(1, "tools/call", name="x"))
            assert "result" in await heard.answer(1)
        shown = [each.headers.get("authorization") for each in peer.requests]
        assert shown == [None, "Ticket 1", "Ticket 2"]
        assert keeper.asked == [("POST", peer.url)] * 3
        assert keeper.statuses == [401, 401, 200]
        assert [r.attempt for r in keeper.refusals] == [1, 2]
        assert keeper.refusals[1].sent == [("Authorization", "Ticket 1")]
        assert keeper.refusals[0].headers["www-authenticate"] == 'Ticket realm="a"'


async def test_a_refusal_that_nothing_helps_against_is_the_answer() -> None:
    async with http_peer() as peer:
        peer.on("tools/call")(call)
        strict(peer, 9)
        keeper = Keeper()
        keeper.again = False
        async with wired(peer, authorizer=keeper) as (wire, heard):
            wire.send(modern_request(1, "tools/call", name="x"))
            error = await heard.failure(1)
        assert isinstance(error, AuthorizationFailed)
        assert str(error) == "the server answered 401: no; what `auth=` supplied is not accepted"


async def test_a_failure_fails_its_request_alone() -> None:
    class Empty(Keeper):
        async def refused(self, refusal: Refusal) -> bool:
            raise AuthorizationFailed("nothing to show")

    async with http_peer() as peer:
        peer.on("tools/call")(call)
        strict(peer, 9)
        async with wired(peer, authorizer=Empty()) as (wire, heard):
            wire.send(modern_request(1, "tools/call", name="x"))
            assert str(await heard.failure(1)) == "nothing to show"


async def test_notifications_wait_for_authorization_too() -> None:
    async with http_peer() as peer:
        strict(peer, 1)
        keeper = Keeper()
        async with wired(peer, authorizer=keeper) as (wire, _):
            wire.send(b'{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}')
            await peer.until_asked("POST", 2)
        assert len(peer.asked("POST")) == 2


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_call_that_is_given_up_while_it_waits_is_never_sent(era: str) -> None:
    async with http_peer() as peer:
        peer.on("tools/call")(call)
        strict(peer, 1)
        keeper = Keeper()
        keeper.ready.clear()
        message = modern_request(1, "tools/call", name="x")
        if era == "legacy":
            message = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}'
        async with wired(peer, authorizer=keeper) as (wire, _):
            wire.send(message)
            await peer.until_asked("tools/call")
            await eventually(lambda: keeper.refusals)
            wire.send(
                b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}'
            )
            await turns()
            keeper.ready.set()
            await turns()
        assert len(peer.requests) == 1


async def test_every_request_to_a_server_of_http_and_sse() -> None:
    async with http_peer() as peer:
        old(peer)
        strict(peer, 1)
        transport = HttpTransport(peer.url, Limits(), authorizer=Keeper())
        async with Client(transport, validate_output=False) as client:
            await client.call_tool("x", {"a": 1})
        shown = {(each.method, each.headers.get("authorization")) for each in peer.requests}
        assert shown == {("POST", None), ("POST", "Ticket 1"), ("GET", "Ticket 1")}


async def test_challenges_in_several_headers_are_all_seen() -> None:
    async with http_peer() as peer:

        @peer.on("tools/call")
        async def refuse(request: Request) -> None:
            await request.raw(
                b"HTTP/1.1 401 X\r\nContent-Length: 0\r\nWWW-Authenticate: Basic\r\n"
                b'WWW-Authenticate: Bearer scope="a"\r\nX-A: 1\r\nX-A: 2\r\n\r\n'
            )

        keeper = Keeper()
        keeper.again = False
        async with wired(peer, authorizer=keeper) as (wire, heard):
            wire.send(modern_request(1, "tools/call", name="x"))
            assert isinstance(await heard.failure(1), AuthorizationFailed)
        headers = keeper.refusals[0].headers
        assert headers["www-authenticate"] == 'Basic, Bearer scope="a"'
        assert headers["x-a"] == "1"


def test_not_twice() -> None:
    given = {"authorization": "Basic x"}
    with pytest.raises(ValueError, match="not both"):
        HttpTransport("http://127.0.0.1:1/", Limits(), headers=given, authorizer=Keeper())
