"""An authorization server and a protected MCP server, to be honest or not, on real sockets."""

import asyncio
import base64
import hashlib
import secrets
import socket
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote_plus, urlencode, urlsplit

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from mcpearl import Server
from mcpearl.auth import MemoryStorage, OAuth
from mcpearl.runtime import clock as source
from tests.waiting import eventually


@dataclass
class Authority:
    """An authorization server. Its attributes say how it behaves and what it saw."""

    origin: str = ""
    path: str = ""
    lifetime: float = 3600
    refreshes: bool = True
    metadata: dict[str, Any] = field(default_factory=dict)
    """Put over the honest metadata; None leaves a member out."""
    bring_back: Callable[[dict[str, str]], dict[str, str]] = field(default=dict)
    """Changes what the browser is sent back with."""
    asked: list[dict[str, str]] = field(default_factory=list)
    """Authorization requests."""
    forms: list[dict[str, str]] = field(default_factory=list)
    """Token requests."""
    headers: list[dict[str, str]] = field(default_factory=list)
    """Of the token requests."""
    registered: list[dict[str, Any]] = field(default_factory=list)
    tokens: dict[str, tuple[float, set[str]]] = field(default_factory=dict)
    """Access tokens, until when, with which scopes."""
    refresh_tokens: set[str] = field(default_factory=set)
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    grants: Callable[[dict[str, str]], dict[str, Any] | None] = field(default=lambda form: None)
    """Answers other grants; None refuses them."""

    @property
    def issuer(self) -> str:
        return self.origin + self.path

    def secrets(self) -> list[str]:
        """Everything that must not be in a log."""
        said = [*self.tokens, *self.refresh_tokens, *self.codes]
        said += [asked["state"] for asked in self.asked]
        said += [form["code_verifier"] for form in self.forms if "code_verifier" in form]
        return said

    def app(self) -> Starlette:
        at = self.path
        return Starlette(
            routes=[
                Route(f"/.well-known/oauth-authorization-server{at}", self.describe),
                Route(f"{at}/authorize", self.authorize),
                Route(f"{at}/register", self.register, methods=["POST"]),
                Route(f"{at}/token", self.token, methods=["POST"]),
            ]
        )

    async def describe(self, request: Request) -> Response:
        metadata = {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "registration_endpoint": f"{self.issuer}/register",
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none"],
            "authorization_response_iss_parameter_supported": True,
            **self.metadata,
        }
        return JSONResponse({name: value for name, value in metadata.items() if value is not None})

    async def register(self, request: Request) -> Response:
        self.registered.append(await request.json())
        return JSONResponse({"client_id": f"client-{len(self.registered)}"}, 201)

    async def authorize(self, request: Request) -> Response:
        query = dict(request.query_params)
        self.asked.append(query)
        code = secrets.token_urlsafe(16)
        self.codes[code] = query
        back = self.bring_back({"code": code, "state": query["state"], "iss": self.issuer})
        return RedirectResponse(f"{query['redirect_uri']}?{urlencode(back)}", 302)

    async def token(self, request: Request) -> Response:
        form = {k: v[0] for k, v in parse_qs((await request.body()).decode()).items()}
        self.forms.append(form)
        self.headers.append(dict(request.headers))
        if form["grant_type"] == "authorization_code":
            return self._redeem(form)
        if form["grant_type"] == "refresh_token":
            return self._refresh(form)
        answer = self.grants(form)
        if answer is None:
            return JSONResponse({"error": "unauthorized_client"}, 400)
        return JSONResponse(answer)

    def _redeem(self, form: dict[str, str]) -> Response:
        asked = self.codes.get(form["code"])
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        if asked is None or asked["code_challenge"] != challenge:
            return JSONResponse({"error": "invalid_grant"}, 400)
        return JSONResponse(self.issue(asked.get("scope", "")))

    def _refresh(self, form: dict[str, str]) -> Response:
        if form["refresh_token"] not in self.refresh_tokens:
            return JSONResponse({"error": "invalid_grant"}, 400)
        self.refresh_tokens.remove(form["refresh_token"])  # each is good for one use
        return JSONResponse(self.issue(""))

    def issue(self, scope: str) -> dict[str, Any]:
        token = f"access-{secrets.token_urlsafe(16)}"
        self.tokens[token] = (source.now() + self.lifetime, set(scope.split()))
        answer = {"access_token": token, "token_type": "Bearer", "expires_in": self.lifetime}
        if scope:
            answer["scope"] = scope
        if self.refreshes:
            answer["refresh_token"] = f"refresh-{secrets.token_urlsafe(16)}"
            self.refresh_tokens.add(str(answer["refresh_token"]))
        return answer

    def count(self, grant: str) -> int:
        return sum(form["grant_type"] == grant for form in self.forms)


@dataclass
class Guarded:
    """An MCP server that wants tokens of an authority. Tools named after a scope need that scope."""

    authority: Authority
    origin: str = ""
    challenge: str = ""
    """More of the challenge of a 401."""
    resource_metadata: dict[str, Any] = field(default_factory=dict)
    metadata_url: str | None = None
    """Named in the challenge in place of the right one."""
    seen: list[tuple[str, str, str]] = field(default_factory=list)
    """Method, authorization and JSON-RPC method of each request."""
    demands: dict[str, str] = field(default_factory=dict)
    """Scopes that a JSON-RPC method needs."""
    forgetful: bool = False
    """Whether it knows no session any more."""

    @property
    def url(self) -> str:
        return f"{self.origin}/mcp"

    def app(self) -> Callable[..., Any]:
        inner = _server().asgi()

        async def outer(scope: dict[str, Any], receive: Any, send: Any) -> None:
            if scope["type"] != "http":
                await inner(scope, receive, send)
            elif scope["path"].startswith("/.well-known/"):
                await self._describe(scope)(scope, receive, send)
            else:
                await self._admit(inner, scope, receive, send)

        return outer

    def _describe(self, scope: dict[str, Any]) -> Response:
        if scope["path"] != "/.well-known/oauth-protected-resource/mcp":
            return Response(status_code=404)
        honest = {"resource": self.url, "authorization_servers": [self.authority.issuer]}
        return JSONResponse({**honest, **self.resource_metadata})

    async def _admit(self, inner: Any, scope: dict[str, Any], receive: Any, send: Any) -> None:
        headers = {k.decode().lower(): v.decode() for k, v in scope["headers"]}
        shown, rpc = headers.get("authorization", ""), headers.get("mcp-method", "")
        self.seen.append((scope["method"], shown, rpc))
        until, scopes = self.authority.tokens.get(shown.partition(" ")[2], (0.0, set()))
        at = self.metadata_url or f"{self.origin}/.well-known/oauth-protected-resource/mcp"
        missing = set(self.demands.get(rpc, "").split()) - scopes
        if self.forgetful and "mcp-session-id" in headers:
            await Response(status_code=404)(scope, receive, send)
        elif source.now() >= until:
            refusal = f'Bearer resource_metadata="{at}"{self.challenge}'
            await Response("who?", 401, {"WWW-Authenticate": refusal})(scope, receive, send)
        elif missing:
            refusal = f'Bearer error="insufficient_scope", scope="{" ".join(missing)}"'
            await Response("no", 403, {"WWW-Authenticate": refusal})(scope, receive, send)
        else:
            await inner(scope, receive, send)


def _server() -> Server:
    app = Server("guarded")

    @app.tool
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    return app


@asynccontextmanager
async def serving(
    make: Callable[[str], Any],
    certificate: tuple[str, str] | None = None,
    listening: socket.socket | None = None,
) -> AsyncIterator[str]:
    """Serve what `make` gives for an origin, with TLS if there is a certificate."""
    listening = listening or bound_socket()
    origin = f"http{'s' if certificate else ''}://127.0.0.1:{listening.getsockname()[1]}"
    file, key = certificate or (None, None)
    config = uvicorn.Config(
        make(origin),
        log_level="critical",
        lifespan="auto",
        access_log=False,
        ssl_certfile=file,
        ssl_keyfile=key,
    )
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None  # type: ignore[method-assign]
    work = asyncio.ensure_future(server.serve(sockets=[listening]))
    await eventually(lambda: server.started)
    try:
        yield origin
    finally:
        server.should_exit = server.force_exit = True
        await work
        listening.close()


def bound_socket() -> socket.socket:
    """Take a free port."""
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    return listening


@asynccontextmanager
async def authority(
    certificate: tuple[str, str] | None = None, **behaviour: Any
) -> AsyncIterator[Authority]:
    made = Authority(**behaviour)

    def make(origin: str) -> Any:
        made.origin = origin
        return made.app()

    async with serving(make, certificate):
        yield made


@asynccontextmanager
async def guarded(
    by: Authority, certificate: tuple[str, str] | None = None, **behaviour: Any
) -> AsyncIterator[Guarded]:
    made = Guarded(by, **behaviour)

    def make(origin: str) -> Any:
        made.origin = origin
        return made.app()

    async with serving(make, certificate):
        yield made


async def visit(url: str) -> None:
    """Be a browser whose user agrees to everything."""

    def follow() -> None:
        try:
            urllib.request.urlopen(url, timeout=10).close()
        except urllib.error.HTTPError as error:
            error.close()

    await asyncio.to_thread(follow)


def person(**options: Any) -> OAuth:
    """Make an `OAuth` whose person logs in at once."""
    options.setdefault("storage", MemoryStorage())
    options.setdefault("open_browser", visit)
    options.setdefault("timeout", 10)
    return OAuth(**options)


def basic(headers: dict[str, str]) -> tuple[str, str]:
    """Read the login of a request."""
    decoded = base64.b64decode(headers["authorization"].removeprefix("Basic ")).decode()
    name, _, secret = decoded.partition(":")
    return unquote_plus(name), unquote_plus(secret)


def port_of(url: str) -> int:
    return urlsplit(url).port or 0
