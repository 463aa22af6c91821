"""Patterns of hosts and origins: what they allow, what they do not, and what is not a pattern."""

import pytest

from mcpearl import Http, Server, WebSocket
from mcpearl.transports.http_server import patterns
from tests.transports.raw_http import Raw, Response, message
from tests.transports.suite_server import make_app


@pytest.mark.parametrize(
    ("given", "allowed", "refused"),
    [
        (
            ["mcp.example.com"],
            ["mcp.example.com", "mcp.example.com:8443"],
            ["example.com", "e", ""],
        ),
        (
            ["*.example.com"],
            ["a.example.com", "a.b.example.com:1"],
            ["example.com", ".example.com"],
        ),
        (["*.example.com"], [], ["example.com.evil", "xexample.com", "evil/.example.com.org"]),
        (
            ["MCP.example.com:8443"],
            ["mcp.example.com:8443"],
            ["mcp.example.com", "mcp.example.com:1"],
        ),
        (["*.example.com:8443"], ["a.example.com:8443"], ["a.example.com", "a.example.com:84430"]),
        (["::1", "[fe80::1]"], ["[::1]:80", "[::1]", "[fe80::1]:9"], ["[::2]", "::1"]),
        (["example.com:*"], ["example.com", "example.com:7"], ["example.com:x", "b.example.com"]),
    ],
)
def test_hosts(given: list[str], allowed: list[str], refused: list[str]):
    found = patterns.hosts(given)
    assert found is not None
    assert [host for host in allowed if host not in found] == []
    assert [host for host in refused if host in found] == []


@pytest.mark.parametrize(
    ("given", "allowed", "refused"),
    [
        (
            ["https://app.example.com"],
            ["https://app.example.com"],
            ["https://app.example.co", "http://app.example.com", "https://app.example.com:1", "h"],
        ),
        (["https://app.example.com:443/"], ["https://app.example.com"], []),
        (
            ["https://*.example.com"],
            ["https://a.example.com", "https://a.b.example.com"],
            ["https://example.com", "http://a.example.com", "https://a.example.com.evil"],
        ),
        (
            ["http://localhost:*"],
            ["http://localhost", "http://localhost:5173"],
            ["http://localhosts"],
        ),
        (["https://*.example.com:*"], ["https://a.example.com:9"], ["https://example.com:9"]),
        (["tauri://localhost", "null"], ["tauri://localhost", "null"], ["http://localhost"]),
    ],
)
def test_origins(given: list[str], allowed: list[str], refused: list[str]):
    found = patterns.origins(given)
    assert found is not None
    assert [origin for origin in allowed if origin not in found] == []
    assert [origin for origin in refused if origin in found] == []


def test_a_star_allows_everything():
    assert patterns.hosts(["a", "*"]) is None
    assert patterns.origins(["*"]) is None


@pytest.mark.parametrize("wire", [Http, WebSocket, Server("any").asgi])
@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        (
            {"allowed_hosts": "a.b"},
            TypeError,
            r"`allowed_hosts` must be a list, as in `allowed_hosts=",
        ),
        ({"allowed_origins": "https://a"}, TypeError, r"as in `allowed_origins=\['https://a'\]`"),
        ({"allowed_hosts": ["https://a.b"]}, ValueError, "'https://a.b', which is not a host"),
        ({"allowed_hosts": ["a*.b"]}, ValueError, "not a host"),
        ({"allowed_hosts": [""]}, ValueError, "not a host"),
        ({"allowed_origins": ["app.example.com"]}, ValueError, "with a scheme and without a path"),
        ({"allowed_origins": ["https://a/b"]}, ValueError, "not an origin"),
        ({"allowed_origins": ["https://a*b"]}, ValueError, "not an origin"),
    ],
)
def test_mistakes_are_refused_before_anything_is_served(wire, options, error, says):
    with pytest.raises(error, match=says):
        wire(**options)


async def test_an_endpoint_says_what_it_serves():
    options = {"allowed_hosts": ["*.example.com"], "allowed_origins": ["https://*.example.com"]}
    async with make_app().serving("http", port=0, **options) as url:
        raw = Raw(int(url.rpartition(":")[2].partition("/")[0]))
        raw.headers = {"Host": "a.example.com"}

        async def post(path: str = "/mcp", **headers: str) -> Response:
            return await raw.post(message("ping"), headers, path=path)

        assert (await post()).status != 421
        refused = await post(Host="evil.com")
        assert refused.status == 421
        assert "`allowed_hosts`" in refused.body.decode()
        refused = await post(Origin="https://evil.com")
        assert refused.status == 403
        assert "`allowed_origins`" in refused.body.decode()
        allowed = await post(Origin="https://b.example.com")
        assert allowed.headers["access-control-allow-origin"] == "https://b.example.com"
        lost = await post("/")
        assert lost.status == 404
        assert "There is nothing at '/'; MCP is served at '/mcp'" in lost.body.decode()
