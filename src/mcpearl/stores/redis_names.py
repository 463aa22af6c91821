"""Names that all machines of a deployment share, each held by a lease.

A name is held as long as its owner's process is alive and the owner has not released it. The leases of a
process are renewed together; those of a dead process lapse.
"""

import asyncio
import logging
import socket
from collections.abc import Hashable
from hashlib import blake2b
from typing import Any

from mcpearl.runtime.names import NameTaken
from mcpearl.stores.errors import StoreUnavailable
from mcpearl.stores.redis_link import RedisLink
from mcpearl.stores.redis_members import LEASE, RedisMembers
from mcpearl.stores.redis_script import Script
from mcpearl.stores.redis_tasks import RedisTaskStore

logger = logging.getLogger("mcpearl.names")

_SHOWN = 200  # characters of a name that operators see
MAX_NAMES = 100_000
"""Names that one process may hold."""

_CLAIM = Script(
    """
local held = redis.call('HMGET', KEYS[1], 'process', 'machine')
if held[1] and held[1] ~= ARGV[1] then return {held[1], held[2]} end
redis.call('HSET', KEYS[1], 'process', ARGV[1], 'machine', ARGV[2], 'name', ARGV[4])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return false
"""
)
_LET_GO = Script(
    """
if redis.call('HGET', KEYS[1], 'process') ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
"""
)


class RedisNames:
    """A `Directory` for all machines.

    Args:
        link: The connection.
        members: Knows the number of this process.
        tasks: Knows which machine runs a task. The name of a task is `("task", id)`.
        machine: The name of this machine; its host name by default.
    """

    def __init__(
        self,
        link: RedisLink,
        members: RedisMembers,
        tasks: RedisTaskStore,
        machine: str | None = None,
    ) -> None:
        self._link = link
        self._tasks = tasks
        self._members = members
        self._machine = machine or socket.gethostname()
        self._owners: dict[Hashable, Any] = {}  # of the names of this process

    async def claim(self, name: Hashable, owner: Any) -> None:
        """Hold a name against the owners of all machines.

        Args:
            name: Text, a number, or a tuple of such.
            owner: An asyncio task, which holds the name until it is done; or any other object, which
                holds it until `let_go`.

        Raises:
            NameTaken: Another owner holds it.
            StoreUnavailable: The store cannot be reached, or this process holds too many names.
        """
        holder = self._owners.get(name)
        if holder is not None and holder is not owner:
            raise NameTaken(name, holder)
        if holder is None and len(self._owners) >= MAX_NAMES:
            raise StoreUnavailable(f"this process holds {MAX_NAMES} names already")
        self._owners[name] = owner
        try:
            taken = await self._renew(name)
        except StoreUnavailable:
            self._owners.pop(name, None)
            raise
        if taken is not None:
            self._owners.pop(name, None)
            raise NameTaken(name, f"a process of {taken}")
        if holder is None and isinstance(owner, asyncio.Future):
            owner.add_done_callback(self.let_go)

    async def _renew(self, name: Hashable) -> str | None:
        """Take or extend a lease; return the machine of the holder if another process has it."""
        given = (self._members.number, self._machine, int(LEASE * 1000), repr(name)[:_SHOWN])
        held = await self._link.run(_CLAIM, [self._key(name)], given)
        return None if not held else held[1].decode(errors="replace")

    async def machine_of(self, name: Hashable) -> str | None:
        """Return the machine on which a name is held, or None.

        Args:
            name: The name.
        """
        if isinstance(name, tuple) and len(name) == 2 and name[0] == "task":
            return await self._tasks.machine_of(str(name[1]))
        found = await self._link.send("HGET", self._key(name), "machine")
        return None if found is None else found.decode(errors="replace")

    def let_go(self, owner: Any) -> None:
        """Release every name of an owner.

        Args:
            owner: The owner; nothing happens if it has no names.
        """
        for name in [name for name, each in self._owners.items() if each is owner]:
            del self._owners[name]
            leaving = self._link.run(_LET_GO, [self._key(name)], (self._members.number,))
            self._link.post(leaving, f"the name {name!r} was not given up; it lapses")

    async def run(self) -> None:
        """Renew the leases of this process, until cancelled. A name that was lost is logged."""
        while True:
            await asyncio.sleep(LEASE / 3)
            names = list(self._owners)
            renewed = await asyncio.gather(
                *(self._renew(name) for name in names), return_exceptions=True
            )
            for name, taken in zip(names, renewed, strict=True):
                if isinstance(taken, str):
                    self._owners.pop(name, None)
                    logger.error("the name %r is held by a process of %s now", name, taken)

    def _key(self, name: Hashable) -> str:
        return self._link.key("name", blake2b(repr(name).encode(), digest_size=16).hexdigest())
