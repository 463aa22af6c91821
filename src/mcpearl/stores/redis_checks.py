"""Checks that a Redis or Valkey server can be relied on before it is used.

A server is refused if it may silently drop what it acknowledged (eviction), is too old, or does not allow
the commands that are needed. For a server that keeps nothing on disk a warning is logged; it is refused
if the address says `durable=1`. Some hosted servers do not report their settings: these are accepted.
"""

import logging
from typing import TYPE_CHECKING

from mcpearl.runtime import clock
from mcpearl.stores.errors import StoreUnavailable
from mcpearl.stores.redis_script import Script

if TYPE_CHECKING:
    from mcpearl.stores.redis_link import RedisLink

logger = logging.getLogger("mcpearl.stores")

OLDEST = (6, 2)
_PROBE = Script("""
redis.call('SET', KEYS[1], '1', 'PX', 1000)
redis.call('SETRANGE', KEYS[1], 0, redis.call('GETRANGE', KEYS[1], 0, -1))
redis.call('HSET', KEYS[2], 'a', '1')
redis.call('ZADD', KEYS[3], 1, 'a')
redis.call('XADD', KEYS[4], '*', 'a', '1')
redis.call('TIME')
for n = 1, 4 do redis.call('PEXPIRE', KEYS[n], 1000) redis.call('DEL', KEYS[n]) end
return 1
""")


async def check_server(link: "RedisLink") -> None:
    """Raise `StoreUnavailable` for a server that cannot be used; warn about one that may lose data."""
    await link.send("PING")
    facts = await _facts(link)
    where = link.address.shown
    version = facts.get("redis_version", "")
    if version and _numbers(version) < OLDEST:
        raise StoreUnavailable(f"{where} is Redis {version}; 6.2 or newer, or Valkey, is needed")
    policy, bound = facts.get("maxmemory_policy", "noeviction"), facts.get("maxmemory", "0")
    if policy != "noeviction" and bound != "0":
        raise StoreUnavailable(
            f"{where} deletes keys when its memory is full (maxmemory-policy {policy}), so that "
            "sessions and tasks would be lost; set maxmemory-policy to noeviction"
        )
    if facts.get("role") == "slave":
        raise StoreUnavailable(f"{where} is a replica; give the address of the master")
    if facts and facts.get("aof_enabled") != "1":
        message = (
            f"{where} does not write what it is told to disk at once: what was acknowledged may be "
            "lost when it restarts; set `appendonly yes`"
        )
        if link.address.durable:
            raise StoreUnavailable(message)
        logger.warning("%s", message)
    keys = [link.key("probe", clock.token(6)) for _ in range(4)]
    try:
        await link.run(_PROBE, keys)
    except StoreUnavailable as error:
        if not link.is_up:
            raise
        raise StoreUnavailable(
            f"{error}. The user of the store must be allowed scripts, strings, hashes, sorted sets, "
            f"streams, TIME and expiry on the keys `*{link.prefix}*`"
        ) from None


async def _facts(link: "RedisLink") -> dict[str, str]:
    """Return what the server reports about itself; nothing if it does not report."""
    if link.address.kind == "cluster":
        return {}  # each node has its own settings; only the probe tests a cluster
    try:
        reply = await link.send("INFO")
    except StoreUnavailable:
        if not link.is_up:
            raise
        return {}
    if isinstance(reply, dict):
        return {str(name): str(value) for name, value in reply.items()}
    lines = (line.partition(":") for line in reply.decode(errors="replace").splitlines())
    return {name: value for name, colon, value in lines if colon}


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
