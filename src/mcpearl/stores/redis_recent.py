"""Recent messages of a bus, for a process that loads a session after they were published.

The newest position of each content (topic and message) is kept in memory as messages are heard. Messages
published before the process began to read are read from the store once, when they are first needed. After
a gap, only what follows the next message is known.
"""

from collections import OrderedDict
from collections.abc import Container
from operator import itemgetter
from typing import Any

from mcpearl.runtime import clock
from mcpearl.stores.bus import Stored
from mcpearl.stores.redis_link import RedisLink

MOST = 10_000  # contents that are remembered
REACH = 3000.0  # most seconds to look back; streams remember announcements for longer
LOST = ""
"""The topic of a message that stands for messages that were lost before they could be published."""

_Content = tuple[str, bytes]  # topic and message


class Recent:
    """The newest messages of some topics.

    Args:
        link: The connection.
        key: The key of the stream of the bus.
        topics: The topics whose messages are remembered.
    """

    def __init__(self, link: RedisLink, key: str, topics: Container[str]) -> None:
        self._link = link
        self._key = key
        self._topics = topics
        self._found: OrderedDict[_Content, str] = OrderedDict()  # positions, the newest last
        # All messages after this position are known; None before the store was asked.
        self._known_from: str | None = None
        self._has_gap = False  # messages were lost, and none was heard since

    def heard(self, topic: str, message: bytes, position: str) -> None:
        """Note a message."""
        if self._has_gap:
            self._has_gap, self._known_from = False, position
        content = (topic, message)
        self._found[content] = position
        self._found.move_to_end(content)
        if len(self._found) > MOST:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        _, oldest = self._found.popitem(last=False)
        self._known_from = max(self._known_from or "", oldest)

    def begin(self) -> None:
        """Note that messages are heard from now on; those published until now are in the store."""
        self._known_from = None

    def missed(self) -> None:
        """Note that messages were lost: of those until the next one, nothing is known."""
        self._has_gap = True

    def lost(self, position: str) -> None:
        """Note that messages were never published; all that follow a position are known."""
        self._has_gap = False
        self._known_from = max(self._known_from or "", position)

    async def since(self, time: float) -> list[tuple[str, Stored]] | None:
        """Return the contents published since a time, or None if that is not known."""
        if self._known_from is None and not self._has_gap:
            await self._look_back()
        after = at_time(max(time, clock.now() - REACH))
        if self._has_gap or after < (self._known_from or ""):
            return None
        found = []
        for (topic, message), position in reversed(self._found.items()):
            if position < after:
                break
            found.append((topic, Stored(message, position, False)))
        return found[::-1]

    async def _look_back(self) -> None:
        """Read what was published before this process began to read."""
        reply = await self._link.send("XREVRANGE", self._key, "+", "-", "COUNT", MOST)
        entries: list[Any] = reply or []
        found, known_from = dict(self._found), ""
        for id, fields in entries:
            entry = fields if isinstance(fields, dict) else pairs(fields)
            topic, message = entry.get(b"t"), entry.get(b"m")
            name = (topic or b"").decode(errors="replace")
            if topic == LOST.encode():
                known_from = max(known_from, position_of(id))
            elif name in self._topics and message is not None:
                content = (name, message)
                found[content] = max(found.get(content, ""), position_of(id))
        if len(entries) == MOST:
            known_from = max(known_from, position_of(entries[-1][0]))
        self._known_from = max(self._known_from or "", known_from)
        self._found = OrderedDict(sorted(found.items(), key=itemgetter(1)))
        while len(self._found) > MOST:
            self._forget_oldest()


def pairs(fields: list[bytes] | None) -> dict[bytes, bytes]:
    """Return the fields of an entry by name."""
    given = fields or []
    return dict(zip(given[::2], given[1::2], strict=False))


def position_of(id: bytes) -> str:
    """Return the id of an entry as text that sorts in the order of the entries."""
    time, _, number = id.decode().partition("-")
    return f"{int(time):015d}-{int(number or 0):010d}"


def at_time(time: float) -> str:
    """Return the lowest position at a time."""
    return f"{max(0, int(time * 1000)):015d}-"
