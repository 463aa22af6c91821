"""State of sessions and principals in Redis: one hash per owner, which all processes share."""

from hashlib import blake2b

from mcpearl.protocol.errors import LimitReached
from mcpearl.stores.redis_link import RedisLink
from mcpearl.stores.redis_script import Script

MAX_OWNER = 1024 * 1024  # bytes that one owner may hold
IDLE = 3600  # seconds after which the unused state of an owner is dropped
_ENTRY = 100  # approximate bytes of an entry in addition to its key and value
_VALUE = "v:"  # prefix of fields that hold values; the field `size` has the bytes of all

_GET = Script(
    """
local found = redis.call('HGET', KEYS[1], ARGV[1])
if found then redis.call('PEXPIRE', KEYS[1], tonumber(ARGV[2]) * 1000) end
return found
"""
)
_SET = Script(
    """
local field, value, most, entry = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local before, grown = redis.call('HGET', KEYS[1], field), #value
if before then grown = grown - #before else grown = grown + #field + entry end
local size = tonumber(redis.call('HGET', KEYS[1], 'size') or 0) + grown
if size > most then return size end
redis.call('HSET', KEYS[1], field, value, 'size', size)
redis.call('PEXPIRE', KEYS[1], tonumber(ARGV[5]) * 1000)
return 0
"""
)
_DELETE = Script(
    """
local before = redis.call('HGET', KEYS[1], ARGV[1])
if not before then return 0 end
redis.call('HDEL', KEYS[1], ARGV[1])
redis.call('HINCRBY', KEYS[1], 'size', -(#before + #ARGV[1] + tonumber(ARGV[2])))
if redis.call('HLEN', KEYS[1]) == 1 then redis.call('DEL', KEYS[1]) end
return 1
"""
)


class RedisStateStore:
    """A `StateStore` for a whole deployment.

    Args:
        link: The connection.
        max_owner: Bytes that one session or principal may hold.
    """

    def __init__(self, link: RedisLink, max_owner: int = MAX_OWNER) -> None:
        self._link = link
        self._max_owner = max_owner

    def _keys(self, owner: str) -> list[str]:
        name = blake2b(owner.encode(errors="replace"), digest_size=16).hexdigest()
        return [self._link.key_of(name, "state")]

    async def get(self, owner: str, key: str) -> bytes | None:
        """Return a value, or None when there is none."""
        found: bytes | None = await self._link.run(_GET, self._keys(owner), (_field(key), IDLE))
        return found

    async def set(self, owner: str, key: str, value: bytes) -> None:
        """Keep a value; raises `LimitReached` when the owner has no room for it."""
        given = (_field(key), value, self._max_owner, _ENTRY, IDLE)
        size = await self._link.run(_SET, self._keys(owner), given)
        if size:
            raise LimitReached(
                f"`{key[:64]}` cannot be kept: the session would hold {size} bytes, over the "
                f"{self._max_owner} that a session or principal may have in the store"
            )

    async def delete(self, owner: str, key: str) -> bool:
        """Remove a value; return False when there was none."""
        return bool(await self._link.run(_DELETE, self._keys(owner), (_field(key), _ENTRY)))

    async def keys(self, owner: str) -> list[str]:
        """Return the keys of an owner's values."""
        found = [bytes(each) for each in await self._link.send("HKEYS", *self._keys(owner))]
        names = [each.decode(errors="surrogatepass") for each in found]
        return [name.removeprefix(_VALUE) for name in names if name.startswith(_VALUE)]

    async def clear(self, owner: str) -> None:
        """Remove all values of an owner."""
        await self._link.send("DEL", *self._keys(owner))


def _field(key: str) -> bytes:
    return f"{_VALUE}{key}".encode(errors="surrogatepass")
