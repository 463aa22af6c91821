"""Redis or Valkey as the store of a whole deployment."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from mcpearl.stores.errors import StoreUnavailable
from mcpearl.stores.redis_address import parse
from mcpearl.stores.redis_bus import RedisBus
from mcpearl.stores.redis_events import RedisEventStore
from mcpearl.stores.redis_keys import agreed_keys
from mcpearl.stores.redis_link import RedisLink
from mcpearl.stores.redis_members import RedisMembers
from mcpearl.stores.redis_names import RedisNames
from mcpearl.stores.redis_proofs import RedisProofStore
from mcpearl.stores.redis_rates import RedisRateStore
from mcpearl.stores.redis_sessions import RedisSessionStore
from mcpearl.stores.redis_state import RedisStateStore
from mcpearl.stores.redis_tasks import RedisTaskStore
from mcpearl.stores.topics import Hear, Unsubscribe


class RedisRelay:
    """Sends messages to other processes through their streams."""

    def __init__(self, bus: RedisBus, members: RedisMembers) -> None:
        self._bus = bus
        self._members = members
        self._receivers: dict[str, list[Hear]] = {}  # of this process, by topic

    @property
    def number(self) -> int:
        """The number of this process."""
        return self._members.number

    async def pass_to(self, number: int, topic: str, message: bytes) -> None:
        """Add a message to the stream of one process."""
        await self._bus.pass_to(number, topic, message)

    async def spread(self, topic: str, message: bytes) -> None:
        """Add a message to the stream that all processes read."""
        await self._bus.spread(topic, message)

    def receive(self, topic: str, hear: Hear) -> Unsubscribe:
        """Subscribe to messages to this process and to messages to all."""
        ends = (self._bus.receive(topic, hear), self._bus.subscribe(topic, hear))
        receivers = self._receivers.setdefault(topic, [])
        receivers.append(hear)

        def stop() -> None:
            receivers.remove(hear)
            for end in ends:
                end()

        return stop

    def beside(self, topic: str, hear: Hear) -> list[Hear]:
        """Return the other receivers of a topic in this process."""
        return [each for each in self._receivers.get(topic, ()) if each != hear]


class RedisStore:
    """A `SharedStore` in Redis or Valkey.

    Args:
        address: Where it is; see `redis_address`.
        name: The name of the server. All keys begin with it, unless the address has a `prefix`.
    """

    def __init__(self, address: str, name: str) -> None:
        self.link = link = RedisLink(parse(address), f"mcpearl:{name}")
        self.members = RedisMembers(link)
        self.bus = RedisBus(link, self.members)
        self.tasks = RedisTaskStore(link)
        self.sessions = RedisSessionStore(link, self.bus)
        self.events = RedisEventStore(link, self.bus, self.members)
        self.relay = RedisRelay(self.bus, self.members)
        self.proofs = RedisProofStore(link)
        self.names = RedisNames(link, self.members, self.tasks)
        self.rates = RedisRateStore(link)
        self.state = RedisStateStore(link)

    async def start(self, keys: list[bytes] | None) -> list[bytes]:
        """Join as a new process, with a number of its own."""
        self.members.join()
        await self.link.start()
        try:
            found = keys or await agreed_keys(self.link)
        except StoreUnavailable:
            await self.link.close()
            raise
        self.sessions.use_keys(found)
        self.events.start()
        return found

    async def agree(self) -> list[bytes]:
        """Return the keys of the deployment."""
        await self.link.start()
        try:
            return await agreed_keys(self.link)
        finally:
            await self.link.close()

    @property
    def is_up(self) -> bool:
        """Whether the last command reached the server."""
        return self.link.is_up

    def parts(self) -> Mapping[str, Callable[[], Awaitable[Any]]]:
        """Return the watch over the connection, the renewal of leases, and the count of sessions."""
        return {
            "store": self.link.watch,
            "members": self.members.run,
            "names": self.names.run,
            "count of sessions": self.sessions.counted.run,
        }

    async def close(self) -> None:
        """Write waiting events, leave the other processes, and disconnect."""
        await self.events.close()
        await self.members.leave()
        await self.link.close()
