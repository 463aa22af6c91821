"""Logging in as a person: the authorization code flow with PKCE, from a program on their machine.

Straight down: who this client is to the authorization server, the browser, the one answer that comes
back, its code for a token. What is checked of the answer is recorded before the browser opens.
"""

import asyncio
import base64
import hashlib
import inspect
import logging
import sys
import webbrowser
from collections.abc import Awaitable, Callable, Iterable
from ssl import SSLContext
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

import msgspec
from msgspec.structs import replace

from mcpearl.auth.client.discovery import AuthServer
from mcpearl.auth.client.dpop import ProofKey
from mcpearl.auth.client.identity import Identity
from mcpearl.auth.client.loopback import Arrival, Loopback
from mcpearl.auth.client.registration import Registration, register
from mcpearl.auth.client.session import Session
from mcpearl.auth.client.storage import FileStorage, Key, Storage
from mcpearl.auth.client.token import Token
from mcpearl.auth.client.token_endpoint import GrantRefused, plain, request_token
from mcpearl.auth.client.web import Reach, Web
from mcpearl.net.tls import Tls, client_context
from mcpearl.protocol.errors import AuthorizationFailed
from mcpearl.runtime import clock

logger = logging.getLogger("mcpearl.auth")

OFFLINE = "offline_access"
OpenBrowser = Callable[[str], Awaitable[Any] | Any]


class OAuth:
    """Log in with the browser, once for all that use this object, and stay logged in.

    >>> Client("https://example.com/mcp", auth=OAuth(client_name="My agent"))

    The client is known by `client_id` (with `client_secret`, if it has one, and the `issuer` that gave
    them), by the document at `client_metadata_url`, or is registered on the way. `scopes` are asked
    for beside those the server demands. Tokens are kept in files of the user unless `storage` says
    otherwise. `redirect_port` is for authorization servers that want to know it before. `open_browser`
    is called with the address to visit, in place of the system's browser. `dpop` binds tokens to a key
    of this client: when both servers know how, or always (True), or never (False).
    `allow_private` lets a server name an authorization server on a private network, and `tls` says
    whom to trust there, where that is not what the system trusts.
    """

    silent = False

    def __init__(
        self,
        *,
        client_name: str = "mcpearl",
        scopes: Iterable[str] = (),
        storage: Storage | None = None,
        redirect_port: int = 0,
        client_metadata_url: str | None = None,
        client_id: str | None = None,
        client_secret: str | None = None,
        issuer: str | None = None,
        open_browser: OpenBrowser | None = None,
        timeout: float = 300.0,
        dpop: bool | None = None,
        allow_private: bool = False,
        tls: Tls | SSLContext | None = None,
    ) -> None:
        if client_metadata_url is not None:
            _check_metadata_url(client_metadata_url)
        if client_secret is not None and client_id is None:
            raise ValueError("a `client_secret` needs its `client_id`")
        self.issuer = issuer
        self.portable = client_id is None
        self.scopes = tuple(scopes)
        self.dpop = dpop
        self._client_name = client_name
        self._storage = storage if storage is not None else FileStorage()
        self._redirect_port = redirect_port
        self._client_metadata_url = client_metadata_url
        self._given = None if client_id is None else Identity(client_id, client_secret)
        self._open_browser = open_browser or open_on_terminal
        self._timeout = timeout
        self._allow_private = allow_private
        self._tls = None if tls is None else client_context(tls, ["http/1.1"])
        self._sessions: dict[tuple[str, str | None], Session] = {}  # by address and proxy
        self._browsing: set[asyncio.Task[None]] = set()  # browsers being opened

    def authorizer(self, url: str, reach: Reach) -> Session:
        """Give the session with one server, the same to all who ask and reach it the same way."""
        session = self._sessions.get((url, reach.proxy))
        if session is None:
            trusted = () if self.issuer is None else (self.issuer,)
            web = Web(
                url,
                trusted=trusted,
                allow_private=self._allow_private,
                reach=reach,
                tls=self._tls,
            )
            session = self._sessions[url, reach.proxy] = Session(url, self, self._storage, web)
        return session

    def __repr__(self) -> str:
        return f"OAuth(client_name={self._client_name!r})"

    # The flow

    async def obtain(
        self, web: Web, place: AuthServer, scopes: tuple[str, ...], key: ProofKey | None
    ) -> Token:
        """Have a person log in."""
        server = place.server
        if server.authorization_endpoint is None:
            raise AuthorizationFailed(f"{server.issuer} has no page to log in at")
        web.check_page(server.authorization_endpoint)
        if "S256" not in (server.code_challenge_methods_supported or ()):
            raise AuthorizationFailed(
                f"{server.issuer} does not say that it supports PKCE with S256; logging in there "
                "would not be safe"
            )
        if OFFLINE in (server.scopes_supported or ()) and OFFLINE not in scopes:
            scopes = (*scopes, OFFLINE)
        state = clock.token(32)
        kept = await self._registered(place)
        async with Loopback(state, self._ports(kept)) as loopback:
            identity = await self._identify(web, place, kept, loopback.redirect_uri, scopes, key)
            request = _Request(identity, loopback.redirect_uri, scopes, state, new_verifier())
            arrival = await self._visit(place, request, loopback)
            try:
                token = await self._redeem(web, place, request, arrival, key)
            except AuthorizationFailed as error:
                arrival.tell(False, str(error))
                raise
            host = urlsplit(place.resource).netloc
            arrival.tell(True, f"{self._client_name} can use {host} now. You can close this page.")
            return token

    async def refresh(
        self, web: Web, place: AuthServer, token: Token, key: ProofKey | None
    ) -> Token:
        """Renew a token without anybody noticing."""
        assert token.refresh_token is not None
        identity = self._given or self._published(place) or token.client
        form = {"grant_type": "refresh_token", "refresh_token": token.refresh_token}
        renewed = await request_token(web, place, identity, form, token.requested, key)
        return replace(renewed, client=token.client)

    # Who this client is

    def _published(self, place: AuthServer) -> Identity | None:
        if self._client_metadata_url and place.server.client_id_metadata_document_supported:
            return Identity(self._client_metadata_url)
        return None

    async def _registered(self, place: AuthServer) -> Registration | None:
        """Give the registration kept for an issuer, if it is needed and still good."""
        if self._given is not None or self._published(place) is not None:
            return None
        record = await self._storage.load(Key(place.server.issuer, ""))
        try:
            kept = None if record is None else msgspec.convert(record, Registration)
        except msgspec.ValidationError:
            return None
        return None if kept is None or kept.over else kept

    def _ports(self, kept: Registration | None) -> list[int]:
        """List the ports the browser can be sent back to: one the authorization server knows first."""
        if self._redirect_port:
            return [self._redirect_port]
        known = None if kept is None else urlsplit(kept.redirect_uri).port
        return [0] if known is None else [known, 0]

    async def _identify(
        self,
        web: Web,
        place: AuthServer,
        kept: Registration | None,
        redirect_uri: str,
        scopes: tuple[str, ...],
        key: ProofKey | None,
    ) -> Identity:
        """Be known already, by a document, or by registering, in this order."""
        known = self._given or self._published(place)
        if known is not None:
            return known
        before = () if kept is None else kept.scopes
        if kept is None or kept.redirect_uri != redirect_uri or not set(scopes) <= set(before):
            kept = await register(
                web,
                place.server,
                client_name=self._client_name,
                redirect_uri=redirect_uri,
                scopes=tuple(dict.fromkeys([*before, *scopes])),
                dpop=key is not None,
            )
            await self._storage.save(Key(place.server.issuer, ""), msgspec.to_builtins(kept))
        return kept.identity()

    # The browser, and what it brings back

    async def _visit(self, place: AuthServer, request: "_Request", loopback: Loopback) -> Arrival:
        """Send the browser away and wait for it to come back."""
        logger.info("logging in at %s", place.server.issuer)
        browsing = asyncio.get_running_loop().create_task(self._browse(request.url(place)))
        self._browsing.add(browsing)
        browsing.add_done_callback(self._browsing.discard)
        browsing.add_done_callback(lambda done: _could_not_open(done, loopback))
        try:
            async with asyncio.timeout(self._timeout):
                return await loopback.arrival()
        except TimeoutError:
            # It may have been shown an error about a client it no longer knows.
            await self._storage.delete(Key(place.server.issuer, ""))
            raise AuthorizationFailed(
                f"nobody logged in at {place.server.issuer} within {self._timeout:g} s"
            ) from None

    async def _browse(self, url: str) -> None:
        opened = await asyncio.to_thread(self._open_browser, url)
        if inspect.isawaitable(opened):
            await opened

    async def _redeem(
        self,
        web: Web,
        place: AuthServer,
        request: "_Request",
        arrival: Arrival,
        key: ProofKey | None,
    ) -> Token:
        """Check an answer and change its code into a token."""
        code = _code(place, arrival.parameters)
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": request.redirect_uri,
            "code_verifier": request.verifier,
        }
        identity = request.identity
        try:
            token = await request_token(web, place, identity, form, request.scopes, key)
        except GrantRefused as error:
            if error.error == "invalid_client":
                await self._storage.delete(Key(place.server.issuer, ""))
            raise
        registered = identity is not self._given and self._published(place) is None
        return replace(token, client=identity) if registered else token


class _Request(NamedTuple):
    """One authorization request, recorded before the browser opens."""

    identity: Identity
    redirect_uri: str
    scopes: tuple[str, ...]
    state: str
    verifier: str

    def url(self, place: AuthServer) -> str:
        digest = hashlib.sha256(self.verifier.encode()).digest()
        query = {
            "response_type": "code",
            "client_id": self.identity.client_id,
            "redirect_uri": self.redirect_uri,
            "state": self.state,
            "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
            "code_challenge_method": "S256",
            "resource": place.resource,
        }
        if self.scopes:
            query["scope"] = " ".join(self.scopes)
        if OFFLINE in self.scopes:
            query["prompt"] = "consent"  # OpenID Connect gives no refresh token without
        endpoint = place.server.authorization_endpoint or ""
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(query)}"


def _code(place: AuthServer, parameters: dict[str, str]) -> str:
    """Give the code of an answer, once it is sure who sent it (RFC 9207, section 2.4)."""
    server, iss = place.server, parameters.get("iss")
    if iss is None and server.authorization_response_iss_parameter_supported:
        logger.warning("an answer without `iss`, which %s promises, was refused", server.issuer)
        raise AuthorizationFailed(
            f"the answer does not name its issuer, as answers of {server.issuer} do"
        )
    if iss is not None and iss != server.issuer:
        logger.warning("an answer of another issuer than %s was refused", server.issuer)
        raise AuthorizationFailed(f"the answer is of another issuer than {server.issuer}")
    if "error" in parameters:
        said = plain(parameters.get("error_description", ""))
        why = plain(parameters["error"]) + (f" ({said})" if said else "")
        raise AuthorizationFailed(f"{server.issuer} did not log anybody in: {why}")
    code = parameters.get("code", "")
    if not code:
        raise AuthorizationFailed(f"{server.issuer} sent the browser back without a code")
    return code


def _could_not_open(browsing: asyncio.Task[None], loopback: Loopback) -> None:
    error = None if browsing.cancelled() else browsing.exception()
    if error is not None:
        loopback.give_up(f"the browser could not be opened: {error}")


def new_verifier() -> str:
    """Make up the secret of one PKCE exchange."""
    return clock.token(64)


async def open_on_terminal(url: str) -> None:
    """Open the system's browser, and show the address for where there is none."""
    print(f"To log in, visit:\n\n    {url}\n", file=sys.stderr, flush=True)
    if not await asyncio.to_thread(webbrowser.open, url):
        print("No browser could be opened; visit the address yourself.", file=sys.stderr)


def _check_metadata_url(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme != "https" or not parts.hostname or parts.path in ("", "/"):
        raise ValueError(
            f"`client_metadata_url` has to be an https:// address with a path, not {url!r}"
        )
