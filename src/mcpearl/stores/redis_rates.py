"""Rates in Redis: for each key one number, the time at which its rate is unused again."""

from collections.abc import Sequence
from hashlib import blake2b

from mcpearl.stores.redis_link import RedisLink
from mcpearl.stores.redis_script import Script

_AT_ONCE = 500  # most keys in one step

_SPEND = Script(
    """
local now, interval, owed = time_of(''), tonumber(ARGV[1]), {}
for n, key in ipairs(KEYS) do
    local free_at = math.max(tonumber(redis.call('GET', key) or 0), now)
    free_at = free_at + tonumber(ARGV[n + 1]) * interval
    redis.call('SET', key, exact(free_at), 'PX', math.ceil((free_at - now) * 1000) + 1000)
    owed[n] = exact(free_at - now)
end
return owed
"""
)


class RedisRateStore:
    """A `RateStore` for a whole deployment.

    Args:
        link: The connection.
    """

    def __init__(self, link: RedisLink) -> None:
        self._link = link

    async def spend(
        self, limit: str, interval: float, calls: Sequence[tuple[str, int]]
    ) -> list[float]:
        """Count calls of several keys."""
        owed: list[float] = []
        for start in range(0, len(calls), _AT_ONCE):
            part = calls[start : start + _AT_ONCE]
            keys = [self._key(limit, key) for key, _ in part]
            given = [interval, *(count for _, count in part)]
            owed += [float(each) for each in await self._link.run(_SPEND, keys, given)]
        return owed

    def _key(self, limit: str, key: str) -> str:
        name = blake2b(f"{limit}\n{key}".encode(), digest_size=16).hexdigest()
        return self._link.key("rate", name)
