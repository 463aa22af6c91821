"""Checks for untrusted configurations, which may neither start programs nor reach private addresses."""

from collections.abc import Awaitable, Callable

from mcpearl.auth.fetch import FetchError, FetchPolicy, FetchRefused, allowed_addresses, check_url
from mcpearl.client.entries import ServerEntry
from mcpearl.protocol.errors import ConnectionLost

_PUBLIC = FetchPolicy()


def objection_to(entry: ServerEntry) -> str | None:
    """Return why an entry of an untrusted configuration is not used; None if it may be used."""
    if entry.url is None:
        return "it starts a program, which a configuration that is not trusted may not"
    try:
        check_url(entry.url, _PUBLIC)
    except FetchRefused as error:
        return str(error)
    return None


def guard_of(entry: ServerEntry) -> Callable[[], Awaitable[list[str]]]:
    """Return a function that looks up the server's host and requires all its addresses to be public."""
    url = entry.url or ""

    async def guard() -> list[str]:
        try:
            return await allowed_addresses(url, _PUBLIC)
        except FetchError as error:
            raise ConnectionLost(str(error)) from None

    return guard
