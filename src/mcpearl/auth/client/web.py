"""Fetches what a client needs to get a token, trusting a URL according to where it comes from.

URLs that this side configured (the server's, an issuer in the settings) may be private. URLs found in
documents may not, unless allowed, and may be on loopback only if the server is.
"""

import logging
import re
import ssl
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from ipaddress import ip_address
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

from mcpearl.auth.fetch import Fetched, FetchError, FetchPolicy, fetch_json, is_loopback
from mcpearl.net.http_client.exchange import Header
from mcpearl.net.http_client.urls import origin_of
from mcpearl.net.tls import Tls, client_context, trusting_context
from mcpearl.protocol.errors import AuthorizationFailed

logger = logging.getLogger("mcpearl.auth")

_HTTP1 = ["http/1.1"]
_RESERVED = ":/?#[]@!$&'()*+,;="
_URL = re.compile(rf"[A-Za-z0-9\-._~%{re.escape(_RESERVED)}]+")  # RFC 3986
_OF_SHELLS = "$'()"  # legal in a URL, but special on a command line
MAX_TIME = 15.0  # seconds for one exchange with an authorization server


class Reach(NamedTuple):
    """How a client reaches its server, and with it the authorization servers."""

    tls: ssl.SSLContext | None = None
    """TLS context for the server itself; None for the system's trust."""
    trust: ssl.SSLContext | None = None
    """TLS context for other servers, without the client's certificate."""
    proxy: str | None = None
    """The `http://` URL of a proxy; None for the one set in the environment."""

    @classmethod
    def by(cls, tls: Tls | ssl.SSLContext | None, proxy: str | None) -> "Reach":
        """Return the `Reach` of a client with these options."""
        if tls is None:
            return cls(proxy=proxy)
        return cls(client_context(tls, _HTTP1), trusting_context(tls, _HTTP1), proxy)


class Web:
    """Fetches documents for one server and its authorization servers."""

    def __init__(
        self,
        url: str,
        *,
        trusted: Iterable[str] = (),
        allow_private: bool = False,
        reach: Reach,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._server = origin_of(urlsplit(url))
        self._ours = {self._server, *(origin_of(urlsplit(each)) for each in trusted)}
        self._own_tls = reach.tls
        self._our_policy = FetchPolicy(
            allow_loopback=True,
            allow_private=True,
            timeout=MAX_TIME,
            tls=tls or reach.trust,
            proxy=reach.proxy,
        )
        self._theirs = replace(
            self._our_policy, allow_loopback=is_loopback(url), allow_private=allow_private
        )

    async def document(self, url: str) -> dict[str, Any] | None:
        """Fetch metadata. Return None if there is none at this URL."""
        fetched = await self.fetch(url)
        if 400 <= fetched.status < 500:
            return None
        if fetched.status != 200:
            raise AuthorizationFailed(f"{bare(url)} answered with HTTP status {fetched.status}")
        if not isinstance(fetched.body, dict):
            return None  # an HTML page, as catch-all routes return
        return fetched.body

    async def fetch(
        self,
        url: str,
        *,
        method: str = "GET",
        form: Mapping[str, str] | None = None,
        json: Any = None,
        headers: Sequence[Header] = (),
    ) -> Fetched:
        """Send a request, if the policy for the URL allows it. Raises `AuthorizationFailed`."""
        try:
            return await fetch_json(
                url, method=method, form=form, json=json, headers=headers, policy=self._policy(url)
            )
        except FetchError as error:
            logger.warning("not fetched: %s", error)
            raise AuthorizationFailed(str(error)) from None

    def _policy(self, url: str) -> FetchPolicy:
        try:
            origin = origin_of(urlsplit(url))
        except ValueError:
            return self._theirs  # which will refuse it
        if origin == self._server:
            return replace(self._our_policy, tls=self._own_tls)
        return self._our_policy if origin in self._ours else self._theirs

    def check_page(self, url: str) -> None:
        """Raise `AuthorizationFailed` for a URL that must not be opened in the browser."""
        if not self._may_be_shown(url):
            logger.warning("the authorization endpoint %r is not opened", bare(url))
            raise AuthorizationFailed(
                f"the authorization endpoint {bare(url)!r} is not opened in the browser: "
                "it has to be a public https:// URL without characters that URLs cannot contain"
            )

    def _may_be_shown(self, url: str) -> bool:
        if not _URL.fullmatch(url):
            return False  # it is shown on a terminal and handed to programs
        try:
            parts = urlsplit(url)
            if origin_of(parts) in self._ours and parts.scheme in ("http", "https"):
                return not parts.fragment and parts.username is None
            host = parts.hostname or ""
        except ValueError:
            return False
        if not host or parts.fragment or parts.username is not None:
            return False
        if is_loopback(url):
            return self._theirs.allow_loopback and parts.scheme in ("http", "https")
        return parts.scheme == "https" and (self._theirs.allow_private or not _is_private(host))


def _is_private(host: str) -> bool:
    try:
        return not ip_address(host).is_global
    except ValueError:
        return False  # a name: resolved by the browser, which isolates pages by origin


def inert(url: str) -> str:
    """Return a URL that a command line takes as one word, however it is quoted."""
    return quote(url, safe="%" + "".join(set(_RESERVED) - set(_OF_SHELLS)))


def bare(url: str) -> str:
    """Return a URL without the parts that may be secret: login, query and fragment."""
    try:
        parts = urlsplit(url)
        return f"{origin_of(parts)}{parts.path}"[:2048]
    except ValueError:
        return "an invalid URL"
