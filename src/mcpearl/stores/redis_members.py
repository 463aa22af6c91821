"""The processes of a deployment: each has a number, and a lease that shows it is alive.

Numbers are random and never used again, so that a message to a dead process reaches no other process.
"""

import asyncio
import logging
import os
import socket
from collections.abc import Callable

import msgspec
from msgspec import Struct

from mcpearl.runtime import clock
from mcpearl.stores.errors import StoreUnavailable
from mcpearl.stores.redis_link import Command, RedisLink
from mcpearl.stores.redis_script import Script

logger = logging.getLogger("mcpearl.stores")

LEASE = 10.0  # seconds after which a process that does not report counts as dead
NUMBER_BITS = 28
_EVERY = LEASE / 3

_REPORT = Script(
    """
local now, length = time_of(''), tonumber(ARGV[2])
local lease = tonumber(redis.call('ZSCORE', KEYS[1], ARGV[1]) or 0)
redis.call('ZADD', KEYS[1], exact(now + length), ARGV[1])
redis.call('HSET', KEYS[2], ARGV[1], ARGV[3])
-- If no process could report for a while, they get the time of a lease to do so.
local last, patient = unpack(redis.call('HMGET', KEYS[4], 'reported', 'patient'))
patient = tonumber(patient or 0)
if last and now - tonumber(last) > length / 2 then patient = now + length end
redis.call('HSET', KEYS[4], 'reported', exact(now), 'patient', exact(patient))
redis.call('PEXPIRE', KEYS[4], math.ceil(length * 60000))  -- outlasts the leases
-- Otherwise this process could not report: that does not make the others dead.
if lease > now and now >= patient and ARGV[4] == '1' then
    for _, number in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', exact(now))) do
        redis.call('ZREM', KEYS[1], number)
        redis.call('HDEL', KEYS[2], number)
    end
end
for n = 1, 2 do redis.call('PEXPIRE', KEYS[n], math.ceil(length * 6000)) end
if redis.call('PTTL', KEYS[3]) > 0 then redis.call('PEXPIRE', KEYS[3], 31536000000) end
return {lease > now and 1 or 0, redis.call('ZRANGE', KEYS[1], 0, -1)}
"""
)
_LEAVE = Script(
    """
redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('HDEL', KEYS[2], ARGV[1])
redis.call('DEL', KEYS[3])
if redis.call('ZCOUNT', KEYS[1], exact(time_of('')), '+inf') == 0 then redis.call('DEL', KEYS[4]) end
return 1
"""
)


class DeployedProcess(Struct, frozen=True):
    """One process of a deployment."""

    number: int
    host: str
    process: int
    since: float
    """When it joined, in seconds since 1970, by its own clock."""


class RedisMembers:
    """The processes of the deployment, and this one among them.

    Args:
        link: The connection.
    """

    def __init__(self, link: RedisLink) -> None:
        self._link = link
        self.number = 0
        self._since = 0.0
        self.join()
        self._alive: set[int] = set()
        self._patient_until = 0.0  # no process counts as dead before this time
        # Whether the store was reached anew: other processes may not have reported yet.
        self._new = True
        self._when_dead: list[Callable[[int], None]] = []
        self._keys = [
            *(link.key("members"), link.key("members", "info"), link.key("keys")),
            link.key("members", "reports"),
        ]

    def join(self) -> None:
        """Take a new number, as a process that has just started."""
        self.number = int.from_bytes(clock.random_bytes(4), "big") % (1 << NUMBER_BITS) or 1
        self._since = clock.now()
        self._alive = set()

    def when_dead(self, hear: Callable[[int], None]) -> None:
        """Call a function with the number of each process that died or left."""
        self._when_dead.append(hear)

    async def run(self) -> None:
        """Report that this process is alive, until cancelled; it stays known until it leaves."""
        while True:
            try:
                await self.report()
            except StoreUnavailable:
                await self._link.until_usable()
                continue
            await asyncio.sleep(_EVERY)

    async def leave(self) -> None:
        """Tell the others that this process ends, and delete what was sent to it."""
        keys = (*self._keys[:2], self.inbox_of(self.number), self._keys[3])
        try:
            await self._link.run(_LEAVE, keys, (self.number,))
        except StoreUnavailable as error:  # its lease lapses, and the inbox expires
            logger.warning("leaving the others: %s", error)

    def inbox_of(self, number: int) -> str:
        """Return the key of the stream of messages to one process."""
        return self._link.key("inbox", str(number))

    def introduction(self) -> Command:
        """Return the command by which other processes know this one, when the store was reached anew."""
        self._new = True
        return self._renewal(judges=False)

    def _renewal(self, *, judges: bool) -> Command:
        """Return the command that renews the lease; one that judges ends the leases that lapsed."""
        me = DeployedProcess(self.number, socket.gethostname(), os.getpid(), self._since)
        given = (self.number, LEASE, msgspec.json.encode(me), int(judges))
        return self._link.calling(_REPORT, self._keys, given)

    async def report(self) -> None:
        """Renew the lease of this process, and see which others are alive."""
        judges = not self._new
        self._new = True  # unless this succeeds
        held, members = await self._link.send(*self._renewal(judges=judges))
        self._new = False
        if not (held and judges) and self._alive:
            self._patient_until = clock.monotonic() + LEASE
        alive = {int(number) for number in members if number.isdigit()}
        if clock.monotonic() < self._patient_until:
            alive |= self._alive  # the store was away: live processes report soon
        dead, self._alive = self._alive - alive - {self.number}, alive
        for number in dead:
            for hear in list(self._when_dead):
                hear(number)

    async def is_alive(self, number: int) -> bool:
        """Whether a process is alive, as far as the store knows."""
        if number == self.number:
            return True
        found = await self._link.send("ZSCORE", self._keys[0], number)
        if found is None and clock.monotonic() >= self._patient_until:
            return False
        self._alive.add(number)  # so that its death is noticed
        return True

    @property
    def key(self) -> str:
        """The key of the sorted set with the numbers of all processes."""
        return self._keys[0]

    @property
    def known_by(self) -> tuple[str, str]:
        """The keys that show whether a process is alive: the numbers of all, and when they reported."""
        return self._keys[0], self._keys[3]

    async def all(self) -> list[DeployedProcess]:
        """Return the processes that are alive."""
        found = await self._link.send("HVALS", self._keys[1])
        members = []
        for info in found:
            try:
                members.append(msgspec.json.decode(info, type=DeployedProcess))
            except msgspec.DecodeError:
                logger.warning("the store has something among its members that is not one")
        return members
