"""The steps of `RedisTaskStore`, each a script that the server runs atomically.

KEYS begin with the task and the set of open tasks; ARGV with the time (if a test passes one) and the id.
"""

from mcpearl.stores.redis_script import Script
from mcpearl.stores.redis_task_value import (
    FIRST_TERMINAL,
    FORMAT,
    FRONT_SIZE,
    LUA_CHANGE,
    LUA_CREATION,
    LUA_LAYOUT,
)

_SLACK = (
    60  # seconds that the keys of all tasks outlive what is in them, so that few steps extend them
)

_BEGIN = f"""
local now, id = time_of(ARGV[1]), ARGV[2]
local function is_over(status) return status >= {FIRST_TERMINAL} end
local function outlive(key, seconds)
    if redis.call('PTTL', key) < seconds * 1000 then
        redis.call('PEXPIRE', key, math.ceil((seconds + {_SLACK}) * 1000))
    end
end
local function front_of(task)
    return struct.pack('{LUA_LAYOUT}', {FORMAT}, task.status, #task.holder, #task.identity,
        task.revision, task.fence, task.lease, task.created, task.updated, task.ttl, task.owner)
end
-- The set of tasks that need a worker once their lease lapses: open ones that are not parked.
local function place(task)
    if is_over(task.status) or (task.status == 1 and task.holder == '') then
        redis.call('ZREM', KEYS[2], id)
    else
        redis.call('ZADD', KEYS[2], exact(task.lease), id)
        outlive(KEYS[2], task.created + task.ttl - now)
    end
end
"""
# KEYS[3] is the stream of changes, and ARGV[3] the writer.
_FOUND = f"""
local function found(last)
    local value = redis.call('GETRANGE', KEYS[1], 0, last)
    if #value < {FRONT_SIZE} then return nil end
    local task, form, held, length = {{}}
    form, task.status, held, length, task.revision, task.fence, task.lease, task.created, task.updated,
        task.ttl, task.owner = struct.unpack('{LUA_LAYOUT}', value)
    if form ~= {FORMAT} or task.created + task.ttl <= now then return nil end
    local from = {FRONT_SIZE} + length
    if #value < from + held then value = redis.call('GETRANGE', KEYS[1], 0, from + held - 1) end
    task.identity = string.sub(value, {FRONT_SIZE} + 1, from)
    task.holder = string.sub(value, from + 1, from + held)
    task.written = string.sub(value, from + held + 1)
    return task
end
local function tell(revision)
    redis.call('XADD', KEYS[3], 'MAXLEN', '~', 10000, '*', 'w', ARGV[3], 'm', id .. ' ' .. revision)
    outlive(KEYS[3], 3600)
end
local function write(task)
    task.revision, task.updated = task.revision + 1, now
    local first = front_of(task) .. task.identity .. task.holder
    redis.call('SET', KEYS[1], first .. task.written, 'KEEPTTL')
    place(task)
    tell(task.revision)
    return first
end
"""
_HEAD = 1023  # the last byte of what is read where only front, owner and holder are needed
_SWEEP = """
local function sweep(expiries, prefix, owners, most)
    local gone = redis.call('ZRANGEBYSCORE', expiries, '-inf', exact(now), 'LIMIT', 0, most)
    for _, each in ipairs(gone) do
        local owner, task = string.sub(each, 1, 32), string.sub(each, 33)
        redis.call('ZREM', expiries, each)
        redis.call('ZREM', KEYS[2], task)
        redis.call('ZREM', owners .. owner, task)
        redis.call('DEL', prefix .. task)
    end
end
"""
_EXPIRED_AT_ONCE = 1000

CREATE = Script(
    _BEGIN
    + _SWEEP
    + f"""
local expiries, own, number, rest = KEYS[3], KEYS[4], KEYS[5], ARGV[4]
local status, held, length, lease, ttl, most, share = struct.unpack('{LUA_CREATION}', ARGV[3])
local owner = string.sub(own, -32)
sweep(expiries, string.sub(KEYS[1], 1, -#id - 1), string.sub(own, 1, -33), {_EXPIRED_AT_ONCE})
if redis.call('ZCARD', expiries) >= most then return 'full' end
if redis.call('ZCARD', own) >= share then return 'share' end
local task = {{status = status, revision = 1, fence = 1, lease = now + lease,
    created = now, updated = now, ttl = ttl, owner = owner, identity = string.sub(rest, 1, length),
    holder = string.sub(rest, length + 1, length + held)}}
local front = front_of(task)
if not redis.call('SET', KEYS[1], front .. rest, 'PX', math.ceil(ttl * 1000), 'NX') then
    return 'taken'
end
place(task)
redis.call('ZADD', expiries, exact(now + ttl), owner .. id)
redis.call('ZADD', own, redis.call('INCR', number), id)
for n = 3, 5 do outlive(KEYS[n], ttl) end
return front
"""
)
"""Stores a new task. Returns its front, or a word that says why not."""
UPDATE = Script(
    _BEGIN
    + _FOUND
    + f"""
local task = found({_HEAD})
local expected, fence, status = struct.unpack('{LUA_CHANGE}', ARGV[4])
if not task or is_over(task.status) or task.revision ~= expected then return nil end
if fence ~= 0 and fence ~= task.fence then return nil end
task.status, task.written = status, ARGV[5]
if is_over(status) then task.holder, task.lease = '', 0 end
return write(task)
"""
)
"""Replaces what the writer set. Returns the front with owner and holder."""
CLAIM = Script(
    _BEGIN
    + _FOUND
    + """
local task = found(-1)
if not task or is_over(task.status) then return nil end
if task.holder ~= '' and task.lease > now then return nil end
task.holder, task.fence, task.lease = ARGV[4], task.fence + 1, now + tonumber(ARGV[5])
return write(task) .. task.written
"""
)
"""Takes a free lease. Returns the whole task."""
RELEASE = Script(
    _BEGIN
    + _FOUND
    + """
local task = found(-1)
if not task or task.holder == '' or task.fence ~= tonumber(ARGV[4]) then return 0 end
task.holder, task.lease = '', 0
write(task)
return task.revision
"""
)
"""Releases a lease. Returns the new revision; 0 if the lease was lost before."""
RENEW = Script(
    _BEGIN
    + _FOUND
    + f"""
local task = found({_HEAD})
if not task or task.holder == '' or task.fence ~= tonumber(ARGV[4]) then return 0 end
task.lease = now + tonumber(ARGV[5])
redis.call('SETRANGE', KEYS[1], 0, front_of(task))
place(task)
return 1
"""
)
"""Extends a lease that is still held."""
LAPSED = Script(
    _BEGIN
    + _SWEEP
    + f"""
sweep(KEYS[3], KEYS[1], ARGV[4], {_EXPIRED_AT_ONCE})
return redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', exact(now), 'LIMIT', 0, tonumber(ARGV[3]))
"""
)
"""Returns ids of tasks that need a worker; removes some tasks that have expired."""
DELETE = Script(
    _BEGIN
    + _FOUND
    + """
local task = found(-1)
if not task then return 0 end
redis.call('DEL', KEYS[1])
redis.call('ZREM', KEYS[2], id)
redis.call('ZREM', KEYS[4], task.owner .. id)
redis.call('ZREM', ARGV[4] .. task.owner, id)
tell(0)
return 1
"""
)
PAGE = Script(
    """
local from = 0
if ARGV[1] ~= '' then
    from = redis.call('ZSCORE', KEYS[1], string.sub(ARGV[1], 2))
    if not from then return {} end
end
return redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. from, '+inf', 'LIMIT', 0, tonumber(ARGV[2]))
"""
)
"""Returns ids of an owner's tasks, in the order in which they were created."""
