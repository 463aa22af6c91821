"""The number of sessions on all machines of a deployment, and of each caller.

One sorted set has the sessions by the time they expire, and a hash has the number of each caller. Once a
second, and sooner while many begin, every process writes the sessions that it began, used or ended, and
reads how many there are: all of them, and those of the callers that begin sessions at this process.

While far more sessions may begin than have begun here since then, this costs no command for each. Nearer
to a bound, each session is counted in the store before it begins, so that the bound is exact.
"""

import asyncio
from contextlib import suppress

from mcpearl.stores.errors import StoreUnavailable
from mcpearl.stores.redis_link import Argument, RedisLink
from mcpearl.stores.redis_script import Script

EVERY = 1.0
"""Seconds between two updates of the count."""
HURRY = 64
"""Sessions begun since the last update that make the next one come sooner."""
MAX_CALLERS = 5000
"""Callers whose sessions a process asks for at a time. Of others it knows the sessions that are here."""
_LEAST = 0.1  # seconds between two updates while many sessions begin
_REMEMBERED = 10  # updates for which a caller is asked for that begins nothing
_AT_ONCE = 500  # most sessions in one step

_PART = 128
"""A process may begin so many'th part of the sessions that were left without asking the store."""

_STEPS = """
local more = {}
local function changed(member, by)
    local caller = string.match(member, ':(.+)$')
    if caller then more[caller] = (more[caller] or 0) + by end
end
local function expire(now, most)
    for _, member in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', exact(now), 'LIMIT', 0, most)) do
        changed(member, -redis.call('ZREM', KEYS[1], member))
    end
end
local function write(now)
    for caller, by in pairs(more) do
        if by ~= 0 and redis.call('HINCRBY', KEYS[2], caller, by) <= 0 then
            redis.call('HDEL', KEYS[2], caller)
        end
    end
    more = {}
    local last = redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')[2]
    if last then
        local left = math.ceil((tonumber(last) - now) * 1000) + 1000
        for n = 1, 2 do redis.call('PEXPIRE', KEYS[n], left) end
    else
        redis.call('DEL', KEYS[2])
    end
end
"""
_NOTE = Script(
    _STEPS
    + """
local now, count = time_of(''), tonumber(ARGV[2])
local expires = ARGV[1] ~= '' and exact(now + tonumber(ARGV[1]))
for n = 3, 2 + count do
    if expires then changed(ARGV[n], redis.call('ZADD', KEYS[1], 'GT', expires, ARGV[n]))
    else changed(ARGV[n], -redis.call('ZREM', KEYS[1], ARGV[n])) end
end
expire(now, 2000)
write(now)
local callers = {}
if #ARGV > 2 + count then callers = redis.call('HMGET', KEYS[2], unpack(ARGV, 3 + count)) end
return {redis.call('ZCARD', KEYS[1]), callers}
"""
)
_ADMIT = Script(
    _STEPS
    + """
local now, member, caller, most = time_of(''), ARGV[1], ARGV[2], tonumber(ARGV[4])
for n = 5, #ARGV do changed(ARGV[n], -redis.call('ZREM', KEYS[1], ARGV[n])) end
expire(now, 200)
write(now)
local total = redis.call('ZCARD', KEYS[1])
local own = caller ~= '' and tonumber(redis.call('HGET', KEYS[2], caller) or 0) or 0
if total >= most or (own > 0 and own + 1 > most - total - 1) then return {0, total, own} end
redis.call('ZADD', KEYS[1], exact(now + tonumber(ARGV[3])), member)
changed(member, 1)
write(now)
return {1, total + 1, own + 1}
"""
)


class _CallerCount:
    """The sessions of one caller."""

    __slots__ = ("age", "known", "more")

    def __init__(self) -> None:
        self.known = 0  # at the last update
        self.more = 0  # begun here since, minus those that ended
        self.age = 0  # updates since the caller began a session here, or tried to


class SessionCount:
    """The number of sessions on all machines, as of a second ago or of the last `admit`.

    Args:
        link: The connection.
    """

    def __init__(self, link: RedisLink) -> None:
        self._link = link
        self._keys = [link.key("sessions"), link.key("callers")]
        # Seconds that each changed session has left; None for one that ended.
        self._changed: dict[str, float | None] = {}
        self._more = 0  # sessions begun here since the last look, minus those that ended
        self._known = 0
        self._is_known = False  # the store was asked
        self._callers: dict[str, _CallerCount] = {}
        self._soon: asyncio.Event | None = None  # set when the next update should not wait

    @property
    def now(self) -> int:
        """How many sessions there are, counting those begun and ended here since the last look."""
        return max(0, self._known + self._more)

    def of(self, caller: str) -> int:
        """How many sessions a caller has. What other processes know of it comes with the next look.

        Args:
            caller: A name of the caller that is the same at every process.
        """
        found = self._callers.get(caller)
        if found is None:
            if len(self._callers) >= MAX_CALLERS:
                return 0
            found = self._callers[caller] = _CallerCount()
        found.age = 0
        return max(0, found.known + found.more)

    def may_begin(self, caller: str, most: int) -> bool:
        """Whether a session may begin that is only noted, not counted in the store first.

        Args:
            caller: Whose session it is; empty if it cannot be told.
            most: How many sessions there may be. A caller may have as many as are then free.
        """
        found = self._callers.get(caller)
        own, begun = (0, self._more) if found is None else (found.known, found.more)
        left = (most - self._known - own) // (2 if caller else 1)
        return self._is_known and max(begun, self._more) < left // _PART

    async def admit(self, digest: str, caller: str, ttl: float, most: int) -> bool:
        """Count a session in the store before it begins; return False if there is no room for it.

        Args:
            digest: Names the session.
            caller: Whose session it is; empty if it cannot be told.
            ttl: Seconds it has if it is not used.
            most: As in `may_begin`.

        Raises:
            StoreUnavailable: It could not be counted, or that is not known.
        """
        member = _member(digest, caller)
        ended = [each for each, left in self._changed.items() if left is None][:_AT_ONCE]
        try:
            given: list[Argument] = [member, caller, ttl, most, *ended]
            reply = await self._link.run(_ADMIT, self._keys, given)
        except (StoreUnavailable, asyncio.CancelledError):
            self._changed[member] = None  # it may have been counted
            raise
        self._is_known = True
        admitted, self._known, known = (int(each) for each in reply)
        found = self._callers.get(caller)
        if found is not None:
            found.known = known
        return bool(admitted)

    def begun(self, digest: str, caller: str, ttl: float) -> None:
        """Note a session that begins."""
        self._count(caller, 1)
        self._changed[_member(digest, caller)] = ttl
        if self._more >= HURRY and self._soon is not None:
            self._soon.set()

    def used(self, digest: str, caller: str, ttl: float) -> None:
        """Note that a session was used and expires `ttl` seconds from now."""
        self._changed[_member(digest, caller)] = ttl

    def ended(self, digest: str, caller: str) -> None:
        """Note the end of a session."""
        self._count(caller, -1)
        self._changed[_member(digest, caller)] = None

    def _count(self, caller: str, by: int) -> None:
        self._more += by
        found = self._callers.get(caller)
        if found is not None:
            found.more += by

    async def run(self) -> None:
        """Update the count until cancelled."""
        soon = self._soon = asyncio.Event()
        while True:
            await asyncio.sleep(_LEAST)
            with suppress(TimeoutError):
                async with asyncio.timeout(EVERY - _LEAST):
                    await soon.wait()
            soon.clear()
            try:
                await self.look()
            except StoreUnavailable:
                await self._link.until_usable()

    async def look(self) -> None:
        """Write what changed, and read the counts."""
        changed, more = self._changed, self._more
        self._changed = {}
        begun = {caller: found.more for caller, found in self._callers.items()}
        counts: list[bytes | None] = []
        try:
            for given in _steps(changed, list(begun)):
                known, counts = await self._link.run(_NOTE, self._keys, given)
                self._known = int(known)
        except StoreUnavailable:
            self._changed = {**changed, **self._changed}
            raise
        self._more -= more
        self._is_known = True
        for (caller, here), count in zip(begun.items(), counts, strict=True):
            self._learn(caller, here, int(count or 0))

    def _learn(self, caller: str, begun: int, known: int) -> None:
        found = self._callers[caller]
        found.known = known
        found.more -= begun
        found.age += 1
        if found.age > _REMEMBERED and not found.more:
            del self._callers[caller]


def _member(digest: str, caller: str) -> str:
    return f"{digest}:{caller}" if caller else digest


def _steps(changed: dict[str, float | None], callers: list[str]) -> list[list[str | float]]:
    """Return what the steps of an update are given. The last one asks for the callers."""
    by_time: dict[float | None, list[str]] = {}
    for member, ttl in changed.items():
        by_time.setdefault(ttl, []).append(member)
    steps: list[list[str | float]] = []
    for ttl, members in (by_time or {None: []}).items():
        for start in range(0, max(1, len(members)), _AT_ONCE):
            some = members[start : start + _AT_ONCE]
            steps.append(["" if ttl is None else ttl, len(some), *some])
    steps[-1] += callers
    return steps
