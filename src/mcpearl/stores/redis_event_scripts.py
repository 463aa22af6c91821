"""The steps of the event store on Redis, as scripts.

KEYS are the state of a stream (a hash), its events (a Redis stream whose ids are the event numbers), and
the names of the session's streams. The hash has: `last` (the newest number), `ended` (the writer that
ended it), `read` (the newest number that was read), `producer` (the number of a process), `words` (events
that end the stream if its producer dies), `bytes` (of all kept events), `reader:<process>` for each
process that reads it, and `seq:<writer>` (the sequence number of the writer's last stored event).
"""

from mcpearl.stores.redis_script import Script

_ADD = """
local function add(message, most, room)
    local last = redis.call('HINCRBY', KEYS[1], 'last', 1)
    redis.call('XADD', KEYS[2], last .. '-0', 'm', message)
    local size = redis.call('HINCRBY', KEYS[1], 'bytes', #message)
    local count = redis.call('XLEN', KEYS[2])
    while count > 1 and (size > room or count > most) do
        local oldest = redis.call('XRANGE', KEYS[2], '-', '+', 'COUNT', 1)[1]
        redis.call('XDEL', KEYS[2], oldest[1])
        size = redis.call('HINCRBY', KEYS[1], 'bytes', -#oldest[2][2])
        count = count - 1
    end
    return last
end
-- The processes that read the stream, beside one of them.
local function readers(own)
    local found, fields = {}, redis.call('HGETALL', KEYS[1])
    for n = 1, #fields, 2 do
        local process = string.match(fields[n], '^reader:(%d+)$')
        if process and process ~= own then table.insert(found, process) end
    end
    return found
end
local function note_read(read)
    if tonumber(read) > tonumber(redis.call('HGET', KEYS[1], 'read') or 0) then
        redis.call('HSET', KEYS[1], 'read', read)
    end
end
local function linger_or(linger, ttl)
    local state = redis.call('HMGET', KEYS[1], 'ended', 'read', 'last')
    if state[1] and tonumber(state[2] or 0) >= tonumber(state[3] or 0) then ttl = linger end
    for n = 1, 2 do redis.call('PEXPIRE', KEYS[n], tonumber(ttl) * 1000) end
end
"""

APPEND = Script(
    _ADD
    + """
local writer, first, ends, read, process = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4], ARGV[5]
local most, room, streams = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
local ttl, linger, name, words = ARGV[9], ARGV[10], ARGV[11], ARGV[12]
local state = redis.call('HMGET', KEYS[1], 'ended', 'last', 'seq:' .. writer)
local others = readers(process)
if state[1] then
    local last = tonumber(state[2] or 0)
    if state[1] == writer then return {last, last, others} end
    return {-1, 0, {}}
end
if words ~= '' then redis.call('HSET', KEYS[1], 'producer', process, 'words', words) end
local before, there = tonumber(state[2] or 0), tonumber(state[3] or 0)
local last = before
for n = 13, #ARGV do
    if first + n - 13 > there then last = add(ARGV[n], most, room) end
end
redis.call('HSET', KEYS[1], 'last', last, 'seq:' .. writer, math.max(there, first + #ARGV - 13))
if ends == '1' then redis.call('HSET', KEYS[1], 'ended', writer) end
note_read(read)
redis.call('ZADD', KEYS[3], 'NX', exact(time_of('')), name)
redis.call('PEXPIRE', KEYS[3], tonumber(ttl) * 1000)
linger_or(linger, ttl)
local over = redis.call('ZCARD', KEYS[3]) - streams
if over > 0 then
    local base_m, base_e = string.sub(KEYS[1], 1, -#name - 1), string.sub(KEYS[2], 1, -#name - 1)
    for _, oldest in ipairs(redis.call('ZRANGE', KEYS[3], 0, over + 15)) do
        local found = redis.call('HMGET', base_m .. oldest, 'last', 'ended')
        if found[1] and not found[2] then
            redis.call('ZADD', KEYS[3], 'XX', exact(time_of('')), oldest)  -- open: it is the newest again
        elseif over > 0 then
            redis.call('DEL', base_m .. oldest, base_e .. oldest)
            redis.call('ZREM', KEYS[3], oldest)
            over = over - 1
        end
    end
end
if last == 0 and ends == '1' then
    redis.call('DEL', KEYS[1], KEYS[2])
    redis.call('ZREM', KEYS[3], name)
end
return {last, before, others}
"""
)
"""Append events of one process, and the end if there is one; return the newest number, the newest before,
and the other processes that read the stream. The newest is -1 if another process ended the stream."""

ANNOUNCE = Script(
    """
local most, room, ttl, known = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local message, position = ARGV[5], ARGV[6]
local text, now = redis.sha1hex(message), exact(time_of(''))
-- Expiries are moved by a quarter at least: most announcements leave them as they are.
local function keep_longer(key)
    if redis.call('PTTL', key) < ttl * 1000 then redis.call('PEXPIRE', key, ttl * 1250) end
end
local function announce(state, events, streams, announced, name)
    local session = string.sub(streams, 1, -#'streams' - 1) .. 'session'
    if redis.call('HGET', session, 'revision') == '-1' then return {-2, 0} end
    if position ~= '' then
        local before = redis.call('HGET', announced, text)
        if before and before >= position then
            return {tonumber(redis.call('HGET', state, 'last') or 0) or -1, 0}
        end
        if not before and redis.call('HLEN', announced) >= known then redis.call('DEL', announced) end
        redis.call('HSET', announced, text, position)
        keep_longer(announced)
    end
    local last = redis.call('HINCRBY', state, 'last', 1)
    redis.call('XADD', events, last .. '-0', 'm', message)
    local size = redis.call('HINCRBY', state, 'bytes', #message)
    local count = redis.call('XLEN', events)
    while count > 1 and (size > room or count > most) do
        local oldest = redis.call('XRANGE', events, '-', '+', 'COUNT', 1)[1]
        redis.call('XDEL', events, oldest[1])
        size = redis.call('HINCRBY', state, 'bytes', -#oldest[2][2])
        count = count - 1
    end
    redis.call('ZADD', streams, 'NX', now, name)
    keep_longer(state)
    keep_longer(events)
    keep_longer(streams)
    return {last, 1}
end
local replies = {}
for n = 1, #KEYS / 4 do
    local k = 4 * n
    local done, reply = pcall(announce, KEYS[k - 3], KEYS[k - 2], KEYS[k - 1], KEYS[k], ARGV[6 + n])
    if not done then
        local why = type(reply) == 'table' and reply.err or tostring(reply)
        if not (string.find(why, 'WRONGTYPE', 1, true) or string.find(why, '^-?ERR ')) then
            return redis.error_reply(why)  -- of the whole server, such as that its memory is full
        end
        reply = {-1, 0}
    end
    replies[n] = reply
end
return replies
"""
)
"""Append an announcement to some streams, unless it, or a newer one with the same text, was appended to
them. For each stream, return the newest number, and 1 if the announcement was appended, else 0. The
number is -1 if a key has a value that is not ours, and -2 if the session was ended. A stream has four
keys here: the fourth has the newest position of each text."""

AFTER = Script(
    _ADD
    + """
local position, read, reader = ARGV[1], ARGV[2], ARGV[3]
local state = redis.call('HMGET', KEYS[1], 'last', 'ended', 'producer', 'read')
if not state[1] then
    if position ~= '' or reader == '0' then return {'unknown'} end
    redis.call('HSET', KEYS[1], 'last', 0)  -- it begins with its reader
    redis.call('ZADD', KEYS[3], 'NX', exact(time_of('')), ARGV[5])
    for n = 1, 3, 2 do redis.call('PEXPIRE', KEYS[n], tonumber(ARGV[4]) * 1000) end
    state[1] = 0
end
note_read(read)
local last, from = tonumber(state[1]), tonumber(position)
local oldest = redis.call('XRANGE', KEYS[2], '-', '+', 'COUNT', 1)[1]
local first = last + 1
if oldest then first = tonumber(string.match(oldest[1], '^%d+')) end
if position == '' then
    from = math.max(tonumber(redis.call('HGET', KEYS[1], 'read') or 0), first - 1)
elseif from < 1 or from > last then
    return {'never'}
elseif from < first - 1 then
    return {'gone'}
end
if reader ~= '0' and not state[2] then redis.call('HSET', KEYS[1], 'reader:' .. reader, 1) end
local entries = redis.call('XRANGE', KEYS[2], (from + 1) .. '-0', '+')
local others = reader ~= '0' and readers(reader) or {}
return {'ok', last, state[2] and 1 or 0, state[3] or 0, entries, others}
"""
)
"""Return the events after a position, and note the calling process as a reader of the stream."""

READ = Script(
    """
local linger, failed = tonumber(ARGV[1]) * 1000, nil
local function note(state, events, number)
    local found = redis.call('HMGET', state, 'last', 'read', 'ended')
    if not found[1] then return end
    local before = tonumber(found[2] or 0)
    if number > before then redis.call('HSET', state, 'read', number) end
    if found[3] and math.max(number, before) >= tonumber(found[1]) then
        redis.call('PEXPIRE', state, linger)
        redis.call('PEXPIRE', events, linger)
    end
end
for n = 1, #KEYS / 2 do
    local done, why = pcall(note, KEYS[2 * n - 1], KEYS[2 * n], tonumber(ARGV[1 + n]))
    if not done then failed = type(why) == 'table' and why.err or tostring(why) end
end
return failed and redis.error_reply(failed) or 1
"""
)
"""Note how far some streams were read. A stream has two keys here. One that cannot be noted does not keep
the others from it."""

LEAVE = Script(
    _ADD
    + """
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
note_read(ARGV[2])
redis.call('HDEL', KEYS[1], 'reader:' .. ARGV[1])
return 1
"""
)
"""Note that a process no longer reads a stream."""

END_WITH = Script(
    _ADD
    + """
local state = redis.call('HMGET', KEYS[1], 'ended', 'producer', 'words')
if state[1] or state[2] ~= ARGV[1] then return 0 end
for _, message in ipairs(cmsgpack.unpack(state[3])) do add(message, 1000000, 1000000000) end
redis.call('HSET', KEYS[1], 'ended', 'heirs of ' .. ARGV[1])
for n = 1, 2 do redis.call('PEXPIRE', KEYS[n], tonumber(ARGV[2]) * 1000) end
return 1
"""
)
"""Append the last words of a dead producer, and end its stream."""

FORGET = Script(
    """
for _, name in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
    redis.call('DEL', ARGV[1] .. name, ARGV[2] .. name, ARGV[3] .. name)
end
return redis.call('DEL', KEYS[1])
"""
)
"""Delete the streams of a session."""
