"""Which requests a console answers, and what it sends along with its page."""

import asyncio
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

from mcpearl import Client, Server
from mcpearl.auth import StaticTokens
from mcpearl.console import files
from mcpearl.console.console import MAX_PAGES
from mcpearl.console.guard import is_local
from mcpearl.console.standalone import serving_console
from mcpearl.server.serving.wires import ConsoleOptions
from tests.console.page import HEADERS, KEY, open_page, served
from tests.waiting import eventually

PAGE_FILES = Path(files.__file__).parent / "page"


def make() -> Server:
    return Server("weather")


async def status_of(method: str, url: str, headers: dict[str, str], body: bytes = b"") -> int:
    """Send one request and return the status of the answer, without waiting for its end."""
    sent = {"headers": headers, "content": body or None}
    async with httpx2.AsyncClient() as http, http.stream(method, url, **sent) as response:
        return response.status_code


async def test_the_page_loads_nothing_from_elsewhere_and_runs_no_script_but_its_own():
    async with served(make()) as base, httpx2.AsyncClient() as http:
        page = await http.get(base, follow_redirects=True)
        assert page.status_code == 200 and page.headers["content-type"].startswith("text/html")
        for path in PAGE_FILES.iterdir():
            response = await http.get(f"{base}/{path.name}")
            assert response.status_code == 200, path
            policy = response.headers["content-security-policy"]
            assert "default-src 'none'" in policy and "script-src 'self'" in policy
            assert "unsafe" not in policy and "trusted-types 'none'" in policy
            assert response.headers["x-content-type-options"] == "nosniff"
            assert response.headers["x-frame-options"] == "DENY"


def test_the_page_is_small_and_names_no_other_host():
    texts = {path.name: path.read_text() for path in PAGE_FILES.iterdir()}
    assert sum(len(text) for text in texts.values()) < 120_000
    for name, text in texts.items():
        strange = [
            word
            for word in text.replace("http://www.w3.org/2000/svg", "").split()
            if "http://" in word or "https://" in word
        ]
        assert not strange, (name, strange)
        for forbidden in (
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
        ):
            assert forbidden not in text, (name, forbidden)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        pytest.param({}, 403, id="no key"),
        pytest.param({"x-console-key": "guessed"}, 403, id="a wrong key"),
        pytest.param({**HEADERS, "origin": "http://127.0.0.1:1"}, 403, id="another local page"),
        pytest.param({**HEADERS, "origin": "https://evil.example"}, 403, id="a page elsewhere"),
        pytest.param({**HEADERS, "origin": "null"}, 403, id="a sandboxed page"),
        pytest.param(
            {**HEADERS, "sec-fetch-site": "cross-site"}, 403, id="fetched by another site"
        ),
        pytest.param({**HEADERS, "sec-fetch-site": "same-site"}, 403, id="fetched by another port"),
        pytest.param({**HEADERS, "host": "evil.example"}, 421, id="another name for this machine"),
        pytest.param(HEADERS, 200, id="the page itself"),
    ],
)
async def test_only_the_page_with_the_key_gets_events(headers: dict[str, str], status: int):
    async with served(make()) as base:
        assert await status_of("GET", f"{base}/events", headers) == status


async def test_what_a_page_asks_is_json_of_an_open_page():
    async with served(make()) as base, open_page(base) as page:
        known = {**HEADERS, "x-console-page": page.events[0]["page"]}
        url, body = f"{base}/do", b'{"do":"follow"}'
        json_type = {"content-type": "application/json"}
        assert await status_of("POST", url, {**known, "content-type": "text/plain"}, body) == 415
        form = {"content-type": "application/x-www-form-urlencoded"}
        assert await status_of("POST", url, {**known, **form}, body) == 415
        assert await status_of("POST", url, {**HEADERS, **json_type}, body) == 409
        assert await status_of("POST", url, {**known, **json_type}, b'{"do":"shutdown"}') == 400
        assert await status_of("POST", url, {**known, **json_type}, b"[" * 5000) == 400
        assert await status_of("POST", url, {**known, **json_type}, b"\xff") == 400
        assert await status_of("POST", url, {**known, **json_type}, body) == 200
        assert await status_of("GET", url, known) == 405
        assert await status_of("OPTIONS", url, {"origin": "https://evil.example"}) == 405


async def test_what_is_not_there_is_not_found():
    async with served(make()) as base, httpx2.AsyncClient() as http:
        for name in ("nothing.js", "../console.py", "..%2f__init__.py", "page/index.html"):
            assert (await http.get(f"{base}/{name}")).status_code == 404, name
        assert (await http.get(f"{base}x")).status_code == 404
        assert (await http.post(base)).status_code == 405


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "::", "example.com"])
def test_a_console_that_others_could_reach_needs_auth(host: str):
    with pytest.raises(SystemExit, match="protect the server with `auth=`"):
        make().run("http", host=host, port=0, console=True)


async def test_a_protected_console_wants_a_token_and_the_key():
    tokens = StaticTokens({"a-token-of-ada-lovelace": "ada"})
    app = Server("weather", auth=tokens)
    options = {"host": "0.0.0.0", "port": 0, "console": ConsoleOptions(key=KEY)}
    async with app.serving("http", **options) as url:
        base = url.removesuffix("/mcp") + "/console"
        token = {"authorization": "Bearer a-token-of-ada-lovelace"}
        assert await status_of("GET", f"{base}/", {}) == 200  # the page itself says nothing
        assert await status_of("GET", f"{base}/events", HEADERS) == 401
        assert await status_of("GET", f"{base}/events", token) == 403
        assert await status_of("GET", f"{base}/events", {**HEADERS, **token}) == 200


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("127.0.0.1", True),
        ("127.3.2.1", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("localhost", True),
        ("10.0.0.1", False),
        ("::ffff:10.0.0.1", False),
        ("localhost.evil.example", False),
    ],
)
def test_which_addresses_are_local(host: str, local: bool):
    assert is_local(host) is local


async def test_pages_are_bounded_and_a_closed_one_makes_room():
    async with served(make()) as base:  # noqa: SIM117
        async with httpx2.AsyncClient(limits=httpx2.Limits(max_connections=100)) as http:
            streams = [
                http.stream("GET", f"{base}/events", headers=HEADERS) for _ in range(MAX_PAGES)
            ]
            opened = [await stream.__aenter__() for stream in streams]
            assert {each.status_code for each in opened} == {200}
            assert await status_of("GET", f"{base}/events", HEADERS) == 503
            await streams[0].__aexit__(None, None, None)

            async def has_room() -> bool:
                return await status_of("GET", f"{base}/events", HEADERS) == 200

            await eventually(has_room)
            for stream in streams[1:]:
                await stream.__aexit__(None, None, None)


async def test_open_pages_do_not_keep_a_server_from_stopping():
    app = Server("weather", grace=600)
    async with asyncio.timeout(60):  # it would wait for its grace
        async with served(app) as base, httpx2.AsyncClient() as http:
            stream = http.stream("GET", f"{base}/events", headers=HEADERS)
            await stream.__aenter__()
    await stream.__aexit__(None, None, None)


def test_the_log_says_where_the_console_is(caplog: pytest.LogCaptureFixture):
    async def serve() -> None:
        async with served(make()):
            pass

    with caplog.at_level("INFO", "mcpearl.server"):
        asyncio.run(serve())
    assert f"/console/#key={KEY}" in caplog.text


async def test_a_server_without_a_console_has_none():
    app = Server("plain", telemetry=False)
    async with app.serving("http", port=0) as url, httpx2.AsyncClient() as http:
        assert (await http.get(url.removesuffix("/mcp") + "/console/")).status_code == 404
        assert app.core.observer is None, "a call does no work for a console that is not there"


def test_a_server_without_a_console_does_not_load_it():
    program = (
        "import asyncio, sys\nfrom mcpearl import Server\n"
        "async def main():\n    async with Server('a').serving('http', port=0):\n"
        "        print([name for name in sys.modules if 'console' in name])\n"
        "asyncio.run(main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert done.stdout.strip() == "[]", done


async def test_a_console_of_its_own_is_local_and_answers_for_nothing_else():
    with pytest.raises(ValueError, match=r"serve it on 127\.0\.0\.1"):
        async with serving_console({}, host="0.0.0.0"):
            pass
    async with serving_console({"weather": make()}, key=KEY) as address:
        base = address.partition("/#")[0]
        async with open_page(base) as page:
            assert page.events[0]["live"] is False
            assert (await page.connect("weather"))["server"]["name"] == "weather"
            refused = await page.post(do="open", target="another")
            assert refused.status_code == 422 and "no server 'another'" in refused.text
        root = base.removesuffix("/console")
        assert await status_of("GET", f"{root}/mcp", {}) == 404
        assert await status_of("GET", f"{base}/", {"host": "evil.example"}) == 421


async def test_mcp_goes_on_beside_the_console():
    app = make()

    @app.tool
    def add(a: int, b: int) -> int:
        return a + b

    async with served(app) as base, Client(base.removesuffix("/console") + "/mcp") as client:
        assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3
