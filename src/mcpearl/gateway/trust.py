"""Configurations by authors who may neither start programs here nor reach private addresses."""

from collections.abc import Awaitable, Callable

from mcpearl.auth.fetch import FetchError, FetchPolicy, FetchRefused, allowed_addresses, check_url
from mcpearl.client.entries import ServerEntry
from mcpearl.protocol.errors import ConnectionLost

_PUBLIC = FetchPolicy()


def objection_to(entry: ServerEntry) -> str | None:
    """Return why an entry of such a configuration is not used; None if it may be."""
    if entry.url is None:
        return "it starts a program, which a configuration that is not trusted may not"
    try:
        check_url(entry.url, _PUBLIC)
    except FetchRefused as error:
        return str(error)
    return None


def guard_of(entry: ServerEntry) -> Callable[[], Awaitable[list[str]]]:
    """Return what looks up the server's host: every address it has must be a public one."""
    url = entry.url or ""

    async def guard() -> list[str]:
        try:
            return await allowed_addresses(url, _PUBLIC)
        except FetchError as error:
            raise ConnectionLost(str(error)) from None

    return guard
