"""The records that a store has of this process's sessions, and what other processes change in them.

A session that several processes serve has a record in a `SessionStore`. It is written before the request
that changed it is answered. Two processes that change a session at the same time merge their changes.
"""

import asyncio
import logging
from collections.abc import Hashable
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Generic, Protocol, TypeVar

from msgspec.structs import replace

from mcpearl.protocol.snapshot import EndSnapshot
from mcpearl.stores.errors import RETRY_AFTER, TOLD, StoreUnavailable
from mcpearl.stores.sessions import Identity, Missed, SessionRecord, SessionStore
from mcpearl.transports.http_server.gate import Refused, busy
from mcpearl.transports.http_server.sessions import Stage, TransportSession

logger = logging.getLogger("mcpearl.http")

_NO_SESSION = "No session can begin"
S = TypeVar("S", bound=TransportSession)

Loaded = tuple[SessionRecord, "list[Missed] | tuple[Missed, ...] | None"]
"""A record, and what was announced since it was saved; None if that is not known."""


class Holder(Protocol[S]):
    """The sessions of this process."""

    def here(self, id: str) -> S | None:
        """Return a session of this process, of any principal."""
        ...

    def all(self) -> list[S]:
        """Return every session of this process."""
        ...

    def advance(self, session: S) -> None:
        """Note how far a session has come that was not in use yet."""
        ...

    def drop(self, session: S) -> None:
        """End a session in this process; its record stays."""
        ...

    async def restore(self, id: str, principal: Any) -> S | None:
        """Bring a session up to date with its record."""
        ...


class SessionRecords(Generic[S]):
    """The records of the sessions of one table.

    Args:
        store: Where they are.
        ttl: Seconds a record is kept after the session was used.
        holder: The sessions of this process.
    """

    def __init__(self, store: SessionStore, ttl: float, holder: Holder[S]) -> None:
        self._store = store
        self._ttl = ttl
        self._holder = holder
        self._saved: dict[str, SessionRecord] = {}  # as they are in the store, by id
        self._saving: set[str] = set()  # ids; changes are merged with those of other processes
        self._loading: dict[str, list[SessionRecord | None]] = {}  # changes that came meanwhile
        self._touching: asyncio.Task[None] | None = None
        self._beside: set[asyncio.Task[None]] = set()
        self._stop_watching = store.watch(self._changed_elsewhere, self._missed_changes)

    def __len__(self) -> int:
        return len(self._saved)

    @property
    def count(self) -> int:
        """About how many sessions all processes have together."""
        return self._store.count

    def count_of(self, caller: str) -> int:
        """About how many sessions one caller has at all processes together."""
        return self._store.count_of(caller)

    def new_id(self, session: S) -> str:
        """Return an id for a session that begins; refused with 503 while the store cannot make one."""
        record = self._following(session, None)
        try:
            id = self._store.new_id(record)
        except StoreUnavailable as error:
            raise _unavailable(error, _NO_SESSION) from None
        if self._store.is_in_id(record):
            self._saved[id] = record
        return id

    def begin(self, session: S, most: int) -> bool:
        """Count a session that begins; return False if `admit` has to be asked whether there is room.

        Args:
            session: The session, with its id.
            most: How many there may be at all processes together.
        """
        return self._store.begin(session.id, session.caller, most)

    async def admit(self, session: S, most: int) -> bool:
        """Count a session that begins, unless there is no room; refused with 503 without the store."""
        try:
            return await self._store.admit(session.id, session.caller, most)
        except StoreUnavailable as error:
            raise _unavailable(error, _NO_SESSION) from None

    def has_saved(self, session: S) -> bool:
        """Whether there is a record of a session, in the store or in its id."""
        return session.id in self._saved

    def _following(self, session: S, saved: SessionRecord | None) -> SessionRecord:
        """Return the record of a session as it is now, with the revision after the saved one."""
        state, uris = session.receiver.snapshot()
        return SessionRecord(
            id=session.id,
            identity=session.principal.identity,
            caller=session.caller,
            state=state,
            uris=uris,
            revision=1 if saved is None else saved.revision + 1,
            since=0.0 if saved is None else saved.since,
        )

    # Reading

    async def load(self, id: str, identity: Identity) -> Loaded | None:
        """Return the record of a session of this identity; refused with 503 when the store is away."""
        changed = self._loading.setdefault(id, [])
        try:
            record = await self._store.load(id)
            missed = () if record is None else await self._store.missed(record)
        except StoreUnavailable as error:
            raise _unavailable(error) from None
        finally:
            self._loading.pop(id, None)
        if record is None or record.identity != identity:
            return None
        for each in changed:  # by another process, while the store was asked
            if each is None:
                return None
            record = each if each.revision > record.revision else record
        return record, None if missed is None else tuple(missed)

    def restored(self, session: S, record: SessionRecord) -> None:
        """Note that a session was built from a record."""
        session.caller = record.caller
        self._saved[session.id] = record

    def adopt(self, session: S, record: SessionRecord) -> None:
        """Take over what another process changed in a session that is here."""
        saved = self._saved.get(session.id)
        if saved is not None and saved.revision >= record.revision:
            return
        session.receiver.adopt(record.state, record.uris)
        self._saved[session.id] = record
        if session.stage is Stage.OPENING:
            self._holder.advance(session)

    def _changed_elsewhere(self, id: str, record: SessionRecord | None) -> None:
        if id in self._loading:
            self._loading[id].append(record)
        session = self._holder.here(id)
        if session is None:
            return
        if record is None:
            self._holder.drop(session)
        elif id in self._saving:
            return  # what is saved here is merged with it
        elif session.stage is Stage.OPENING and record.state.ready:
            # Lists may have changed since the client became ready, which was not announced here.
            self._run_beside(self._catch_up(session))
        else:
            self.adopt(session, record)

    async def _catch_up(self, session: S) -> None:
        try:
            await self._holder.restore(session.id, session.principal)
        except Refused as error:
            logger.warning("a session is not brought up to date before it is used: %s", error)

    def _missed_changes(self) -> None:
        """Drop idle sessions, which another process may have changed; the store has them."""
        for session in self._holder.all():
            if not session.open and session.stage is Stage.USED:
                self._holder.drop(session)

    # Writing

    async def save(self, session: S) -> None:
        """Write what changed in a session; refused with 503 when the store is not available."""
        saved = self._saved.get(session.id)
        following = wanted = self._following(session, saved)
        if session.closed or (saved is not None and _says_the_same(saved, wanted)):
            return
        self._saving.add(session.id)
        try:
            while not await self._store.save(following, self._ttl):
                stored = await self._store.load(session.id)
                if stored is None:
                    self._holder.drop(session)  # it was ended at another process
                    raise gone()
                following = _merged(saved, wanted, stored)
                session.receiver.adopt(following.state, following.uris)
        except StoreUnavailable as error:
            raise _unavailable(error) from None
        finally:
            self._saving.discard(session.id)
        if not session.closed:  # it may have ended meanwhile
            self._saved[session.id] = following

    def save_narrowed(self, session: S) -> None:
        """Write, without delaying the request, that a new token allows fewer subscriptions."""
        saved = self._saved.get(session.id)
        if saved is not None and self._following(session, saved).uris != saved.uris:
            self._run_beside(self._narrow(session))

    async def _narrow(self, session: S) -> None:
        try:
            await self.save(session)
        except Refused as error:
            logger.warning("a session keeps subscriptions it has no rights to: %s", error)

    def touch(self, sessions: list[S]) -> None:
        """Keep the records of sessions in use from expiring."""
        if sessions and (self._touching is None or self._touching.done()):
            self._touching = asyncio.get_running_loop().create_task(self._touch(sessions))

    async def _touch(self, sessions: list[S]) -> None:
        try:
            for session in sessions:
                if not await self._store.touch(session.id, self._ttl):
                    self._holder.drop(session)  # it was ended at another process
        except StoreUnavailable as error:
            logger.warning("sessions in use could not be kept from expiring: %s", error)

    async def delete(self, session: S) -> None:
        """End a session at every process; refused with 503 when the store is not available."""
        try:
            await self._store.delete(session.id)
        except StoreUnavailable as error:
            raise _unavailable(error) from None

    # Forgetting

    def forget(self, session: S) -> None:
        """Forget a session that is not here any more."""
        self._saved.pop(session.id, None)

    def _run_beside(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)

    def close(self) -> None:
        """Stop watching for changes; the records stay."""
        self._stop_watching()
        for task in (*self._beside, *([self._touching] if self._touching is not None else ())):
            task.cancel()


def caller_name(caller: Hashable) -> str:
    """Return a name for a caller that is the same at every process; empty for None.

    It does not tell the address or the subject, since it is stored.

    Args:
        caller: A principal, or an address.
    """
    if caller is None:
        return ""
    return _name_of(getattr(caller, "identity", caller))


@lru_cache(1024)  # one caller may begin many sessions
def _name_of(identity: Hashable) -> str:
    return blake2b(repr(identity).encode(), digest_size=8).hexdigest()


def gone() -> Refused:
    """Return the refusal of a request whose session does not exist at any process."""
    return Refused(404, "There is no such session; begin a new one with `initialize`")


def _says_the_same(saved: SessionRecord, now: SessionRecord) -> bool:
    return saved.state == now.state and saved.uris == now.uris


def _merged(
    before: SessionRecord | None, wanted: SessionRecord, stored: SessionRecord
) -> SessionRecord:
    """Apply what this process changed to a record another process has changed meanwhile."""
    old_uris = set(() if before is None else before.uris)
    added, removed = set(wanted.uris) - old_uris, old_uris - set(wanted.uris)
    state: EndSnapshot = stored.state
    if before is None or before.state != wanted.state:
        state = wanted.state
    uris = tuple(sorted((set(stored.uris) | added) - removed))
    return replace(stored, state=state, uris=uris, revision=stored.revision + 1)


def _unavailable(
    error: StoreUnavailable, what: str = "The session cannot be looked up or changed"
) -> Refused:
    logger.debug("a session was refused: %s", error)
    return busy(f"{what}: {TOLD}", RETRY_AFTER)
