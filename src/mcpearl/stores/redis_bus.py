"""The bus on Redis streams: when the connection is cut, messages arrive late but are not lost.

Every process reads one stream with messages for all, and one with messages for itself. A message that
could not be added is added when the server is back. If a process was away for so long that the stream was
trimmed past its position, its subscribers are told that messages were lost, as on every bus.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping

from mcpearl.runtime import clock
from mcpearl.stores.bus import Stored
from mcpearl.stores.errors import StoreUnavailable
from mcpearl.stores.redis_link import Argument, RedisLink
from mcpearl.stores.redis_members import RedisMembers
from mcpearl.stores.redis_recent import LOST, Recent, position_of
from mcpearl.stores.redis_script import Script
from mcpearl.stores.redis_tail import BEGINNING, KEPT, Tail
from mcpearl.stores.topics import Hear, Topics, Unsubscribe, check_message

logger = logging.getLogger("mcpearl.stores")

KEPT_FOR = 3600  # seconds a stream is kept after its last message
MAX_UNSENT = 10_000  # messages that wait for the server to be back
_LAST_WRITES = 5.0  # seconds to send waiting messages at the end

_ADD = Script(
    """
local added = redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[1], '*',
    'w', ARGV[3], 't', ARGV[4], 'm', ARGV[5])
keep(KEYS[1], tonumber(ARGV[2]))
return added
"""
)
_PASS = Script(
    """
if not redis.call('ZSCORE', KEYS[2], ARGV[6]) then
    local patient = tonumber(redis.call('HGET', KEYS[3], 'patient') or 0)
    return time_of('') < patient and -1 or 0
end
redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[1], '*', 'w', ARGV[3], 't', ARGV[4], 'm', ARGV[5])
keep(KEYS[1], tonumber(ARGV[2]))
return 1
"""
)
Unsent = tuple[str, bytes]


class RedisBus:
    """A `Bus` over Redis or Valkey.

    Args:
        link: The connection.
        members: Knows the number of this process in the deployment.
    """

    def __init__(self, link: RedisLink, members: RedisMembers) -> None:
        self._link = link
        self._writer = ""  # marks the messages of this process; new with each start
        self._topics = Topics()  # for messages to all
        self._own_topics = Topics()  # for messages to this process
        self._followers: dict[str, list[Callable[[Stored], None]]] = {}  # by topic
        self.key = link.key("bus")
        """The key of the stream of messages to all."""
        self._recent = Recent(link, self.key, self._followers)
        self._tail: Tail | None = None
        self._members = members
        self._inbox = ""
        # How far the stream for all, and the inbox, were read before the bus was restarted.
        self._read: bytes | None = None
        self._inbox_read = BEGINNING
        self._unsent: deque[Unsent] = deque()
        self._sending: asyncio.Task[None] | None = None

    @property
    def number(self) -> int:
        """The number of this process in the deployment."""
        return self._members.number

    def inbox_of(self, number: int) -> str:
        """Return the key of the stream of messages to one process."""
        return self._members.inbox_of(number)

    def publish(self, topic: str, message: bytes) -> None:
        """Add a message to the stream; it waits while the server is away, or the bus is restarted."""
        check_message(topic, message)
        if not self._inbox:
            return  # the bus was never started: other processes do not know this one
        if len(self._unsent) >= MAX_UNSENT:
            logger.warning("%d messages wait for the store; the others resynchronize", MAX_UNSENT)
            self._unsent.clear()
            self._unsent.append((LOST, b""))
        self._unsent.append((topic, message))
        self._send()

    def _send(self) -> None:
        if self._tail is not None and self._unsent and self._sending is None:
            self._sending = asyncio.get_running_loop().create_task(self._send_all())

    async def _send_all(self) -> None:
        try:
            while self._unsent:
                batch = list(self._unsent)
                adding = [self._add(self.key, topic, message) for topic, message in batch]
                added = await asyncio.gather(*adding, return_exceptions=True)
                for unsent, sent in zip(batch, added, strict=True):
                    if isinstance(sent, BaseException):
                        await self._link.until_usable()
                        break  # what follows it is sent again, too: order matters, repetition does not
                    if self._unsent and self._unsent[0] is unsent:  # else `publish` gave it up
                        self._unsent.popleft()
        finally:
            self._sending = None

    def _add(self, key: str, topic: str, message: bytes) -> "asyncio.Future[bytes]":
        return self._link.run(_ADD, [key], self.entry(topic, message))

    def entry(self, topic: str, message: bytes) -> tuple[Argument, ...]:
        """Return the script arguments that add a message: bounds, writer, topic and message."""
        return (KEPT, KEPT_FOR, self._writer, topic, message)

    async def spread(self, topic: str, message: bytes) -> None:
        """Send a message to all other processes; once this returns, the message will reach them.

        Raises:
            StoreUnavailable: It could not be stored.
        """
        check_message(topic, message)
        await self._add(self.key, topic, message)

    async def pass_to(self, number: int, topic: str, message: bytes) -> None:
        """Send a message to one process; once this returns, it will arrive if the process is alive.

        Raises:
            StoreUnavailable: It could not be stored.
        """
        keys = [self.inbox_of(number), *self._members.known_by]
        passed = await self._link.run(_PASS, keys, (*self.entry(topic, message), number))
        if passed < 0:
            raise StoreUnavailable(f"process {number} has not reported since the store came back")

    def subscribe(
        self, topic: str, hear: Hear, missed: Callable[[], None] | None = None
    ) -> Unsubscribe:
        """Subscribe to a topic; see `Bus.subscribe`."""
        return self._topics.subscribe(topic, hear, missed)

    def follow(
        self, topic: str, hear: Callable[[Stored], None], missed: Callable[[], None]
    ) -> Unsubscribe:
        """Subscribe to the stored messages of a topic, this process's own included."""
        followers = self._followers.setdefault(topic, [])
        followers.append(hear)
        stop = self._topics.subscribe(topic, lambda _: None, missed)

        def unfollow() -> None:
            followers.remove(hear)
            if not followers:
                self._followers.pop(topic, None)
            stop()

        return unfollow

    async def since(self, time: float) -> list[tuple[str, Stored]] | None:
        """Return what was published since a time; None if that is no longer known."""
        return await self._recent.since(time)

    def receive(self, topic: str, hear: Hear) -> Unsubscribe:
        """Subscribe to messages sent to this process alone."""
        return self._own_topics.subscribe(topic, hear, None)

    async def start(self) -> None:
        """Join. Raises `StoreUnavailable` for a server that cannot be used."""
        # Nothing that this process does is seen by others before they know it: a question, for
        # example, whose answer has to find it.
        self._link.introduce(self._members.introduction)
        await self._link.start()
        self._writer = clock.token(9)
        inbox = self.inbox_of(self.number)
        if inbox != self._inbox:
            self._inbox, self._inbox_read, self._read = inbox, BEGINNING, None
        self._recent = Recent(self._link, self.key, self._followers)
        tail = self._tail = Tail(self._link, self.key, self._heard, self._missed, self._read)
        tail.also(inbox, self._received, self._own_topics.missed, self._inbox_read)
        await tail.start()
        self._send()

    async def ended(self) -> None:
        """Wait forever: the bus does not fail when the server is away, but continues when it is back."""
        await asyncio.Event().wait()

    def _missed(self) -> None:
        if self._tail is not None and self._tail.position(self.key) is None:
            self._recent.begin()
        else:
            self._recent.missed()
        self._topics.missed()

    def _heard(self, entry: Mapping[bytes, bytes], id: bytes) -> None:
        own = entry.get(b"w") == self._writer.encode()
        topic = entry.get(b"t", b"").decode(errors="replace")
        if topic == LOST and b"t" in entry:
            # Sessions of this process hear of its own messages by the bus, too.
            self._recent.lost(position_of(id))
            self._topics.missed()
        elif topic in self._followers and b"m" in entry:
            stored = Stored(entry[b"m"], position_of(id), own)
            self._recent.heard(topic, stored.message, stored.position)
            for hear in list(self._followers[topic]):
                hear(stored)
        elif not own:
            self._hand_over(self._topics, entry)

    def _received(self, entry: Mapping[bytes, bytes], _id: bytes) -> None:
        self._hand_over(self._own_topics, entry)

    def _hand_over(self, topics: Topics, entry: Mapping[bytes, bytes]) -> None:
        topic, message = entry.get(b"t"), entry.get(b"m")
        if topic is None or message is None:
            logger.warning("the store has something in a stream of messages that is not one")
        else:
            topics.deliver(topic.decode(errors="replace"), message)

    async def close(self) -> None:
        """Send waiting messages if the server can be reached, and stop reading.

        The inbox, what was not sent, and how far all was read stay: a bus that is restarted continues
        where this one stopped. The inbox is deleted when the process leaves the others.
        """
        tail, self._tail = self._tail, None
        if tail is None:
            return
        sending = self._sending
        if sending is not None:
            if self._link.is_up:
                await asyncio.wait([sending], timeout=_LAST_WRITES)
            sending.cancel()
            await asyncio.wait([sending])
        await tail.close()
        self._read = tail.position(self.key)
        self._inbox_read = tail.position(self._inbox) or BEGINNING
        self._link.introduce(None)
        await self._link.close()
