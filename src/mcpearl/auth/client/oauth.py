"""Logs a user in with the browser: the authorization code flow with PKCE, for native programs.

The steps are: identify this client to the authorization server, open the browser, receive the redirect,
and exchange its code for a token. The values to check are recorded before the browser opens.
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
from mcpearl.auth.client.identity import ClientIdentity
from mcpearl.auth.client.loopback import Arrival, Loopback
from mcpearl.auth.client.registration import Registration, register
from mcpearl.auth.client.session import AuthSession
from mcpearl.auth.client.storage import FileStorage, Key, Storage
from mcpearl.auth.client.token import Token
from mcpearl.auth.client.token_endpoint import GrantRefused, plain, request_token
from mcpearl.auth.client.web import Reach, Web, inert
from mcpearl.net.tls import Tls, client_context
from mcpearl.protocol.errors import AuthorizationFailed
from mcpearl.runtime import clock
from mcpearl.runtime.arguments import refuse_text

logger = logging.getLogger("mcpearl.auth")

OFFLINE = "offline_access"
OpenBrowser = Callable[[str], Awaitable[Any] | Any]


class OAuth:
    """Log in with the browser, once for all clients that use this object, and stay logged in.

    Args:
        client_name: The name that the user sees when asked for consent.
        scopes: Scopes that are always requested, besides those the server demands.
        storage: Where tokens are stored; by default in private files of the user.
        redirect_port: The port that the browser is redirected to, for authorization servers that must
            know it in advance; by default any free one.
        client_metadata_url: URL of the client's metadata document, used if the authorization server
            supports such documents.
        client_id: The id of a client that was registered in advance. By default the client is registered
            during the login.
        client_secret: The secret that goes with `client_id`, if there is one.
        issuer: The authorization server that `client_id` belongs to.
        open_browser: A function (or async function) that is called with the URL of the login page,
            instead of opening the system's browser.
        timeout: Seconds a user has to log in.
        dpop: Whether to bind tokens to a key: always, never, or if both servers support it (None).
        allow_private: Whether a server may name an authorization server on a private network.
        tls: Trust for authorization servers; by default as for the server.

    >>> Client("https://example.com/mcp", auth=OAuth(client_name="My agent"))
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
        refuse_text("scopes", scopes)
        self.scopes = tuple(scopes)
        self.dpop = dpop
        self._client_name = client_name
        self._storage = storage if storage is not None else FileStorage()
        self._redirect_port = redirect_port
        self._client_metadata_url = client_metadata_url
        self._given = None if client_id is None else ClientIdentity(client_id, client_secret)
        self._open_browser = open_browser or open_on_terminal
        self._timeout = timeout
        self._allow_private = allow_private
        self._tls = None if tls is None else client_context(tls, ["http/1.1"])
        self._sessions: dict[tuple[str, str | None], AuthSession] = {}  # by URL and proxy
        self._browsing: set[asyncio.Task[None]] = set()  # browsers being opened

    def authorizer(self, url: str, reach: Reach) -> AuthSession:
        """Return the session with a server. Clients that reach it in the same way share it.

        Args:
            url: The URL of the server.
            reach: How the server is reached.
        """
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
            session = self._sessions[url, reach.proxy] = AuthSession(url, self, self._storage, web)
        return session

    def __repr__(self) -> str:
        return f"OAuth(client_name={self._client_name!r})"

    # The flow

    async def obtain(
        self, web: Web, place: AuthServer, scopes: tuple[str, ...], key: ProofKey | None
    ) -> Token:
        """Have the user log in, and return the token.

        Args:
            web: Fetches documents for this server.
            place: The authorization server and the resource.
            scopes: The scopes to request.
            key: The key to bind the token to, if any.
        """
        server = place.server
        if server.authorization_endpoint is None:
            raise AuthorizationFailed(f"{server.issuer} has no login page (authorization endpoint)")
        web.check_page(server.authorization_endpoint)
        if "S256" not in (server.code_challenge_methods_supported or ()):
            raise AuthorizationFailed(
                f"{server.issuer} does not announce support for PKCE with S256; logging in there "
                "would not be safe"
            )
        if OFFLINE in (server.scopes_supported or ()) and OFFLINE not in scopes:
            scopes = (*scopes, OFFLINE)
        state = clock.token(32)
        kept = await self._registered(place)
        async with Loopback(state, self._ports(kept)) as loopback:
            identity = await self._identify(web, place, kept, loopback.redirect_uri, scopes, key)
            request = _AuthorizationRequest(
                identity, loopback.redirect_uri, scopes, state, new_verifier()
            )
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
        """Refresh a token without involving the user.

        Args:
            web: Fetches documents for this server.
            place: The authorization server and the resource.
            token: The old token.
            key: The key that the token is bound to, if any.
        """
        assert token.refresh_token is not None
        identity = self._given or self._published(place) or token.client
        form = {"grant_type": "refresh_token", "refresh_token": token.refresh_token}
        renewed = await request_token(web, place, identity, form, token.requested, key)
        return replace(renewed, client=token.client)

    # The identity of this client

    def _published(self, place: AuthServer) -> ClientIdentity | None:
        if self._client_metadata_url and place.server.client_id_metadata_document_supported:
            return ClientIdentity(self._client_metadata_url)
        return None

    async def _registered(self, place: AuthServer) -> Registration | None:
        """Return the stored registration at an issuer, if it is needed and still valid."""
        if self._given is not None or self._published(place) is not None:
            return None
        record = await self._storage.load(Key(place.server.issuer, ""))
        try:
            kept = None if record is None else msgspec.convert(record, Registration)
        except msgspec.ValidationError:
            return None
        return None if kept is None or kept.over else kept

    def _ports(self, kept: Registration | None) -> list[int]:
        """Return the ports to try for the redirect, beginning with the registered one."""
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
    ) -> ClientIdentity:
        """Identify the client: by a given id, by a metadata document, or by registering it."""
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

    # The browser, and its redirect

    async def _visit(
        self, place: AuthServer, request: "_AuthorizationRequest", loopback: Loopback
    ) -> Arrival:
        """Open the browser and wait for its redirect."""
        logger.info("logging in at %s", place.server.issuer)
        browsing = asyncio.get_running_loop().create_task(self._browse(request.url(place)))
        self._browsing.add(browsing)
        browsing.add_done_callback(self._browsing.discard)
        browsing.add_done_callback(lambda done: _could_not_open(done, loopback))
        try:
            async with asyncio.timeout(self._timeout):
                return await loopback.arrival()
        except TimeoutError:
            # The page may have shown an error because the registration is no longer known.
            await self._storage.delete(Key(place.server.issuer, ""))
            raise AuthorizationFailed(
                f"the user did not log in at {place.server.issuer} within {self._timeout:g} s; "
                "raise `OAuth(timeout=…)` if that is too short"
            ) from None

    async def _browse(self, url: str) -> None:
        opened = await asyncio.to_thread(self._open_browser, url)
        if inspect.isawaitable(opened):
            await opened

    async def _redeem(
        self,
        web: Web,
        place: AuthServer,
        request: "_AuthorizationRequest",
        arrival: Arrival,
        key: ProofKey | None,
    ) -> Token:
        """Check a redirect and exchange its code for a token."""
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


class _AuthorizationRequest(NamedTuple):
    """One authorization request, recorded before the browser opens."""

    identity: ClientIdentity
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
            query["prompt"] = "consent"  # OpenID Connect issues no refresh token without it
        endpoint = inert(place.server.authorization_endpoint or "")
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(query)}"


def _code(place: AuthServer, parameters: dict[str, str]) -> str:
    """Return the code of a redirect after checking its issuer (RFC 9207, section 2.4)."""
    server, iss = place.server, parameters.get("iss")
    if iss is None and server.authorization_response_iss_parameter_supported:
        logger.warning("refused a redirect without `iss`, which %s announces", server.issuer)
        raise AuthorizationFailed(
            f"the answer does not name its issuer, although {server.issuer} announces that it does"
        )
    if iss is not None and iss != server.issuer:
        logger.warning("refused a redirect of another issuer than %s", server.issuer)
        raise AuthorizationFailed(f"the answer comes from another issuer than {server.issuer}")
    if "error" in parameters:
        said = plain(parameters.get("error_description", ""))
        why = plain(parameters["error"]) + (f" ({said})" if said else "")
        raise AuthorizationFailed(f"the login at {server.issuer} failed: {why}")
    code = parameters.get("code", "")
    if not code:
        raise AuthorizationFailed(f"{server.issuer} redirected the browser without a code")
    return code


def _could_not_open(browsing: asyncio.Task[None], loopback: Loopback) -> None:
    error = None if browsing.cancelled() else browsing.exception()
    if error is not None:
        loopback.give_up(f"the browser could not be opened: {error}")


def new_verifier() -> str:
    """Return a new secret for one PKCE exchange."""
    return clock.token(64)


async def open_on_terminal(url: str) -> None:
    """Print the URL and open it in the system's browser."""
    print(f"To log in, visit:\n\n    {url}\n", file=sys.stderr, flush=True)
    if not await asyncio.to_thread(webbrowser.open, url):
        print("No browser could be opened; visit the URL yourself.", file=sys.stderr)


def _check_metadata_url(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme != "https" or not parts.hostname or parts.path in ("", "/"):
        raise ValueError(f"`client_metadata_url` must be an https:// URL with a path, not {url!r}")
