"""What is left in the store when a scene is over."""

import asyncio
import time
from collections import Counter

import redis.asyncio

from mcpearl.stores.redis_sessions import digest_of
from tests.redis_server import RedisServer

STAY = ("keys", "tasks:changes")
"""What is documented to stay: the agreed keys, and the notes of tasks that changed."""

_GONE = -2  # what the store says of the time of a key that it does not have


async def left(store: RedisServer, ended: list[str]) -> dict[str, int]:
    """Return how many keys of each kind are left.

    Raises `AssertionError` if one stays for ever, or if more is left of a session that was ended than the
    note that it was.
    """
    client = redis.asyncio.Redis(unix_socket_path=str(store.socket))
    owners = {digest_of(id) for id in ended}
    kinds: Counter[str] = Counter()
    async for key in client.scan_iter():
        remaining = await client.pttl(key)
        if remaining == _GONE:
            continue  # it expired after it was listed
        assert remaining >= 0, f"{key!r} stays for ever: {remaining}"
        owner, _, rest = key.decode().partition("{")[2].partition("}:")
        kind = rest.split(":")[0]
        if owner in owners:
            assert kind == "session", f"{key!r} is left of a session that was ended"
            revision = await client.hget(key, "revision")
            assert revision in (None, b"-1"), f"{key!r} was ended and is there"
            kind = "ended session"
        kinds[kind] += 1
    await client.aclose()
    return dict(kinds)


async def left_at_last(store: RedisServer, patience: float) -> list[str]:
    """Wait until everything has expired; return the keys that are documented to stay.

    Raises `AssertionError` if others stay.
    """
    client = redis.asyncio.Redis(unix_socket_path=str(store.socket))
    deadline = time.monotonic() + patience
    while True:
        found = {key.decode() async for key in client.scan_iter()}
        others = {key for key in found if key.partition("}:")[2] not in STAY}
        if not others:
            await client.aclose()
            return sorted(found)
        assert time.monotonic() < deadline, f"{len(others)} keys are left: {sorted(others)[:20]}"
        await asyncio.sleep(0.5)
