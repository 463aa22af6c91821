"""Somebody is not honest: refused each time, said so in the log, and nothing secret with it."""

import asyncio
import socket
import threading
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from mcpearl import AuthorizationFailed, Client
from mcpearl.auth import ClientCredentials
from mcpearl.auth.client.challenge import Demand
from mcpearl.auth.client.discovery import find_place
from mcpearl.auth.client.web import Reach, Web
from mcpearl.testing.clock import MovableClock
from tests.auth.client.world import Authority, Guarded, authority, person, serving, visit
from tests.waiting import eventually


async def refusal(server: Guarded, **options: Any) -> str:
    with pytest.raises(AuthorizationFailed) as caught:
        await Client(server.url, auth=person(**options)).connect()
    return str(caught.value)


# The answer that comes back


async def test_a_forged_issuer(issuer: Authority, server: Guarded, caplog: Any):
    issuer.bring_back = lambda back: {**back, "iss": "https://honest.example"}
    assert "from another issuer" in await refusal(server)
    assert not issuer.forms  # the code went nowhere
    assert "redirect of another issuer" in caplog.text


@pytest.mark.parametrize("variant", ["{}/", "{}?", "HTTP{}"])
async def test_an_issuer_that_is_only_nearly_the_same(
    issuer: Authority, server: Guarded, variant: str
):
    given = variant.format(issuer.issuer if variant[0] == "{" else issuer.issuer[4:])
    issuer.bring_back = lambda back: {**back, "iss": given}
    assert "from another issuer" in await refusal(server)
    assert not issuer.forms


async def test_an_issuer_left_out_that_was_promised(issuer: Authority, server: Guarded):
    issuer.bring_back = lambda back: {"code": back["code"], "state": back["state"]}
    assert "does not name its issuer" in await refusal(server)
    assert not issuer.forms


async def test_an_error_of_another_issuer_is_not_shown(issuer: Authority, server: Guarded):
    issuer.bring_back = lambda back: {
        "error": "access_denied",
        "error_description": "ring the attacker",
        "state": back["state"],
        "iss": "https://honest.example",
    }
    said = await refusal(server)
    assert "attacker" not in said
    assert "access_denied" not in said


async def test_words_of_an_issuer_are_harmless(issuer: Authority, server: Guarded):
    issuer.bring_back = lambda back: {
        "error": "x",
        "error_description": "\x1b[2J<script>alert(1)</script>" + "a" * 5000,
        "state": back["state"],
        "iss": back["iss"],
    }
    pages: list[str] = []

    async def look(url: str) -> None:
        pages.append(await asyncio.to_thread(read, url))

    said = await refusal(server, open_browser=look)
    await eventually(lambda: pages)
    assert "\x1b" not in said
    assert len(said) < 500
    assert "<script>" not in pages[0]
    assert "&lt;script&gt;" in pages[0]


def read(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.read().decode()


async def test_a_code_put_in_at_the_loopback(issuer: Authority, server: Guarded, caplog: Any):
    pages: list[str] = []

    async def attacked(url: str) -> None:
        query = parse_qs(urlsplit(url).query)
        back, state = query["redirect_uri"][0], query["state"][0]
        stolen = {"code": "stolen-code", "iss": issuer.issuer}
        answers = [
            {**stolen},
            {**stolen, "state": ""},
            {**stolen, "state": "guess"},
            {**stolen, "state": state[:-1]},
            {"error": "access_denied", "state": "guess"},
        ]
        forged = [urlencode(answer) for answer in answers]
        forged.append(urlencode({**stolen, "state": state}) + "&code=other")
        pages.extend([await asyncio.to_thread(read, f"{back}?{query}") for query in forged])
        await visit(url)

    async with Client(server.url, auth=person(open_browser=attacked)) as client:
        await client.list_tools()
    assert all("Not your login" in page for page in pages)
    assert len(pages) == 6
    assert [form["code"] for form in issuer.forms] == list(issuer.codes)
    assert "does not belong to this login" in caplog.text
    assert "stolen-code" not in caplog.text


async def test_only_the_first_answer_counts(issuer: Authority, server: Guarded):
    late: list[str] = []

    async def twice(url: str) -> None:
        query = parse_qs(urlsplit(url).query)
        again = {"code": "late", "state": query["state"][0], "iss": issuer.issuer}
        first = asyncio.ensure_future(visit(url))
        await eventually(lambda: issuer.forms)
        try:
            late.append(
                await asyncio.to_thread(read, f"{query['redirect_uri'][0]}?{urlencode(again)}")
            )
        except OSError:
            late.append("Not your login")  # the loopback is gone already
        await first

    async with Client(server.url, auth=person(open_browser=twice)):
        pass
    await eventually(lambda: late)
    assert "Not your login" in late[0]
    assert len(issuer.forms) == 1


@pytest.mark.parametrize(
    "request_head",
    [
        "GET {path} HTTP/1.1\r\nHost: evil.example:{port}\r\n\r\n",  # a name pointed here
        "GET {path} HTTP/1.1\r\n\r\n",
        "POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Length: 0\r\n\r\n",
        "GET http://evil.example{path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n",
        "GET /other?{query} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n",
        "nonsense\r\n\r\n",
        "GET //[x HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n",
        "GET /{long} HTTP/1.1\r\n",
    ],
)
async def test_nothing_but_a_browser_gets_through_the_loopback(
    issuer: Authority, server: Guarded, request_head: str
):
    answers: list[bytes] = []

    async def attacked(url: str) -> None:
        query = parse_qs(urlsplit(url).query)
        back = urlsplit(query["redirect_uri"][0])
        asked = urlencode({"code": "stolen", "state": query["state"][0], "iss": issuer.issuer})
        head = request_head.format(
            path=f"{back.path}?{asked}", query=asked, port=back.port, long="a" * 20_000
        )
        reader, writer = await asyncio.open_connection("127.0.0.1", back.port)
        writer.write(head.encode())
        try:
            answers.append(await reader.read())
        except OSError:
            answers.append(b"")  # cut off
        writer.close()
        await visit(url)

    async with Client(server.url, auth=person(open_browser=attacked)) as client:
        await client.list_tools()
    assert not answers[0].startswith(b"HTTP/1.1 200")
    assert [form["code"] for form in issuer.forms] == list(issuer.codes)


async def test_the_loopback_is_not_filled_up(issuer: Authority, server: Guarded):
    async def flooded(url: str) -> None:
        port = urlsplit(parse_qs(urlsplit(url).query)["redirect_uri"][0]).port
        open_ones = [await asyncio.open_connection("127.0.0.1", port) for _ in range(50)]
        reading = [asyncio.ensure_future(reader.read()) for reader, _ in open_ones]
        await eventually(lambda: sum(each.done() for each in reading) >= 50 - 16)
        for each, (_, writer) in zip(reading, open_ones, strict=True):
            each.cancel()
            writer.close()
        said = await asyncio.gather(*reading, return_exceptions=True)
        assert all(words == b"" or isinstance(words, BaseException) for words in said)

        async def visited() -> bool:
            try:
                await visit(url)
            except OSError:  # it has not noticed yet that there is room again
                return False
            return True

        await eventually(visited)

    async with Client(server.url, auth=person(open_browser=flooded)) as client:
        await client.list_tools()


async def test_silent_connections_do_not_keep_the_browser_out(issuer: Authority, server: Guarded):
    async def crowded(url: str) -> None:
        port = urlsplit(parse_qs(urlsplit(url).query)["redirect_uri"][0]).port
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(16)]
        await visit(url)
        for _, writer in silent:
            writer.close()

    async with Client(server.url, auth=person(open_browser=crowded)) as client:
        await client.list_tools()
    assert len(issuer.asked) == 1


# Metadata


async def test_a_mixed_up_authorization_server(issuer: Authority, server: Guarded, caplog: Any):
    """The login page is the honest one, the token endpoint the attacker's."""
    async with authority() as attacker:
        attacker.metadata = {
            "issuer": issuer.issuer,
            "authorization_endpoint": f"{issuer.issuer}/authorize",
            "registration_endpoint": f"{issuer.issuer}/register",
        }
        server.authority = attacker
        assert "so it is not used" in await refusal(server)
        assert not issuer.asked
        # The same, but with an issuer that is the attacker's own: the answer gives it away.
        attacker.metadata["issuer"] = attacker.issuer
        assert "from another issuer" in await refusal(server)
        assert not attacker.forms
    assert "redirect of another issuer" in caplog.text


@pytest.mark.parametrize(
    "endpoint",
    [
        "javascript:alert(1)",
        "file:///etc/passwd",
        "http://login.example/authorize",
        "https://user:pass@login.example/authorize",
        "https://10.0.0.1/authorize",
        "https://[fd00::1]/authorize",
        "https://login.example/authorize#x",
        "--new-window",
        "https://login.example/\nauthorize",
    ],
)
async def test_a_login_page_that_must_not_be_opened(
    issuer: Authority, server: Guarded, endpoint: str, caplog: Any
):
    issuer.metadata = {"authorization_endpoint": endpoint}
    opened: list[str] = []
    assert "is not opened in the browser" in await refusal(server, open_browser=opened.append)
    assert not opened
    assert "is not opened" in caplog.text


@pytest.mark.parametrize("what", ["\x1b[2J", "\x07", "\u202e", " ", '"', "`", "<", "\\"])
async def test_a_login_page_of_the_server_itself_is_of_plain_characters(
    issuer: Authority, server: Guarded, what: str
):
    issuer.metadata = {"authorization_endpoint": f"{server.url}/authorize?{what}"}
    opened: list[str] = []
    assert "is not opened in the browser" in await refusal(server, open_browser=opened.append)
    assert not opened


async def test_a_login_page_is_one_word_to_a_shell(issuer: Authority, server: Guarded):
    issuer.metadata = {"authorization_endpoint": f"{issuer.issuer}/authorize?a=$(x)'y'&b=%24"}
    opened: list[str] = []
    with pytest.raises(AuthorizationFailed):
        async with Client(server.url, auth=person(open_browser=opened.append, timeout=0.5)):
            pass
    assert opened[0].startswith(f"{issuer.issuer}/authorize?a=%24%28x%29%27y%27&b=%24&")


async def test_no_pkce_no_login(issuer: Authority, server: Guarded):
    for methods in (None, [], ["plain"]):
        issuer.metadata = {"code_challenge_methods_supported": methods}
        assert "PKCE" in await refusal(server)
    assert not issuer.asked


@pytest.mark.parametrize(
    "resource",
    ["https://honest.example/mcp", "{}/mcp/deeper", "{}/mc", "{}:1/mcp", "not a url", "{}/mcp#x"],
)
async def test_metadata_for_another_resource(issuer: Authority, server: Guarded, resource: str):
    server.resource_metadata = {"resource": resource.format(server.origin)}
    assert "not for" in await refusal(server)
    assert not issuer.asked


class Trap:
    """Listens, and notes whether anybody came."""

    def __init__(self) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.came = threading.Event()
        threading.Thread(target=self._wait, daemon=True).start()

    def _wait(self) -> None:
        try:
            self.socket.accept()
        except OSError:
            return
        self.came.set()


@pytest.mark.parametrize(
    "address",
    [
        "https://169.254.169.254/latest/meta-data",
        "https://10.1.2.3/metadata",
        "https://192.168.1.1/metadata",
        "https://[fd00::1]/metadata",
        "https://[::ffff:10.0.0.1]/metadata",
        "http://10.1.2.3/metadata",
        "http://example.com/metadata",
        "file:///etc/passwd",
        "https://0.0.0.0/metadata",
    ],
)
async def test_metadata_at_a_private_address(server: Guarded, address: str, caplog: Any):
    server.metadata_url = address
    await refusal(server)
    assert "not fetched" in caplog.text


async def test_a_server_elsewhere_cannot_point_at_this_machine(caplog: Any):
    trap = Trap()
    web = Web("https://mcp.example/mcp", reach=Reach())
    for host in ("127.0.0.1", "localhost", "[::ffff:127.0.0.1]"):
        demand = Demand(resource_metadata=f"http://{host}:{trap.port}/metadata")
        with pytest.raises(AuthorizationFailed, match="on this machine"):
            await find_place(web, "https://mcp.example/mcp", demand)
    trap.socket.close()
    assert not trap.came.is_set()
    assert "not fetched" in caplog.text


async def test_endpoints_at_private_addresses(issuer: Authority, server: Guarded):
    issuer.metadata = {"registration_endpoint": "https://10.0.0.1/register"}
    assert "10.0.0.1" in await refusal(server)
    issuer.metadata = {"token_endpoint": "https://169.254.169.254/token"}
    assert "169.254.169.254" in await refusal(server)


async def test_redirects_to_elsewhere_are_not_followed(
    issuer: Authority, server: Guarded, caplog: Any
):
    reached: list[str] = []

    async def elsewhere(request: Request) -> Response:
        reached.append(request.url.path)
        return JSONResponse({"resource": server.url, "authorization_servers": [issuer.issuer]})

    async def open_redirect(request: Request) -> Response:
        return RedirectResponse(f"http://127.0.0.1:{target.rpartition(':')[2]}/metadata", 307)

    app = Starlette(routes=[Route("/metadata", elsewhere, methods=["GET", "POST"])])
    other = Starlette(routes=[Route("/{any:path}", open_redirect, methods=["GET", "POST"])])
    async with serving(lambda _: app) as target, serving(lambda _: other) as redirecting:
        server.metadata_url = f"{redirecting}/metadata"
        assert "redirects to another origin" in await refusal(server)
        server.metadata_url = None
        issuer.metadata = {"token_endpoint": f"{redirecting}/token"}
        assert "redirects a POST" in await refusal(server)
    assert not reached
    assert "not fetched" in caplog.text


async def test_metadata_without_end(issuer: Authority, server: Guarded):
    async def endless(request: Request) -> Response:
        async def spaces() -> Any:
            while True:
                yield b" " * 65536
                await asyncio.sleep(0)  # or the server does not notice that the client is gone

        return StreamingResponse(spaces(), media_type="application/json")

    app = Starlette(routes=[Route("/metadata", endless)])
    async with serving(lambda _: app) as origin:
        server.metadata_url = f"{origin}/metadata"
        assert "bytes allowed" in await refusal(server)


async def test_metadata_that_never_comes(issuer: Authority, server: Guarded, clock: MovableClock):
    async def silent(request: Request) -> Response:
        clock.move(16)
        await asyncio.sleep(3600)
        return Response()

    app = Starlette(routes=[Route("/metadata", silent)])
    async with serving(lambda _: app) as origin:
        server.metadata_url = f"{origin}/metadata"
        assert "did not answer within 15 s" in await refusal(server)


@pytest.mark.parametrize(
    "metadata",
    [
        {"token_endpoint": None},
        {"token_endpoint": 5},
        {"issuer": None},
        {"scopes_supported": "all"},
        {"authorization_endpoint": None},
    ],
)
async def test_metadata_that_makes_no_sense(
    issuer: Authority, server: Guarded, metadata: dict[str, Any]
):
    issuer.metadata = metadata
    await refusal(server)
    assert not issuer.asked


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"access_token": ""},
        {"access_token": "a\r\nX-Evil: 1"},
        {"access_token": "x" * 100_000},
        {"access_token": "x", "token_type": "mac"},
        {"access_token": 5},
    ],
)
async def test_a_token_that_is_none(issuer: Authority, server: Guarded, answer: dict[str, Any]):
    issuer.issue = lambda scope: answer
    await refusal(server)
    assert not any(shown for _, shown, _ in server.seen)


async def test_a_secret_is_not_sent_where_a_server_says(issuer: Authority, server: Guarded):
    """A server that was taken over names another authorization server."""
    async with authority() as attacker:
        server.authority = attacker
        auth = ClientCredentials("agent", client_secret="hush", issuer=issuer.issuer)
        with pytest.raises(AuthorizationFailed, match="credentials belong to"):
            await Client(server.url, auth=auth).connect()
        assert not attacker.forms


async def test_a_server_that_refuses_for_ever():
    """Each refusal wants something new; the request ends nevertheless."""
    scopes = iter(range(1000))

    async def insatiable(request: Request) -> Response:
        if not request.headers.get("authorization"):
            at = f'{server}/.well-known/oauth-protected-resource"'
            return Response(status_code=401, headers={"WWW-Authenticate": f'Bearer x="{at}'})
        wants = f'Bearer error="insufficient_scope", scope="s{next(scopes)}"'
        return Response(status_code=403, headers={"WWW-Authenticate": wants})

    async def describe(request: Request) -> Response:
        return JSONResponse({"resource": server, "authorization_servers": [issuer.issuer]})

    app = Starlette(
        routes=[
            Route("/mcp", insatiable, methods=["POST"]),
            Route("/.well-known/oauth-protected-resource/mcp", describe),
        ]
    )
    async with authority() as issuer, serving(lambda _: app) as server:
        with pytest.raises(AuthorizationFailed, match="refused one request 5 times"):
            await Client(f"{server}/mcp", auth=person()).connect()
        assert len(issuer.asked) <= 5
