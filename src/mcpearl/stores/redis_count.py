"""The number of sessions on all machines of a deployment, without a command for each session.

One sorted set holds the sessions by the time they expire. Once a second every process writes to it the
sessions that it began, used or ended, and reads how many there are.
"""

import asyncio

from mcpearl.stores.errors import StoreUnavailable
from mcpearl.stores.redis_link import RedisLink
from mcpearl.stores.redis_script import Script

EVERY = 1.0
"""Seconds between two updates of the count."""
_AT_ONCE = 500  # most sessions in one step

_NOTE = Script(
    """
local now = time_of('')
local expires = ARGV[1] ~= '' and exact(now + tonumber(ARGV[1]))
for n = 2, #ARGV do
    if expires then redis.call('ZADD', KEYS[1], 'GT', expires, ARGV[n])
    else redis.call('ZREM', KEYS[1], ARGV[n]) end
end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', exact(now))
local last = redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')[2]
if last then redis.call('PEXPIRE', KEYS[1], math.ceil((tonumber(last) - now) * 1000) + 1000) end
return redis.call('ZCARD', KEYS[1])
"""
)


class SessionCount:
    """The number of sessions on all machines, as of a second ago.

    Args:
        link: The connection.
    """

    def __init__(self, link: RedisLink) -> None:
        self._link = link
        self._key = link.key("sessions")
        # Seconds that each changed session has left; None for one that ended.
        self._changed: dict[str, float | None] = {}
        self._more = 0  # sessions begun here since the last look, minus those that ended
        self._known = 0

    @property
    def now(self) -> int:
        """How many sessions there are, counting those begun and ended here since the last look."""
        return max(0, self._known + self._more)

    def begun(self, digest: str, ttl: float) -> None:
        """Note a session that begins."""
        self._more += 1
        self._changed[digest] = ttl

    def used(self, digest: str, ttl: float) -> None:
        """Note that a session was used and expires `ttl` seconds from now."""
        self._changed[digest] = ttl

    def ended(self, digest: str) -> None:
        """Note the end of a session."""
        self._more -= 1
        self._changed[digest] = None

    async def run(self) -> None:
        """Update the count until cancelled."""
        while True:
            await asyncio.sleep(EVERY)
            try:
                await self.look()
            except StoreUnavailable:
                await self._link.until_usable()

    async def look(self) -> None:
        """Write what changed, and read the count."""
        changed, more = self._changed, self._more
        self._changed = {}
        by_time: dict[float | None, list[str]] = {}
        for digest, ttl in changed.items():
            by_time.setdefault(ttl, []).append(digest)
        try:
            for ttl, digests in (by_time or {None: []}).items():
                for start in range(0, max(1, len(digests)), _AT_ONCE):
                    given = ["" if ttl is None else ttl, *digests[start : start + _AT_ONCE]]
                    self._known = int(await self._link.run(_NOTE, [self._key], given))
        except StoreUnavailable:
            self._changed = {**changed, **self._changed}
            raise
        self._more -= more
