"""Tasks in Redis or Valkey: they survive every process, and all machines share them.

A task is a hash: the record as its writer encoded it, and the fields that only the store sets. Sorted
sets say which tasks need a worker, when each expires, and which belong to an owner. Every change is one
script, which also adds an entry to a stream that all processes read.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec.structs import replace

from mcpearl.protocol.task_lifecycle import TERMINAL
from mcpearl.runtime import clock
from mcpearl.stores.errors import Unreadable
from mcpearl.stores.redis_link import RedisLink
from mcpearl.stores.redis_script import Script
from mcpearl.stores.redis_tail import Tail
from mcpearl.stores.sessions import Identity
from mcpearl.stores.tasks import Hear, TaskRecord, TasksFull, machine_in

logger = logging.getLogger("mcpearl.stores")

_EXPIRED_AT_ONCE = 1000
_FIELDS = (
    *("data", "revision", "fence", "holder", "lease"),
    *("created", "updated", "ttl", "status", "identity"),
)
_FOUND = "redis.call('HMGET', KEYS[1], " + ", ".join(f"'{name}'" for name in _FIELDS) + ")"

# KEYS of each script begin with the task, then the sets; ARGV with the time (if a test passes one), the
# writer, and the id.
_BEGIN = """
local now, writer, id = time_of(ARGV[1]), ARGV[2], ARGV[3]
local function found()
    local f = redis.call('HMGET', KEYS[1], 'revision', 'fence', 'holder', 'lease', 'status', 'expires')
    if not f[1] or tonumber(f[6]) <= now then return nil end
    return {revision = tonumber(f[1]), fence = tonumber(f[2]), holder = f[3],
            lease = tonumber(f[4]), status = f[5], expires = tonumber(f[6])}
end
local function is_over(status)
    return status == 'completed' or status == 'failed' or status == 'cancelled'
end
local function tell(revision)
    redis.call('XADD', KEYS[3], 'MAXLEN', '~', 10000, '*', 'w', writer, 'm', id .. ' ' .. revision)
    keep(KEYS[3], 3600)
end
-- The set of tasks that need a worker once their lease lapses: open ones that are not parked.
local function place(task)
    if is_over(task.status) or (task.status == 'input_required' and task.holder == '') then
        redis.call('ZREM', KEYS[2], id)
    else
        redis.call('ZADD', KEYS[2], exact(task.lease), id)
        keep(KEYS[2], task.expires - now)
    end
end
local function write(task)
    redis.call('HSET', KEYS[1], 'revision', task.revision + 1, 'fence', task.fence,
        'holder', task.holder, 'lease', exact(task.lease), 'status', task.status,
        'updated', exact(now))
    place(task)
    tell(task.revision + 1)
end
"""
_SWEEP = """
local function sweep(expiries, prefix, owners)
    local gone = redis.call('ZRANGEBYSCORE', expiries, '-inf', exact(now), 'LIMIT', 0, tonumber(ARGV[4]))
    for _, each in ipairs(gone) do
        local owner, task = string.sub(each, 1, 32), string.sub(each, 33)
        redis.call('ZREM', expiries, each)
        redis.call('ZREM', KEYS[2], task)
        redis.call('ZREM', owners .. owner, task)
        redis.call('DEL', prefix .. task)
    end
end
"""

_CREATE = Script(
    _BEGIN
    + _SWEEP
    + """
local expiries, own, number = KEYS[4], KEYS[5], KEYS[6]
local owner, lease, ttl, most, share = ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[8], ARGV[9]
sweep(expiries, ARGV[10], ARGV[11])
if redis.call('EXISTS', KEYS[1]) == 1 then return 'taken' end
if redis.call('ZCARD', expiries) >= tonumber(most) then return 'full' end
if redis.call('ZCARD', own) >= tonumber(share) then return 'share' end
local expires = now + ttl
redis.call('HSET', KEYS[1], 'data', ARGV[12], 'revision', 1, 'fence', 1, 'holder', ARGV[13],
    'lease', exact(now + lease), 'created', exact(now), 'updated', exact(now), 'ttl', exact(ttl),
    'status', ARGV[14], 'expires', exact(expires), 'owner', owner,
    'identity', ARGV[15])
redis.call('PEXPIRE', KEYS[1], math.ceil(ttl * 1000) + 60000)
place({status = ARGV[14], holder = ARGV[13], lease = now + lease, expires = expires})
redis.call('ZADD', expiries, exact(expires), owner .. id)
redis.call('ZADD', own, redis.call('INCR', number), id)
for _, key in ipairs({expiries, own, number}) do keep(key, ttl + 60) end
return exact(now)
"""
)
_GET = Script(
    _BEGIN
    + f"""
if not found() then return nil end
return {_FOUND}
"""
)
_UPDATE = Script(
    _BEGIN
    + f"""
local task, expected, fence, status = found(), tonumber(ARGV[4]), ARGV[5], ARGV[6]
if not task or is_over(task.status) or task.revision ~= expected then return nil end
if fence ~= '' and tonumber(fence) ~= task.fence then return nil end
task.status = status
if is_over(status) then task.holder, task.lease = '', 0 end
redis.call('HSET', KEYS[1], 'data', ARGV[7])
write(task)
return {_FOUND}
"""
)
_CLAIM = Script(
    _BEGIN
    + f"""
local task = found()
if not task or is_over(task.status) then return nil end
if task.holder ~= '' and task.lease > now then return nil end
task.holder, task.fence, task.lease = ARGV[4], task.fence + 1, now + tonumber(ARGV[5])
write(task)
return {_FOUND}
"""
)
_RELEASE = Script(
    _BEGIN
    + """
local task = found()
if not task or task.holder == '' or task.fence ~= tonumber(ARGV[4]) then return 0 end
task.holder, task.lease = '', 0
write(task)
return task.revision + 1
"""
)
_RENEW = Script(
    _BEGIN
    + """
local task = found()
if not task or task.holder == '' or task.fence ~= tonumber(ARGV[4]) then return 0 end
task.lease = now + tonumber(ARGV[5])
redis.call('HSET', KEYS[1], 'lease', exact(task.lease))
place(task)
return 1
"""
)
_LAPSED = Script(
    _BEGIN
    + _SWEEP
    + """
sweep(KEYS[4], ARGV[6], ARGV[7])
return redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', exact(now), 'LIMIT', 0, tonumber(ARGV[5]))
"""
)
_DELETE = Script(
    _BEGIN
    + """
local owner = redis.call('HGET', KEYS[1], 'owner')
if not owner then return 0 end
redis.call('DEL', KEYS[1])
redis.call('ZREM', KEYS[2], id)
redis.call('ZREM', KEYS[4], owner .. id)
redis.call('ZREM', ARGV[4] .. owner, id)
tell(0)
return 1
"""
)
_PAGE = Script(
    """
local from = 0
if ARGV[1] ~= '' then
    from = redis.call('ZSCORE', KEYS[1], string.sub(ARGV[1], 2))
    if not from then return {} end
end
return redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. from, '+inf', 'LIMIT', 0, tonumber(ARGV[2]))
"""
)


class RedisTaskStore:
    """A `TaskStore` in Redis or Valkey.

    Args:
        link: The connection.
        max_tasks: The most tasks the store keeps.
        max_per_owner: The most tasks of one identity.
        now: Returns the time that leases and expiry are measured by; by default the server's clock is
            used.
    """

    durable = True

    def __init__(
        self,
        link: RedisLink,
        max_tasks: int = 100_000,
        max_per_owner: int = 10_000,
        now: Callable[[], float] | None = None,
    ) -> None:
        self._link = link
        self._max = max_tasks
        self._max_per_owner = max_per_owner
        self._now = now
        self._writer = ""  # marks the changes of this process; new with each start
        self._hearers: list[tuple[Hear, Callable[[], bool], Callable[[], None] | None]] = []
        self._one = link.key("task", "")  # the key of a task, before its id
        self._owners = link.key("tasks", "of", "")  # that of an owner's tasks, before its digest
        self._number = link.key("tasks", "number")
        self._all = [link.key("tasks", each) for each in ("open", "changes", "expiries")]
        self._tail = Tail(link, link.key("tasks", "changes"), self._heard, self._missed)
        self._news: dict[str, int] = {}  # own changes not passed to hearers yet

    async def start(self) -> None:
        """Connect. Raises `StoreUnavailable` for a server that cannot be used."""
        await self._link.start()
        self._writer = clock.token(9)
        await self._tail.start()

    async def close(self) -> None:
        """Finish all steps, and disconnect."""
        await self._tail.close()
        await self._link.close()

    # Steps

    async def create(self, task: TaskRecord, holder: str, lease: float) -> TaskRecord:
        """Store a new task with its first lease."""
        owner, link = _digest(task.owner), self._link
        keys = self._keys(task.id)
        keys += [self._owners + owner, self._number]
        reply = await link.run(
            _CREATE,
            keys,
            (
                *self._first(task.id),
                *(_EXPIRED_AT_ONCE, owner, lease, task.ttl, self._max, self._max_per_owner),
                *(self._one, self._owners),
                *(_pack(task), holder, task.status, msgspec.json.encode(task.owner)),
            ),
        )
        match reply:
            case b"taken":
                raise ValueError("a task with this id exists")
            case b"full":
                raise TasksFull(f"there are {self._max} tasks already")
            case b"share":
                raise TasksFull(f"this owner has {self._max_per_owner} tasks already")
        now = float(reply)
        held = {"holder": holder, "fence": 1, "lease_until": now + lease}
        return replace(task, created=now, updated=now, revision=1, **held)

    async def get(self, id: str, owner: Identity) -> TaskRecord | None:
        """Return a task to its owner."""
        task = await self._find(id)
        return task if task is not None and task.owner == owner else None

    async def machine_of(self, id: str) -> str | None:
        """Return the machine that runs a task; None when no machine does."""
        task = await self._find(id)
        return None if task is None or not task.holder else machine_in(task.holder)

    async def _find(self, id: str) -> TaskRecord | None:
        return _record(await self._link.run(_GET, self._keys(id), self._first(id)))

    async def page(self, owner: Identity, after: str | None, limit: int) -> list[TaskRecord]:
        """Return a page of an owner's tasks."""
        own = self._owners + _digest(owner)
        position = "" if after is None else f"+{after}"
        ids = await self._link.run(_PAGE, [own], (position, limit))
        return await self._read_all(ids)

    async def _read_all(self, ids: list[bytes]) -> list[TaskRecord]:
        """Return the tasks that exist; skip what is not a task, and log it."""
        finding = (self._find(id.decode(errors="replace")) for id in ids)
        tasks = []
        for found in await asyncio.gather(*finding, return_exceptions=True):
            if isinstance(found, TaskRecord):
                tasks.append(found)
            elif isinstance(found, Unreadable):
                logger.error("a task is passed over: %s", found)
            elif found is not None:
                raise found
        return tasks

    async def update(
        self, task: TaskRecord, expected: int, fence: int | None = None
    ) -> TaskRecord | None:
        """Replace a task that did not change since it was read."""
        given = (expected, "" if fence is None else fence, task.status, _pack(task))
        return await self._change(_UPDATE, task.id, given)

    async def claim(self, id: str, holder: str, lease: float) -> TaskRecord | None:
        """Take a free lease."""
        return await self._change(_CLAIM, id, (holder, lease))

    async def _change(self, script: Script, id: str, given: tuple[Any, ...]) -> TaskRecord | None:
        reply = await self._link.run(script, self._keys(id), (*self._first(id), *given))
        task = _record(reply)
        if task is not None:
            self._tell(id, task.revision)
        return task

    async def renew(self, fences: Mapping[str, int], lease: float) -> set[str]:
        """Extend leases that are still held. A lease that lapsed unnoticed is extended, too."""
        replies = await asyncio.gather(
            *(
                self._link.run(_RENEW, self._keys(id), (*self._first(id), fence, lease))
                for id, fence in fences.items()
            )
        )
        return {id for id, renewed in zip(fences, replies, strict=True) if renewed}

    async def release(self, id: str, fence: int) -> bool:
        """Release a lease."""
        revision = await self._link.run(_RELEASE, self._keys(id), (*self._first(id), fence))
        if revision:
            self._tell(id, revision)
        return bool(revision)

    async def lapsed(self, limit: int) -> list[TaskRecord]:
        """Return tasks that need a worker; remove some that have expired."""
        link = self._link
        given = (_EXPIRED_AT_ONCE, limit, self._one, self._owners)
        ids = await link.run(_LAPSED, self._keys(""), (*self._first(""), *given))
        found = await self._read_all(ids)
        return [task for task in found if task.status not in TERMINAL]

    async def delete(self, id: str) -> None:
        """Remove a task."""
        await self._link.run(_DELETE, self._keys(id), (*self._first(id), self._owners))
        self._tell(id, 0)

    def _keys(self, id: str) -> list[str]:
        return [self._one + id, *self._all]

    def _first(self, id: str) -> tuple[str | float, ...]:
        return ("" if self._now is None else self._now(), self._writer, id)

    # Hearing of changes

    def watch(
        self, hear: Hear, wanted: Callable[[], bool], missed: Callable[[], None] | None = None
    ) -> Callable[[], None]:
        """Call a function for each change: own ones in the next turn, others as the stream is read."""
        entry = (hear, wanted, missed)
        self._hearers.append(entry)
        return lambda: self._hearers.remove(entry)

    def parts(self) -> Mapping[str, Callable[[], Awaitable[Any]]]:
        """Return nothing: the bus reads the stream, and belongs to the whole store."""
        return {}

    def _tell(self, id: str, revision: int) -> None:
        if self._hearers:
            if not self._news:
                asyncio.get_running_loop().call_soon(self._spread)
            self._news[id] = revision

    def _spread(self) -> None:
        news, self._news = self._news, {}
        for hear, _, _ in list(self._hearers):
            for id, revision in news.items():
                hear(id, revision)

    def _heard(self, entry: Mapping[bytes, bytes], _id: bytes) -> None:
        if entry.get(b"w") == self._writer.encode():
            return
        id, _, revision = entry.get(b"m", b"").decode(errors="replace").rpartition(" ")
        for hear, wanted, _ in list(self._hearers):
            if wanted() and revision.isdigit():
                hear(id, int(revision))

    def _missed(self) -> None:
        for _, _, missed in list(self._hearers):
            if missed is not None:
                missed()


def _digest(owner: Identity) -> str:
    return blake2b(msgspec.json.encode(owner), digest_size=16).hexdigest()


def _pack(task: TaskRecord) -> bytes:
    return msgspec.msgpack.encode(task)


def _record(reply: list[bytes] | None) -> TaskRecord | None:
    """Decode a task from a reply; raises `Unreadable` if it is not a task."""
    if reply is None:
        return None
    data, revision, fence, holder, lease, created, updated, ttl, status, owner = reply
    try:
        task = msgspec.msgpack.decode(data, type=TaskRecord)
        return replace(
            task,
            owner=msgspec.json.decode(owner, type=Identity),
            revision=int(revision),
            fence=int(fence),
            holder=holder.decode() or None,
            lease_until=float(lease),
            created=float(created),
            updated=float(updated),
            ttl=float(ttl),
            status=status.decode(),
        )
    except (msgspec.DecodeError, ValueError, TypeError, AttributeError) as error:
        raise Unreadable(f"the store has something that is not a task: {error}") from None
