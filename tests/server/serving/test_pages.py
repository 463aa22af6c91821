"""Paths beside MCP: the application's own, and the health of the server."""

import asyncio
import logging

import pytest

from mcpearl import Client, HttpRequest, HttpResponse, Server
from tests.transports.raw_http import Raw, Response


def port_of(url: str) -> int:
    return int(url.split(":")[2].split("/")[0])


def make_app() -> Server:
    app = Server("beside")

    @app.route("/hello")
    async def hello(request: HttpRequest) -> str:
        return f"hello {request.query['name']} from {request.client}"

    @app.route("/echo", methods=["POST"], max_body=100)
    def echo(request: HttpRequest) -> HttpResponse:
        return HttpResponse(request.json(), 201, headers={"X-Kind": request.headers["x-kind"]})

    @app.route("/data")
    def data(request: HttpRequest) -> dict[str, int]:
        return {"answer": 42}

    @app.route("/nothing")
    def nothing(request: HttpRequest) -> None:
        return None

    @app.route("/broken")
    async def broken(request: HttpRequest) -> str:
        raise RuntimeError("a secret of the server")

    @app.route("/split")
    async def split(request: HttpRequest) -> HttpResponse:
        return HttpResponse("x", headers={"X-A": "b\r\nX-Evil: 1"})

    return app


async def get(raw: Raw, path: str, method: str = "GET", **headers: str) -> Response:
    return await raw.request(method, headers, path=path)


async def test_routes_are_served_beside_mcp(caplog: pytest.LogCaptureFixture):
    app = make_app()
    caplog.set_level(logging.INFO, "mcpearl.http")
    async with app.serving("http", port=0, metrics="/metrics") as url:
        raw = Raw(port_of(url))
        hello = await get(raw, "/hello?name=Ada&x")
        assert (hello.status, hello.body) == (200, b"hello Ada from 127.0.0.1")
        assert hello.headers["content-type"] == "text/plain; charset=utf-8"
        head = await raw.send(raw.head("HEAD", {}, "/hello?name=Ada"))
        assert head.headers["content-length"] == str(len(hello.body))
        head.close()
        assert (await get(raw, "/data")).json == {"answer": 42}
        assert (await get(raw, "/nothing")).status == 204
        refused = await get(raw, "/hello", "DELETE")
        assert (refused.status, refused.headers["allow"]) == (405, "GET")
        assert (
            "refused DELETE '/hello' of 127.0.0.1 with 405: /hello is served for GET" in caplog.text
        )
        page = await get(raw, "/metrics")
        assert b'mcpearl_http_refused_total{status="405"} 1' in page.body
        echoed = await raw.post({"a": 1}, {"X-Kind": "mine"}, path="/echo")
        assert (echoed.status, echoed.json, echoed.headers["x-kind"]) == (201, {"a": 1}, "mine")
        large = await raw.post(b"x" * 101, {"X-Kind": "mine"}, path="/echo")
        assert large.status == 413
        for path in ("/broken", "/split"):
            failed = await get(raw, path)
            assert (failed.status, failed.body) == (500, b"Internal error")
            assert "x-evil" not in failed.headers
        assert "the route /broken failed" in caplog.text
        assert (await get(raw, "/hello?name=x", Host="evil.example")).status == 421
        async with Client(url) as client:
            await client.ping()


async def test_routes_are_served_under_asgi_too():
    import uvicorn

    from tests.ports import free_port
    from tests.waiting import eventually

    port = free_port()
    server = uvicorn.Server(
        uvicorn.Config(make_app().asgi(health="/health"), port=port, log_level="error", ws="none")
    )
    task = asyncio.create_task(server.serve())
    try:
        await eventually(lambda: server.started)
        raw = Raw(port)
        assert (await get(raw, "/data")).json == {"answer": 42}
        assert (await get(raw, "/health/ready")).json == {"status": "ready"}
    finally:
        server.should_exit = True
        await task


@pytest.mark.parametrize(
    ("path", "options", "error", "says"),
    [
        ("hello", {}, ValueError, "begins with `/`"),
        ("/a/{b}", {}, ValueError, "has no variables"),
        ("/a", {"methods": "GET"}, TypeError, "`methods` must be a list"),
    ],
)
def test_mistakes_are_named(path: str, options: dict, error: type, says: str):
    with pytest.raises(error, match=says):
        Server("any").route(path, **options)(lambda request: "x")


def test_two_routes_cannot_have_one_path():
    app = make_app()
    with pytest.raises(ValueError, match="a route at '/hello' already"):
        app.route("/hello")(lambda request: "x")
    app.route("/mcp")(lambda request: "x")
    with pytest.raises(ValueError, match="'/mcp' is the path of the MCP endpoint"):
        app.asgi()


async def test_health_tells_why_a_server_is_not_ready(caplog: pytest.LogCaptureFixture):
    app = Server("sick")
    state = {"database": None, "raises": False}

    @app.health
    async def database() -> str | None:
        return state["database"]

    @app.health
    def disk() -> bool:
        if state["raises"]:
            raise OSError("/var/secret is full")
        return True

    options = {"health": "/health", "allowed_hosts": ["mcp.example.com"]}
    async with app.serving("http", port=0, **options) as url:
        raw = Raw(port_of(url))  # its Host is not an allowed one, as that of a prober is not
        assert (await get(raw, "/health/live")).json == {"status": "alive"}
        for path in ("/health/ready", "/health"):
            answer = await get(raw, path)
            assert (answer.status, answer.json) == (200, {"status": "ready"})
        state.update(database="no connection", raises=True)
        answer = await get(raw, "/health/ready")
        assert answer.status == 503
        assert answer.json["reasons"] == {"database": "no connection", "disk": "OSError"}
        assert "the health check `disk` failed" in caplog.text
        state.update(database=None, raises=False)
        app.web.draining = True
        assert (await get(raw, "/health/ready")).json["reasons"] == {
            "draining": "the server is shutting down"
        }
        assert (await get(raw, "/health/live")).status == 200
        assert (await get(raw, "/health/other")).status == 404


async def test_without_the_option_there_is_no_health():
    async with Server("any").serving("http", port=0) as url:
        assert (await get(Raw(port_of(url)), "/health")).status == 404
