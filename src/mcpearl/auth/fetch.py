"""Fetching small JSON documents from addresses somebody else may have written.

Every address authorization meets (keys, metadata, introspection, tokens) is fetched here and nowhere
else, so that none of them makes this process talk to where it should not: HTTPS except on loopback,
no private addresses unless allowed, no redirect to another origin, and bounds on size and time.
"""

import asyncio
import functools
import socket
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
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
_NAT64 = IPv6Network("64:ff9b::/96")  # an IPv4 address in the clothes of an IPv6 one


class FetchError(McpearlError):
    """Nothing was fetched; the message says from where and why. It holds no query and no secret."""


class FetchRefused(FetchError):
    """The policy does not allow the address; nothing was sent to it."""


class FetchFailed(FetchError):
    """The other side could not be reached, took too long, or sent too much."""


@dataclass(frozen=True)
class FetchPolicy:
    """Where may be fetched from, and how much."""

    allow_loopback: bool = False
    """Addresses of this machine, there also without TLS."""
    allow_private: bool = False
    """Addresses of private networks, with TLS. Link-local ones never are allowed."""
    max_bytes: int = 256 * 1024
    timeout: float = 10.0
    """Seconds for everything, redirects included."""
    tls: ssl.SSLContext | None = None
    """Whom to trust, when that is not what the system trusts."""
    proxy: str | None = None
    """The `http://` address of a proxy; None is what the environment says."""

    def towards(self, url: str, base: str) -> "FetchPolicy":
        """Give the policy for an address found in the document at `base`.

        What may be private because somebody here wrote it may not be so because somebody there did.
        """
        if _origin(url) == _origin(base):
            return self
        return replace(self, allow_private=False, allow_loopback=is_loopback(base))


@dataclass(frozen=True)
class Fetched:
    """An answer, whatever its status."""

    status: int
    headers: Mapping[str, str]
    """By name in lower case; of repeated ones the first."""
    body: Any
    """The decoded JSON; None when the body is empty or no JSON."""


async def fetch_json(
    url: str,
    *,
    method: str = "GET",
    form: Mapping[str, str] | Sequence[tuple[str, str]] | None = None,
    json: Any = None,
    headers: Sequence[Header] = (),
    policy: FetchPolicy,
) -> Fetched:
    """Send one request, with a form or a JSON body if one is given, and read the JSON answer.

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
            if wire.proxied:  # it looks names up, and its owner has the say
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
    """Give where an answer points to. Only a GET is repeated, and only within its origin."""
    location = connection.headers.get("location")
    if connection.status not in _REDIRECTS or location is None:
        return None
    elsewhere = urljoin(url, location)
    if method != "GET":
        raise FetchRefused(f"{_shown(url)} redirects a {method}, which is not followed")
    if _origin(elsewhere) != _origin(url):
        raise FetchRefused(f"{_shown(url)} redirects to another origin, {_shown(elsewhere)}")
    return elsewhere


# What an address may be


def is_loopback(url: str) -> bool:
    """Whether an address names this machine, by its own words."""
    host = urlsplit(url).hostname or ""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return _unwrapped(ip_address(host)).is_loopback
    except ValueError:
        return False


def _checked(url: str, policy: FetchPolicy) -> SplitResult:
    """Refuse an address for what it says, before its name is looked up."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise FetchRefused(f"not an address: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise FetchRefused(f"{_shown(url)} is not an https:// address")
    if parts.username is not None or parts.password is not None:
        raise FetchRefused(f"{_shown(url)} carries a login, which is not sent")
    if any(character <= " " or character == "\x7f" for character in url):
        raise FetchRefused(f"{_shown(url)} has a blank or control character in it")
    loopback = is_loopback(url)
    if loopback and not policy.allow_loopback:
        raise FetchRefused(f"{_shown(url)} is on this machine, which is not allowed here")
    if parts.scheme == "http" and not loopback:
        raise FetchRefused(f"{_shown(url)} has no TLS; only https:// addresses are fetched")
    return parts


def _check_number(parts: SplitResult, policy: FetchPolicy) -> None:
    """Refuse a host that is no name but an address, and one that is not allowed."""
    host = parts.hostname or ""
    try:
        ip_address(host)
    except ValueError:
        return
    _check_addresses(host, [host], parts, policy)


async def _resolve(parts: SplitResult, policy: FetchPolicy) -> list[str]:
    """Look a name up and check what it leads to. These addresses and no others are connected to."""
    host, port = parts.hostname or "", parts.port or 443
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise FetchFailed(f"{host!r:.128} cannot be looked up: {error}") from None
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
    """Say what speaks against an address, if anything does."""
    ip = _unwrapped(ip_address(address.partition("%")[0]))
    if ip.is_loopback:
        # A public name that leads to loopback is somebody's trick, also where loopback is allowed.
        allowed = policy.allow_loopback and (named_loopback or policy.allow_private)
        return None if allowed else "an address of this machine"
    if ip.is_unspecified or ip.is_link_local or ip.is_multicast or ip.is_reserved:
        return "no address of a host"
    if not ip.is_global and not policy.allow_private:
        return "a private address"
    return None


def _unwrapped(ip: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """Give the IPv4 address an IPv6 one leads to."""
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
    """Name an address without what may be secret in it."""
    try:
        parts = urlsplit(url)
        return f"{parts.scheme}://{parts.hostname}{parts.path}"[:256]
    except ValueError:
        return "an address that cannot be read"


@functools.cache
def _system_tls() -> ssl.SSLContext:
    return tls_context(None, http2=False)
