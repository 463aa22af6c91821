"""Fetches small JSON documents from URLs that others may have written.

All URLs of authorization (keys, metadata, introspection, tokens) are fetched here and nowhere else, so
that they cannot direct this process to internal services: HTTPS except on loopback, no private addresses
unless allowed, no redirects to another origin, and bounds on size and time.
"""

import asyncio
import functools
import socket
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Any
from urllib.parse import SplitResult, urlencode, urljoin, urlsplit

import msgspec

from mcpearl._version import __version__
from mcpearl.net.http_client.dial import tls_context
from mcpearl.net.http_client.exchange import ExchangeFailed, Header, HttpExchange
from mcpearl.net.http_client.pool import ConnectionPool
from mcpearl.net.http_client.urls import origin_of, target_of
from mcpearl.protocol.codec import UNREADABLE
from mcpearl.protocol.errors import McpearlError

_REDIRECTS = (301, 302, 303, 307, 308)
_MAX_REDIRECTS = 3
_RELAYS = IPv4Network("192.88.99.0/24")  # 6to4 relays, out of use (RFC 7526)
_NAT64 = IPv6Network("64:ff9b::/96")  # IPv6 addresses that contain an IPv4 address


class FetchError(McpearlError):
    """Nothing was fetched. The message says from where and why, without query or secrets."""


class FetchRefused(FetchError):
    """The policy does not allow the URL; nothing was sent."""


class FetchFailed(FetchError):
    """The server could not be reached, took too long, or sent too much."""


@dataclass(frozen=True)
class FetchPolicy:
    """Where documents may be fetched from, and within which bounds.

    Args:
        allow_loopback: Allow addresses of this machine, also without TLS.
        allow_private: Allow addresses of private networks, with TLS. Link-local ones are never allowed.
        max_bytes: Bytes of the largest document.
        timeout: Seconds for the whole fetch, including redirects.
        tls: The TLS context, if the system's trusted roots do not apply.
        proxy: The `http://` URL of a proxy; None for the one set in the environment.
    """

    allow_loopback: bool = False
    allow_private: bool = False
    max_bytes: int = 256 * 1024
    timeout: float = 10.0
    tls: ssl.SSLContext | None = None
    proxy: str | None = None

    def towards(self, url: str, base: str) -> "FetchPolicy":
        """Return the policy for a URL found in the document at `base`.

        Another origin must not be able to point at private addresses, even if `base` may be private.

        Args:
            url: The URL that was found.
            base: The URL of the document.
        """
        if _origin(url) == _origin(base):
            return self
        return replace(self, allow_private=False, allow_loopback=is_loopback(base))


@dataclass(frozen=True)
class Fetched:
    """A response, of any status."""

    status: int
    headers: Mapping[str, str]
    """By name in lower case; of a repeated header, the first value."""
    body: Any
    """The decoded JSON; None if the body is empty or not JSON."""


async def fetch_json(
    url: str,
    *,
    method: str = "GET",
    form: Mapping[str, str] | Sequence[tuple[str, str]] | None = None,
    json: Any = None,
    headers: Sequence[Header] = (),
    policy: FetchPolicy,
) -> Fetched:
    """Send a request, optionally with a form or JSON body, and read the JSON response.

    Args:
        url: The URL, which `policy` must allow.
        method: The HTTP method.
        form: Fields to send as a form.
        json: A value to send as JSON, if there is no form.
        headers: Additional headers.
        policy: Where to fetch from, and within which bounds.

    Raises `FetchRefused` if the policy forbids it, `FetchFailed` if the server does not answer.

    >>> keys = await fetch_json("https://login.example.com/keys", policy=FetchPolicy())
    """
    sent: list[Header] = [
        ("Accept", "application/json"),
        ("User-Agent", f"mcpearl/{__version__}"),
        *headers,
    ]
    body = b""
    if form is not None:
        body = urlencode(form).encode()
        sent.append(("Content-Type", "application/x-www-form-urlencoded"))
    elif json is not None:
        body = msgspec.json.encode(json)
        sent.append(("Content-Type", "application/json"))
    try:
        async with asyncio.timeout(policy.timeout):
            return await _fetch(url, method, sent, body, policy)
    except TimeoutError:
        raise FetchFailed(f"{_shown(url)} did not answer within {policy.timeout:g} s") from None
    except ExchangeFailed as error:
        raise FetchFailed(f"{_shown(url)}: {error.reason}") from None


async def _fetch(
    url: str, method: str, headers: list[Header], body: bytes, policy: FetchPolicy
) -> Fetched:
    parts = _checked(url, policy)
    tls = (policy.tls or _system_tls()) if parts.scheme == "https" else None
    addresses: list[str] | None = None
    for _ in range(_MAX_REDIRECTS + 1):
        wire = ConnectionPool(url, tls=tls, proxy=policy.proxy, connect_timeout=policy.timeout)
        try:
            if wire.proxied:  # the proxy resolves names, and decides what is allowed
                _check_number(parts, policy)
            else:
                addresses = addresses or await _resolve(parts, policy)
                wire.pin(addresses)
            connection = await wire.acquire()
            try:
                connection.send(method, target_of(urlsplit(url)), headers, body)
                await connection.answered()
                elsewhere = _redirected(url, method, connection)
                if elsewhere is None:
                    return await _read(url, connection, policy.max_bytes)
            finally:
                connection.release()
        finally:
            wire.close()
        url = elsewhere
        _checked(url, policy)
    raise FetchRefused(f"{_shown(url)} redirects more than {_MAX_REDIRECTS} times")


async def _read(url: str, connection: HttpExchange, limit: int) -> Fetched:
    data = bytearray()
    while chunk := await connection.chunk():
        data += chunk
        if len(data) > limit:
            raise FetchFailed(f"{_shown(url)} sent more than the {limit} bytes allowed")
    try:
        body = msgspec.json.decode(bytes(data)) if data else None
    except UNREADABLE:
        body = None
    return Fetched(connection.status, connection.headers, body)


def _redirected(url: str, method: str, connection: HttpExchange) -> str | None:
    """Return where a response redirects to. Only GETs are followed, within their origin."""
    location = connection.headers.get("location")
    if connection.status not in _REDIRECTS or location is None:
        return None
    if method != "GET":
        raise FetchRefused(f"{_shown(url)} redirects a {method}, which is not followed")
    try:
        elsewhere = urljoin(url, location)
    except ValueError:
        raise FetchRefused(f"{_shown(url)} redirects to an invalid URL") from None
    if _origin(elsewhere) != _origin(url):
        raise FetchRefused(f"{_shown(url)} redirects to another origin, {_shown(elsewhere)}")
    return elsewhere


# Which URLs are allowed


def check_url(url: str, policy: FetchPolicy) -> None:
    """Refuse a URL by its text, before its host is resolved; raises `FetchRefused`."""
    _check_number(_checked(url, policy), policy)


async def allowed_addresses(url: str, policy: FetchPolicy) -> list[str]:
    """Resolve a host and return its addresses; raises `FetchError` if one of them is not allowed."""
    check_url(url, policy)
    return await _resolve(urlsplit(url), policy)


def is_loopback(url: str) -> bool:
    """Return whether a URL names this machine, without resolving it."""
    host = urlsplit(url).hostname or ""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return _unwrapped(ip_address(host)).is_loopback
    except ValueError:
        return False


def _checked(url: str, policy: FetchPolicy) -> SplitResult:
    """Refuse a URL by its text, before its host is resolved."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise FetchRefused(f"not a valid URL: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise FetchRefused(f"{_shown(url)} is not an https:// URL")
    if parts.username is not None or parts.password is not None:
        raise FetchRefused(f"{_shown(url)} contains credentials, which are not sent")
    if any(character <= " " or character == "\x7f" for character in url):
        raise FetchRefused(f"{_shown(url)} contains a blank or control character")
    loopback = is_loopback(url)
    if loopback and not policy.allow_loopback:
        raise FetchRefused(f"{_shown(url)} is on this machine, which is not allowed here")
    if parts.scheme == "http" and not loopback:
        raise FetchRefused(f"{_shown(url)} has no TLS; only https:// URLs are fetched")
    return parts


def _check_number(parts: SplitResult, policy: FetchPolicy) -> None:
    """Refuse a host that is an IP address which the policy does not allow."""
    host = parts.hostname or ""
    try:
        ip_address(host)
    except ValueError:
        return
    _check_addresses(host, [host], parts, policy)


async def _resolve(parts: SplitResult, policy: FetchPolicy) -> list[str]:
    """Resolve a host and check its addresses. Only these addresses are connected to."""
    host, port = parts.hostname or "", parts.port or 443
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise FetchFailed(f"{host!r:.128} cannot be resolved: {error}") from None
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    _check_addresses(host, addresses, parts, policy)
    return addresses


def _check_addresses(
    host: str, addresses: list[str], parts: SplitResult, policy: FetchPolicy
) -> None:
    named_loopback = is_loopback(parts.geturl())
    for address in addresses:
        reason = _objection(address, policy, named_loopback)
        if reason is not None:
            raise FetchRefused(f"{host!r:.128} is {reason}, which is not allowed here")


def _objection(address: str, policy: FetchPolicy, named_loopback: bool) -> str | None:
    """Return what is wrong with an address, or None if it is allowed."""
    ip = _unwrapped(ip_address(address.partition("%")[0]))
    if ip.is_loopback:
        # A public name that resolves to loopback is an attack, even where loopback is allowed.
        allowed = policy.allow_loopback and (named_loopback or policy.allow_private)
        return None if allowed else "an address of this machine"
    if ip.is_unspecified or ip.is_link_local or ip.is_multicast or ip.is_reserved:
        return "not the address of a host"
    if ip in _RELAYS or (isinstance(ip, IPv6Address) and ip.is_site_local):
        return "an address out of use"
    if not ip.is_global and not policy.allow_private:
        return "a private address"
    return None


def _unwrapped(ip: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """Return the IPv4 address that an IPv6 address contains, or the address itself."""
    if isinstance(ip, IPv4Address):
        return ip
    if ip in _NAT64:
        return IPv4Address(int(ip) & 0xFFFF_FFFF)
    teredo = ip.teredo
    return ip.ipv4_mapped or ip.sixtofour or (teredo[1] if teredo else None) or ip


def _origin(url: str) -> str | None:
    try:
        return origin_of(urlsplit(url))
    except ValueError:
        return None


def _shown(url: str) -> str:
    """Return a URL without the parts that may be secret."""
    try:
        parts = urlsplit(url)
        return f"{parts.scheme}://{parts.hostname}{parts.path}"[:256]
    except ValueError:
        return "an invalid URL"


@functools.cache
def _system_tls() -> ssl.SSLContext:
    return tls_context(None, http2=False)
