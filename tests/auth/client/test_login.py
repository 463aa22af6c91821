"""Logging in and staying logged in: the flow, one login for all, renewal, more scopes."""

import asyncio
import os
import subprocess
import sys
import urllib.request
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from mcpearl import AuthorizationFailed, Client, ConnectionLost, Reconnect
from mcpearl.auth import FileStorage, MemoryStorage, OAuth
from mcpearl.net.tls import Tls
from mcpearl.testing.clock import MovableClock
from tests.auth.client.world import (
    Authority,
    Guarded,
    authority,
    basic,
    guarded,
    person,
    port_of,
    visit,
)
from tests.auth.server.certificates import Authority as Certificates
from tests.waiting import eventually

ERAS = ["2025-11-25", "2026-07-28"]


async def total(client: Client) -> int:
    result = await client.call_tool("add", {"a": 2, "b": 3})
    return int(result.content[0].text)


@pytest.mark.parametrize("protocol", ["auto", "2025-03-26", "2025-06-18", *ERAS])
async def test_a_person_logs_in(issuer: Authority, server: Guarded, protocol: str):
    async with Client(server.url, auth=person(), protocol=protocol) as client:
        assert await total(client) == 5
    (asked,) = issuer.asked
    (form,) = issuer.forms
    assert asked["resource"] == form["resource"] == server.url
    assert asked["code_challenge_method"] == "S256"
    assert asked["redirect_uri"].startswith("http://127.0.0.1:")
    assert issuer.registered[0]["application_type"] == "native"
    assert issuer.registered[0]["redirect_uris"] == [asked["redirect_uri"]]
    shown = {authorization for _, authorization, _ in server.seen}
    assert shown == {"", f"Bearer {next(iter(issuer.tokens))}"}


async def test_every_request_of_a_session_is_authorized(issuer: Authority, server: Guarded):
    async with Client(server.url, auth=person(), protocol="2025-11-25") as client:
        await total(client)
        await eventually(lambda: any(method == "GET" and shown for method, shown, _ in server.seen))
    let_in = [method for method, shown, _ in server.seen if shown]
    assert {"POST", "GET", "DELETE"} <= set(let_in)
    assert sum(not shown for _, shown, _ in server.seen) == 1  # only the first


async def test_one_login_however_many_wait(issuer: Authority, server: Guarded):
    auth = person()
    clients = [Client(server.url, auth=auth) for _ in range(5)]

    async def use(client: Client) -> None:
        async with client:
            await asyncio.gather(*(total(client) for _ in range(20)))

    await asyncio.gather(*map(use, clients))
    assert len(issuer.asked) == 1


async def test_a_request_does_not_time_out_while_a_person_logs_in(
    server: Guarded, clock: MovableClock
):
    async def hesitate(url: str) -> None:
        clock.move(250)
        await visit(url)

    auth = person(open_browser=hesitate, timeout=300)
    async with Client(server.url, auth=auth, connect_timeout=20, timeout=20) as client:
        assert await total(client) == 5


async def test_a_login_ends_when_no_request_waits_for_it(issuer: Authority, server: Guarded):
    opened = asyncio.Event()
    where: list[str] = []

    def ignore(url: str) -> None:
        where.append(url)
        loop.call_soon_threadsafe(opened.set)

    loop = asyncio.get_running_loop()
    connecting = asyncio.ensure_future(
        Client(server.url, auth=person(open_browser=ignore)).connect()
    )
    await opened.wait()
    connecting.cancel()
    await asyncio.wait([connecting])
    redirect = port_of(parse_qs(urlsplit(where[0]).query)["redirect_uri"][0])

    async def loopback_is_gone() -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", redirect)
        except OSError:
            return True
        writer.close()
        return False

    await eventually(loopback_is_gone)


async def test_a_login_that_fails_fails_all_that_wait_and_may_be_tried_again(
    issuer: Authority, server: Guarded
):
    issuer.bring_back = lambda back: {
        "error": "access_denied",
        "error_description": "not today",
        "state": back["state"],
        "iss": back["iss"],
    }
    auth = person()
    clients = [Client(server.url, auth=auth) for _ in range(3)]
    failures = await asyncio.gather(*(c.connect() for c in clients), return_exceptions=True)
    assert [type(f) for f in failures] == [AuthorizationFailed] * 3
    assert "access_denied (not today)" in str(failures[0])
    assert len(issuer.asked) == 1
    issuer.bring_back = lambda back: back
    async with Client(server.url, auth=auth) as client:
        assert await total(client) == 5


async def test_a_login_that_is_not_completed(server: Guarded):
    auth = person(open_browser=lambda url: None, timeout=0.3)
    with pytest.raises(AuthorizationFailed, match=r"did not log in at .* within 0.3 s"):
        await Client(server.url, auth=auth).connect()


async def test_a_browser_that_cannot_be_opened(server: Guarded):
    def broken(url: str) -> None:
        raise OSError("no display")

    with pytest.raises(AuthorizationFailed, match="could not be opened: no display"):
        await Client(server.url, auth=person(open_browser=broken)).connect()


# Renewal


async def test_a_token_that_is_over_is_renewed_and_the_refresh_token_rotates(
    issuer: Authority, server: Guarded, clock: MovableClock
):
    issuer.lifetime = 100
    async with Client(server.url, auth=person()) as client:
        for _ in range(6):
            assert await total(client) == 5
            clock.move(50)
    assert len(issuer.asked) == 1
    used = [f["refresh_token"] for f in issuer.forms if f["grant_type"] == "refresh_token"]
    assert len(used) >= 2
    assert len(set(used)) == len(used)
    refused = sum(not shown for _, shown, _ in server.seen)
    assert refused == 1  # renewed before they were refused


async def test_many_calls_renew_once(issuer: Authority, server: Guarded):
    async with Client(server.url, auth=person()) as client:
        issuer.tokens.clear()  # all at once the server knows none of them
        await asyncio.gather(*(total(client) for _ in range(50)))
    assert issuer.count("refresh_token") == 1
    assert len(issuer.asked) == 1


async def test_a_refresh_token_that_is_no_good_leads_to_a_login(issuer: Authority, server: Guarded):
    async with Client(server.url, auth=person()) as client:
        issuer.tokens.clear()
        issuer.refresh_tokens.clear()
        assert await total(client) == 5
    assert len(issuer.asked) == 2


async def test_a_token_that_is_refused_at_once_is_not_asked_for_again(issuer: Authority):
    async with guarded(Authority()) as elsewhere:  # it knows no token at all
        elsewhere.resource_metadata = {"authorization_servers": [issuer.issuer]}
        with pytest.raises(AuthorizationFailed, match="has just issued"):
            await Client(elsewhere.url, auth=person()).connect()
    assert len(issuer.asked) == 1


async def test_what_is_kept_is_used_without_asking_anybody(
    issuer: Authority, server: Guarded, tmp_path: Path
):
    for _ in range(2):
        auth = person(storage=FileStorage(tmp_path))
        async with Client(server.url, auth=auth) as client:
            await total(client)
    assert len(issuer.asked) == 1
    assert sum(not shown for _, shown, _ in server.seen) == 1


async def test_a_registration_is_used_again_with_its_port(
    issuer: Authority, server: Guarded, tmp_path: Path
):
    issuer.refreshes = False
    for _ in range(2):
        async with Client(server.url, auth=person(storage=FileStorage(tmp_path))) as client:
            await total(client)
        issuer.tokens.clear()
    assert len(issuer.registered) == 1
    first, second = issuer.asked
    assert first["redirect_uri"] == second["redirect_uri"]
    assert first["client_id"] == second["client_id"]


async def test_two_servers_of_one_issuer_keep_their_tokens(issuer: Authority, server: Guarded):
    auth = person()
    async with (
        guarded(issuer, challenge=', scope="other"') as other,
        Client(server.url, auth=auth) as one,
        Client(other.url, auth=auth) as two,
    ):
        issuer.tokens.clear()
        assert await total(one) == await total(two) == 5
    assert len(issuer.asked) == 2
    clients = [f["client_id"] for f in issuer.forms if f["grant_type"] == "refresh_token"]
    assert clients == ["client-1", "client-2"]  # each renewed as whom it was given to


# Scopes


async def test_scopes_of_the_challenge_come_first(issuer: Authority, server: Guarded):
    server.challenge = ', scope="read write"'
    server.resource_metadata = {"scopes_supported": ["everything"]}
    async with Client(server.url, auth=person()) as client:
        await total(client)
    assert issuer.asked[0]["scope"] == "read write"


async def test_scopes_of_the_settings_are_added(issuer: Authority, server: Guarded):
    server.challenge = ', scope="read"'
    async with Client(server.url, auth=person(scopes=["mine"])) as client:
        await total(client)
    assert issuer.asked[0]["scope"] == "read mine"


async def test_scopes_of_the_metadata_or_none(issuer: Authority, server: Guarded):
    async with Client(server.url, auth=person()):
        pass
    server.resource_metadata = {"scopes_supported": ["a", "b"]}
    async with Client(server.url, auth=person()):
        pass
    assert "scope" not in issuer.asked[0]
    assert issuer.asked[1]["scope"] == "a b"


async def test_offline_access_where_the_issuer_has_it(issuer: Authority, server: Guarded):
    issuer.metadata = {"scopes_supported": ["read", "offline_access"]}
    server.challenge = ', scope="read"'
    async with Client(server.url, auth=person()):
        pass
    assert issuer.asked[0]["scope"] == "read offline_access"
    assert issuer.asked[0]["prompt"] == "consent"


async def test_more_scopes_when_a_call_needs_them(issuer: Authority, server: Guarded):
    server.challenge = ', scope="read"'
    server.demands = {"tools/call": "write"}
    async with Client(server.url, auth=person()) as client:
        assert await total(client) == 5
        assert await total(client) == 5
    assert [asked["scope"] for asked in issuer.asked] == ["read", "read write"]


async def test_scopes_that_are_never_granted_are_asked_for_once(issuer: Authority, server: Guarded):
    server.demands = {"tools/call": "admin"}
    issue = issuer.issue
    issuer.issue = lambda scope: issue("read")  # whatever was asked for
    async with Client(server.url, auth=person()) as client:
        with pytest.raises(AuthorizationFailed, match="'admin', which were already requested"):
            await total(client)
    assert [asked.get("scope") for asked in issuer.asked] == [None, "admin"]


# Who the client is


async def test_a_client_known_before(issuer: Authority, server: Guarded):
    issuer.metadata = {
        "registration_endpoint": None,
        "token_endpoint_auth_methods_supported": ["client_secret_basic"],
    }
    auth = person(client_id="my id", client_secret="s:cret/é", issuer=issuer.issuer)
    async with Client(server.url, auth=auth) as client:
        await total(client)
    assert issuer.asked[0]["client_id"] == "my id"
    assert basic(issuer.headers[0]) == ("my id", "s:cret/é")


async def test_a_client_known_by_its_document(issuer: Authority, server: Guarded):
    issuer.metadata = {"client_id_metadata_document_supported": True}
    document = "https://agent.example/client.json"
    async with Client(server.url, auth=person(client_metadata_url=document)) as client:
        await total(client)
        issuer.tokens.clear()
        await total(client)
    assert issuer.asked[0]["client_id"] == document
    assert {form["client_id"] for form in issuer.forms} == {document}
    assert not issuer.registered


async def test_no_way_of_being_known(issuer: Authority, server: Guarded):
    issuer.metadata = {"registration_endpoint": None}
    with pytest.raises(AuthorizationFailed, match=r"pass `OAuth\(client_id=…\)`"):
        await Client(server.url, auth=person()).connect()


async def test_a_redirect_port_that_is_taken(server: Guarded):
    with pytest.raises(AuthorizationFailed, match="cannot be redirected to port"):
        await Client(server.url, auth=person(redirect_port=port_of(server.url))).connect()


async def test_another_authorization_server(issuer: Authority, server: Guarded):
    async with authority() as new, Client(server.url, auth=person()) as client:
        await total(client)
        server.authority = new
        assert await total(client) == 5
    assert len(new.registered) == len(new.asked) == 1
    assert not any("refresh_token" in form for form in new.forms)


async def test_credentials_are_not_taken_to_another_authorization_server(
    issuer: Authority, server: Guarded
):
    issuer.metadata = {"token_endpoint_auth_methods_supported": ["client_secret_basic"]}
    async with authority() as new:
        auth = person(client_id="known", client_secret="secret")
        async with Client(server.url, auth=auth) as client:
            await total(client)
            server.authority = new
            with pytest.raises(AuthorizationFailed, match="credentials belong to"):
                await total(client)
        assert not new.asked
        assert not new.forms


async def test_an_issuer_with_a_path():
    async with (
        authority(path="/tenant1") as tenant,
        guarded(tenant) as server,
        Client(server.url, auth=person()) as client,
    ):
        assert await total(client) == 5


# On a terminal


async def test_the_example_logs_in_with_the_system_browser(
    issuer: Authority, server: Guarded, tmp_path: Path
):
    """The browser is whatever the system says it is; here, a program that says yes to everything."""
    browser = tmp_path / "browser.py"
    browser.write_text("import sys, urllib.request; urllib.request.urlopen(sys.argv[1]).read()")
    example = Path(__file__).parents[3] / "examples" / "login_client.py"
    env = {
        **os.environ,
        "BROWSER": f"{sys.executable} {browser} %s",
        "XDG_STATE_HOME": str(tmp_path / "state"),
    }
    spoken: list[str] = []
    for _ in range(2):
        running = await asyncio.create_subprocess_exec(
            *(sys.executable, str(example), server.url),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=env,
        )
        out, said = await running.communicate()
        assert out.decode() == "['add']\n", said.decode()
        spoken.append(said.decode())
    assert f"{issuer.issuer}/authorize?" in spoken[0]
    assert not spoken[1]
    assert len(issuer.asked) == 1  # the second time it was logged in already
    kept = list((tmp_path / "state" / "mcpearl" / "tokens").glob("*.json"))
    assert len(kept) == 3  # the token, the registration, and whose the token is


# TLS


async def test_each_server_is_trusted_by_its_own_settings(tmp_path: Path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    ours, theirs = Certificates(tmp_path / "a", "ours"), Certificates(tmp_path / "b", "theirs")

    async def browse(url: str) -> None:
        trust = theirs.client_context()
        await asyncio.to_thread(
            lambda: urllib.request.urlopen(url, timeout=10, context=trust).close()
        )

    async with (
        authority(theirs.issue("issuer", "127.0.0.1")) as issuer,
        guarded(issuer, ours.issue("server", "127.0.0.1")) as server,
    ):
        auth = person(tls=Tls(ca=theirs.ca), open_browser=browse)
        async with Client(server.url, auth=auth, tls=Tls(ca=ours.ca)) as client:
            assert await total(client) == 5
        with pytest.raises(AuthorizationFailed, match="certificate"):
            await Client(server.url, auth=person(), tls=Tls(ca=ours.ca)).connect()


# Settings


def test_what_auth_can_be():
    with pytest.raises(TypeError, match="'oauth' to log in"):
        Client("http://127.0.0.1:1/mcp", auth="ey.secret.token")
    with pytest.raises(ValueError, match="`auth` is for servers at http"):
        Client(["uvx", "server"], auth="oauth")
    with pytest.raises(ValueError, match="https:// URL with a path"):
        OAuth(client_metadata_url="http://agent.example/")
    with pytest.raises(ValueError, match="needs its `client_id`"):
        OAuth(client_secret="x", storage=MemoryStorage())


@pytest.mark.parametrize(
    ("code", "unloaded"),
    [
        ("Client('https://mcp.example/mcp')", ["mcpearl.auth", "joserfc", "cryptography"]),
        ("Client('https://mcp.example/mcp', auth='oauth')", ["joserfc", "cryptography", "keyring"]),
    ],
)
def test_nothing_is_loaded_that_is_not_used(code: str, unloaded: list[str]):
    program = f"import sys; from mcpearl import Client; {code}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    assert "mcpearl.client.client" in loaded
    assert not loaded & set(unloaded)


async def test_a_client_that_reconnects_asks_for_a_login_once(
    issuer: Authority, server: Guarded, clock: MovableClock
):
    """The session is gone, the token with it, and no person is there to log in again."""
    issuer.refreshes = False
    asked: list[str] = []

    async def leave(url: str) -> None:
        asked.append(url)
        if len(asked) == 1:
            await visit(url)
        else:
            clock.move(11)

    reconnect = Reconnect(delays=(0.01,))
    auth = person(open_browser=leave, timeout=10)
    async with Client(server.url, auth=auth, protocol="2025-11-25", reconnect=reconnect) as client:
        await total(client)
        issuer.tokens.clear()
        server.forgetful = True
        with pytest.raises(ConnectionLost, match="did not log in at"):
            await total(client)
        await eventually(lambda: client.state.value == "closed")
        await clock.advance(5)
    assert len(asked) == 2
