"""The lists of one upstream: read after connecting, and again when the upstream announces a change.

Calls never read a list from the upstream: clients get the list as it was last read.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from mcpearl.gateway.legs import BETWEEN_CHANGES
from mcpearl.host.kept_list import KeptList
from mcpearl.host.member import Member
from mcpearl.host.records import OfferKind
from mcpearl.protocol.errors import ConnectionLost, McpearlError, McpError
from mcpearl.runtime import clock
from mcpearl.types.prompts import Prompt
from mcpearl.types.resources import Resource, ResourceTemplate
from mcpearl.types.tools import Tool

if TYPE_CHECKING:
    from mcpearl.gateway.upstream import Upstream

logger = logging.getLogger("mcpearl.gateway")
LISTED: tuple[OfferKind, ...] = ("tools", "prompts", "resources", "resource_templates")
_LONGEST_PAUSE = 20  # times `BETWEEN_CHANGES`, if an upstream announces changes without having any


class UpstreamLists:
    """What an upstream offers, as it was last read: the catalog of its part.

    Args:
        upstream: The upstream.
        announce: Called with the kinds of lists that clients should read again.
    """

    def __init__(self, upstream: "Upstream", announce: Callable[..., None]) -> None:
        self._upstream = upstream
        self._announce = announce
        self._known: dict[OfferKind, list[Any]] = {}
        self._stale: set[OfferKind] = set()
        self._alarms: set[OfferKind] = set()  # announced by the upstream since they were last read
        self._false_alarms: dict[OfferKind, tuple[int, float]] = {}  # count, time of the last
        self._news = asyncio.Event()
        self._read_once = asyncio.Event()  # set once the first lists were read, or could not be

    def begin(self) -> dict[OfferKind, KeptList]:
        """Prepare for a running event loop; return the lists that the upstream's member keeps."""
        self._news, self._read_once = asyncio.Event(), asyncio.Event()
        limit = self._upstream.settings.max_offers
        return {kind: KeptList(kind, limit, _as_it_is) for kind in LISTED}

    def reconnected(self) -> None:
        """Have all lists read again: there is a new connection."""
        self._stale.update(LISTED)
        self._news.set()

    def down(self) -> None:
        """Announce that what the upstream offers is not available."""
        self._read_once.set()
        self._announce("tools", "prompts", "resources")

    def changed(self, what: str) -> None:
        """Have a list read again that the upstream announced as changed."""
        kinds = _kinds_of(what)
        self._stale.update(kinds)
        self._alarms.update(kinds)
        self._news.set()

    def doubt(self, member: Member, kinds: Iterable[OfferKind]) -> None:
        """Have lists read again, and announce them only if they differ.

        Args:
            member: The upstream's member, which keeps the lists.
            kinds: The lists.
        """
        for kind in kinds:
            member.lists[kind].changed()
        self._stale.update(kinds)
        self._news.set()

    async def first_read(self) -> None:
        """Wait until the first lists were read, or could not be."""
        await self._read_once.wait()

    async def renew(self, member: Member) -> None:
        """Read lists when they change, and announce the changes, until this task is cancelled."""
        self._stale |= set(LISTED)  # an earlier run may have ended in the middle of reading
        self._news.set()
        while True:
            await self._news.wait()
            self._news.clear()
            stale, self._stale = [kind for kind in LISTED if kind in self._stale], set()
            alarms, self._alarms = self._alarms, set()
            if member.status().state != "ready" or not stale:
                continue
            differ = await asyncio.gather(*(self._read(member, kind) for kind in stale))
            self._read_once.set()
            told = [
                kind
                for kind, differs in zip(stale, differ, strict=True)
                if differs or (kind in alarms and self._passes(kind))
            ]
            self._announce(*dict.fromkeys(_announced_as(kind) for kind in told))
            await asyncio.sleep(BETWEEN_CHANGES)

    async def _read(self, member: Member, kind: OfferKind) -> bool:
        """Read a list; return whether it differs from before."""
        try:
            found = await member.listed(kind)
        except Exception as error:
            logger.warning("`%s` does not list its %s: %s", self._upstream.name, kind, error)
            if not isinstance(error, McpearlError):
                logger.debug("the reason", exc_info=error)
            found = [] if isinstance(error, McpError) else self._known.get(kind, [])
        if kind == "tools":
            found = self._upstream.tasks.announced(found)
        if self._known.get(kind) == found:
            return False
        self._known[kind] = found
        if kind == "tools":
            self._upstream.dispatcher.learn_tools(found)
        self._false_alarms.pop(kind, None)
        return True

    def _passes(self, kind: OfferKind) -> bool:
        """Whether an announcement is passed on although the list is the same as before.

        An entry that was added and removed again between two readings is a change too. But an upstream
        that keeps announcing must not make every client read its lists over and over, so the pause grows
        with each such announcement.
        """
        now = clock.monotonic()
        count, last = self._false_alarms.get(kind, (0, now))
        if now - last < BETWEEN_CHANGES * min(count, _LONGEST_PAUSE):
            return False
        self._false_alarms[kind] = count + 1, now
        return True

    async def listed(self, kind: OfferKind) -> list[Any]:
        """Return a list as it was last read.

        Raises:
            ConnectionLost: The upstream is down, or its list was not read within `patience`.
        """
        if not self._read_once.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(self._upstream.settings.patience):
                    await self._read_once.wait()
        status = self._upstream.status
        if status.state != "ready" or kind not in self._known:
            raise ConnectionLost(first_line(status.reason) or "it has not listed anything yet")
        return self._known[kind]

    # As a catalog

    def tools(self) -> Sequence[Tool] | None:
        """Return the tools as last read; None before the first reading."""
        return self._known.get("tools")

    def prompts(self) -> Sequence[Prompt] | None:
        """Return the prompts as last read; None before the first reading."""
        return self._known.get("prompts")

    def resources(self) -> Sequence[Resource] | None:
        """Return the resources as last read; None before the first reading."""
        return self._known.get("resources")

    def templates(self) -> Sequence[ResourceTemplate] | None:
        """Return the resource templates as last read; None before the first reading."""
        return self._known.get("resource_templates")


def first_line(reason: str | None) -> str:
    """Return the part of a reason that clients get: not what a process wrote to stderr."""
    return (reason or "").partition("\n")[0]


def _as_it_is(items: list[Any]) -> list[Any]:
    return items


def _announced_as(kind: OfferKind) -> str:
    return "resources" if kind == "resource_templates" else kind


def _kinds_of(what: str) -> tuple[OfferKind, ...]:
    match what:
        case "tools":
            return ("tools",)
        case "prompts":
            return ("prompts",)
        case "resources":
            return ("resources", "resource_templates")
    return ()
