"""Recent messages of a bus, for a process that loads a session after they were published.

The newest position of each content (topic and message) is kept in memory as messages are heard. Messages
published before the process joined are read from the store once, when they are first needed.
"""

from collections import OrderedDict
from collections.abc import Container

from mcpearl.runtime import clock
from mcpearl.stores.bus import Stored
from mcpearl.stores.redis_link import RedisLink

MOST = 10_000  # contents that are remembered
REACH = 3000.0  # most seconds to look back; streams remember announcements for longer

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
        self._known_from: str | None = None  # all messages after this position are known
        self._from_start = True  # no message was missed since this process joined

    def heard(self, topic: str, message: bytes, position: str) -> None:
        """Note a message."""
        content = (topic, message)
        self._found[content] = position
        self._found.move_to_end(content)
        if len(self._found) > MOST:
            _, oldest = self._found.popitem(last=False)
            self._known_from = max(self._known_from or "", oldest)

    def missed(self) -> None:
        """Note that messages were lost: only what follows is known."""
        self._from_start = False
        newest = next(reversed(self._found.values()), "")
        self._known_from = max(self._known_from or "", newest)

    async def since(self, time: float) -> list[tuple[str, Stored]] | None:
        """Return the contents published since a time, or None if that is no longer known."""
        if self._known_from is None and self._from_start:
            await self._look_back()
        after = at_time(max(time, clock.now() - REACH))
        if after < (self._known_from or ""):
            return None
        found = []
        for (topic, message), position in reversed(self._found.items()):
            if position < after:
                break
            found.append((topic, Stored(message, position, False)))
        return found[::-1]

    async def _look_back(self) -> None:
        """Read what was published before this process joined."""
        entries = await self._link.send("XREVRANGE", self._key, "+", "-", "COUNT", MOST)
        heard, self._found = self._found, OrderedDict()
        known_from = ""
        for id, fields in reversed(entries or ()):
            entry = fields if isinstance(fields, dict) else pairs(fields)
            topic, message = entry.get(b"t"), entry.get(b"m")
            name = (topic or b"").decode(errors="replace")
            if name in self._topics and message is not None:
                self.heard(name, message, position_of(id))
        if len(entries or ()) == MOST:
            known_from = position_of(entries[-1][0])
        for (topic_heard, message_heard), position in heard.items():  # since the process joined
            self.heard(topic_heard, message_heard, position)
        self._known_from = max(self._known_from or "", known_from)


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
