"""Sessions shared by many machines: what never changes is sealed into the id, the rest is in Redis.

An id that this deployment did not make is refused without asking the store. A session that has just begun
has nothing in the store yet; its record is written when the client is ready, subscribes or sets its log
level, and other processes that have the session are told. An ended session is remembered for as long as
its id alone would bring it back, and for a minute at least.
"""

import logging
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from mcpearl.protocol.seal import KeyRing, Unsealable
from mcpearl.protocol.snapshot import EndSnapshot
from mcpearl.runtime import clock
from mcpearl.stores.errors import StoreUnavailable
from mcpearl.stores.redis_bus import RedisBus
from mcpearl.stores.redis_count import SessionCount
from mcpearl.stores.redis_link import RedisLink
from mcpearl.stores.redis_script import Script
from mcpearl.stores.sessions import Identity, Missed, RecordChanged, SessionRecord
from mcpearl.stores.topics import MAX_MESSAGE, Unsubscribe
from mcpearl.types.base import Implementation
from mcpearl.types.capabilities import ClientCapabilities

logger = logging.getLogger("mcpearl.stores")

MAX_ID = 2048  # characters of an id; facts that need more are stored
YOUNG = 180.0  # seconds for which a new session may exist without being in the store
_ENDED = -1  # the revision of a session that was ended
_NOTED = 60.0  # seconds an end is noted at least: other processes may still announce to the session
_SKEW = 2.0  # seconds by which the clocks of the nodes of a cluster may differ
_TOPIC = "sessions"

_LOAD = Script(
    """
local now = time_of(ARGV[1])
local found = redis.call('HMGET', KEYS[1], 'revision', 'data', 'expires', 'since', 'ttl')
if not found[1] or tonumber(found[3]) <= now then return nil end
local ttl = tonumber(found[5] or 0)
if tonumber(found[3]) - now < 0.75 * ttl then  -- it is loaded because it is used
    redis.call('HSET', KEYS[1], 'expires', exact(now + ttl))
    redis.call('PEXPIRE', KEYS[1], math.ceil(ttl * 1000) + 1000)
end
return {found[1], found[2], found[4] or '0'}
"""
)
_SAVE = Script(
    """
local now, revision, young = time_of(ARGV[1]), tonumber(ARGV[2]), ARGV[3] == '1'
local found = redis.call('HMGET', KEYS[1], 'revision', 'expires', 'since')
local since = exact(time_of(''))
if found[1] and tonumber(found[2]) > now then
    if tonumber(found[1]) + 1 ~= revision or tonumber(found[1]) < 0 then return 0 end
    since = found[3] or since
elseif revision ~= 1 and not (young and revision == 2) then
    return 0
end
local ttl = tonumber(ARGV[5])
redis.call('HSET', KEYS[1], 'revision', revision, 'data', ARGV[4], 'expires', exact(now + ttl),
    'since', since, 'ttl', ARGV[5])
redis.call('PEXPIRE', KEYS[1], math.ceil(ttl * 1000) + 1000)
if KEYS[2] and #ARGV > 5 then
    redis.call('XADD', KEYS[2], 'MAXLEN', '~', ARGV[6], '*', 'w', ARGV[8], 't', ARGV[9], 'm', ARGV[10])
    keep(KEYS[2], tonumber(ARGV[7]))
end
return 1
"""
)
_TOUCH = Script(
    """
local now, ttl = time_of(ARGV[1]), tonumber(ARGV[2])
local found = redis.call('HMGET', KEYS[1], 'revision', 'expires')
if not found[1] or tonumber(found[1]) < 0 or tonumber(found[2]) <= now then return 0 end
redis.call('HSET', KEYS[1], 'expires', exact(now + ttl), 'ttl', ARGV[2])
redis.call('PEXPIRE', KEYS[1], math.ceil(ttl * 1000) + 1000)
return 1
"""
)
_END = Script(
    """
local now, noted = time_of(ARGV[1]), tonumber(ARGV[2])
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'revision', -1, 'data', '', 'expires', exact(now + noted))
redis.call('PEXPIRE', KEYS[1], math.ceil(noted * 1000))
return 1
"""
)


class _Facts(Struct, array_like=True, frozen=True, gc=False):
    """The part of a session that never changes."""

    began: float
    identity: Identity
    version: str
    client: Implementation | None
    capabilities: ClientCapabilities
    whole: bool = True
    """False if client and capabilities are too large for an id."""
    member: int = 0
    """The number of the process in which the session began."""
    caller: str = ""
    """The caller whose sessions are counted together; empty for one that cannot be told."""


class _Changing(Struct, array_like=True, frozen=True, gc=False):
    """The part of a session that is stored."""

    log_level: str | None
    ready: bool
    uris: tuple[str, ...]
    client: Implementation | None = None
    capabilities: ClientCapabilities | None = None


_NOTHING = _Changing(None, False, ())  # for a session that has just begun


class _SessionNotice(Struct, array_like=True, frozen=True):
    """What other processes are told about a change."""

    id: str
    revision: int
    changing: _Changing | None = None
    """None if it is too large for the bus; the receiver then acts as if it had missed changes."""


class RedisSessionStore:
    """A `SessionStore` for all machines of a deployment.

    Args:
        link: The connection.
        bus: Carries changes to other processes.
        now: Returns the time that expiry is measured by; by default the server's clock is used.
    """

    def __init__(
        self, link: RedisLink, bus: RedisBus, now: Callable[[], float] | None = None
    ) -> None:
        self._link = link
        self._bus = bus
        self._now = now
        self._keys: KeyRing | None = None
        self._bound = link.prefix.encode()
        self._newest: tuple[str, _Facts] | None = None  # sealed last, and likely saved next
        self._watchers: list[RecordChanged] = []  # the endpoints of this process
        self.counted = SessionCount(link)
        """The sessions of all machines."""

    def use_keys(self, keys: list[bytes]) -> None:
        """Seal ids with the first of these keys, and open them with all."""
        self._keys = KeyRing(keys, clock.random_bytes)

    # Ids

    def new_id(self, record: SessionRecord) -> str:
        """Return an id with the facts of a session sealed into it, unless the store is away."""
        if not self._link.is_up:
            raise StoreUnavailable("a session that begins needs the store")
        state = record.state
        facts = _Facts(
            clock.now(),
            record.identity,
            state.version,
            state.client,
            state.capabilities,
            member=self._bus.number,
            caller=record.caller,
        )
        id = self._seal(facts)
        if len(id) > MAX_ID:
            facts = replace(facts, client=None, capabilities=ClientCapabilities(), whole=False)
            id = self._seal(facts)
        self._newest = id, facts
        return id

    def begin(self, id: str, caller: str, most: int) -> bool:
        """Note a session that begins, while many more may."""
        if not self.counted.may_begin(caller, most):
            return False
        self.counted.begun(digest_of(id), caller, YOUNG)
        return True

    async def admit(self, id: str, caller: str, most: int) -> bool:
        """Count a session in the store before it begins."""
        return await self.counted.admit(digest_of(id), caller, YOUNG, most)

    def is_in_id(self, record: SessionRecord) -> bool:
        """Whether nothing has changed since the id was made, and the facts fit into it."""
        newest, state = self._newest, record.state
        if newest is None or not newest[1].whole:
            return False
        return not (state.ready or state.log_level or record.uris)

    @property
    def count(self) -> int:
        """How many sessions all machines have, as of a second ago or of the last `admit`."""
        return self.counted.now

    def count_of(self, caller: str) -> int:
        """How many sessions a caller has on all machines, as of a second ago or of the last `admit`."""
        return self.counted.of(caller)

    def _seal(self, facts: _Facts) -> str:
        if self._keys is None:
            raise StoreUnavailable("the keys of the deployment are not there yet")
        sealed = self._keys.encrypt(msgspec.msgpack.encode(facts), self._bound)
        return urlsafe_b64encode(sealed).rstrip(b"=").decode("ascii")

    def _open(self, id: str) -> _Facts | None:
        """Return the facts in an id; None for one that this deployment did not make."""
        if self._keys is None or len(id) > 2 * MAX_ID:
            return None
        try:
            spelled = id.encode("ascii")
            sealed = urlsafe_b64decode(spelled + b"=" * (-len(spelled) % 4))
            if urlsafe_b64encode(sealed).rstrip(b"=") != spelled:
                return None  # the same bytes in another spelling
            plain = self._keys.decrypt(sealed, self._bound)
            return msgspec.msgpack.decode(plain, type=_Facts)
        except (ValueError, Unsealable, msgspec.DecodeError):
            return None

    def _key(self, id: str) -> str:
        return self._link.key_of(digest_of(id), "session")

    def _first(self) -> str | float:
        return "" if self._now is None else self._now()

    # Records

    async def load(self, id: str) -> SessionRecord | None:
        """Return a session, whichever process it began in."""
        facts = self._open(id)
        if facts is None:
            return None
        reply = await self._link.run(_LOAD, [self._key(id)], (self._first(),))
        if reply is None:
            if not _is_young(facts) or not facts.whole:
                return None
            return _record(id, facts, _NOTHING, 1, facts.began)
        revision = int(reply[0])
        if revision == _ENDED:
            return None
        try:
            changing = msgspec.msgpack.decode(reply[1], type=_Changing)
            return _record(id, facts, changing, revision, float(reply[2]))
        except msgspec.DecodeError as error:
            foreign = StoreUnavailable(f"the store has something that is not a session: {error}")
            logger.error("%s", foreign)
            raise foreign from None

    async def save(self, record: SessionRecord, ttl: float) -> bool:
        """Write the changing part of a session if its revision follows the stored one."""
        newest = self._newest
        if newest is not None and newest[0] == record.id:
            facts: _Facts | None = newest[1]
        else:
            facts = self._open(record.id)
        if facts is None:
            return False
        changing = _changing_of(record, facts)
        if record.revision == 1 and changing == _NOTHING:
            return True  # all of it is in the id
        keys: list[str] = [self._key(record.id)]
        given: list[Any] = [self._first(), record.revision, int(_is_young(facts))]
        given += [msgspec.msgpack.encode(changing), ttl]
        hearer = self._hearer(record, facts)
        tells = hearer is not None
        message = _message(_SessionNotice(record.id, record.revision, changing)) if tells else b""
        if tells and self._link.address.kind != "cluster":  # a cluster has the keys on two nodes
            keys.append(self._bus.key if not hearer else self._bus.inbox_of(hearer))
            given += self._bus.entry(_TOPIC, message)
        saved = await self._link.run(_SAVE, keys, given)
        if saved:
            self.counted.used(digest_of(record.id), facts.caller, ttl)
            self._tell_endpoints(record.id, record)
        if saved and hearer is not None and len(keys) == 1:
            if hearer:
                await self._bus.pass_to(hearer, _TOPIC, message)
            else:
                await self._bus.spread(_TOPIC, message)
        return bool(saved)

    def _hearer(self, record: SessionRecord, facts: _Facts) -> int | None:
        """Return the process to tell about a change; 0 for all, None if no other has the session."""
        if record.revision > 2:
            return 0
        return None if facts.member in (0, self._bus.number) else facts.member

    async def missed(self, record: SessionRecord) -> list[Missed] | None:
        """Return what any process announced since a session was saved."""
        margin = _SKEW if self._link.address.kind == "cluster" else 0.0  # clocks of nodes differ
        found = await self._bus.since(record.since - margin)
        if found is None:
            return None
        return [Missed(topic, stored.message, stored.position) for topic, stored in found]

    async def touch(self, id: str, ttl: float) -> bool:
        """Move the expiry of a session."""
        facts = self._open(id)
        if facts is None:
            return False
        touched = await self._link.run(_TOUCH, [self._key(id)], (self._first(), ttl))
        if touched:
            self.counted.used(digest_of(id), facts.caller, ttl)
        return bool(touched)

    async def delete(self, id: str) -> None:
        """End a session everywhere."""
        facts = self._open(id)
        if facts is None:
            return
        noted = YOUNG if _is_young(facts) else _NOTED
        await self._link.run(_END, [self._key(id)], (self._first(), noted))
        self.counted.ended(digest_of(id), facts.caller)
        self._tell_endpoints(id, None)
        await self._bus.spread(_TOPIC, _message(_SessionNotice(id, _ENDED)))

    def _tell_endpoints(self, id: str, record: SessionRecord | None) -> None:
        """Tell the endpoints of this process about a change that one of them made."""
        if len(self._watchers) > 1:
            for hear in list(self._watchers):
                hear(id, record)

    def watch(self, hear: RecordChanged, missed: Callable[[], None]) -> Unsubscribe:
        """Call a function for each session that another process changed or ended."""

        def heard(message: bytes) -> None:
            notice = msgspec.msgpack.decode(message, type=_SessionNotice)
            facts, changing = self._open(notice.id), notice.changing
            if facts is None:
                return
            if notice.revision == _ENDED:
                hear(notice.id, None)
            elif changing is None:
                missed()
            else:
                hear(notice.id, _record(notice.id, facts, changing, notice.revision))

        ends = self._bus.subscribe(_TOPIC, heard, missed), self._bus.receive(_TOPIC, heard)
        self._watchers.append(hear)

        def stop() -> None:
            self._watchers.remove(hear)
            for end in ends:
                end()

        return stop


def _message(notice: _SessionNotice) -> bytes:
    message = msgspec.msgpack.encode(notice)
    if len(message) > MAX_MESSAGE - len(_TOPIC):
        message = msgspec.msgpack.encode(_SessionNotice(notice.id, notice.revision))
    return message


def digest_of(id: str) -> str:
    """Return a digest of a session id, for use in keys.

    The id itself must not be in the store: whatever reads it there could use the session.
    """
    return blake2b(id.encode(), digest_size=16).hexdigest()


def _is_young(facts: _Facts) -> bool:
    """Whether a session may be too new to be in the store. The clocks of machines may differ."""
    return abs(clock.now() - facts.began) < YOUNG


def _changing_of(record: SessionRecord, facts: _Facts) -> _Changing:
    state = record.state
    rest: tuple[Any, ...] = () if facts.whole else (state.client, state.capabilities)
    return _Changing(state.log_level, state.ready, record.uris, *rest)


def _record(
    id: str, facts: _Facts, changing: _Changing, revision: int, since: float = 0.0
) -> SessionRecord:
    client, capabilities = facts.client, facts.capabilities
    if not facts.whole:
        client, capabilities = changing.client, changing.capabilities or ClientCapabilities()
    state = EndSnapshot(facts.version, client, capabilities, changing.log_level, changing.ready)
    return SessionRecord(
        id=id,
        identity=facts.identity,
        caller=facts.caller,
        state=state,
        uris=changing.uris,
        revision=revision,
        since=since,
    )
