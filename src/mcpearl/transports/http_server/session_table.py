"""Which sessions an endpoint has: found by id, swept when idle, bounded in number, kept in a store.

Sessions are held in three tables by how far they have come, each in the order of use, so that the one
that was idle longest is always in front: sweeping and making room look at as many sessions as end, and
at one more. A session a client began and never used is the first to go.

One caller may have as many sessions as are left free after it, so that no caller uses up all of them. At
that bound its own oldest idle session makes room for its next one.

With a `SessionStore`, a session that is not in the tables may live elsewhere: it is rebuilt from its
record. Without one, a session that is not here is gone.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Hashable
from itertools import islice
from typing import Any, Generic, TypeVar

from msgspec.structs import replace

from mcpearl.protocol.errors import LimitReached
from mcpearl.protocol.snapshot import EndSnapshot
from mcpearl.runtime import clock
from mcpearl.runtime.budget import Account, Budget, NoRoom
from mcpearl.runtime.keeper import Keeper
from mcpearl.runtime.tree import Node
from mcpearl.stores.errors import TOLD, StoreUnavailable
from mcpearl.stores.sessions import SessionRecord, SessionStore
from mcpearl.transports.http_server.gate import Refused, busy
from mcpearl.transports.http_server.sessions import Stage, StreamTerms, TransportSession

logger = logging.getLogger("mcpearl.http")

SESSION = 8 * 1024  # bytes a session is charged, about what it takes
_OWN_LOOKS = 64  # sessions of one caller looked at to find an idle one
_LOOKS = 16  # sessions looked at to find an idle one; busy ones go to the end
_ELSEWHERE = (
    "This session began at another process, or before this one was started; begin a new one with "
    "`initialize`. If several processes serve this address, each has sessions of its own: send all "
    "requests with the same Mcp-Session-Id to the same process, serve with "
    "`app.run('http', workers=…)`, or pass a `session_store`"
)
# Looked up once: a member of an enumeration is found by a Python function.
_USED, _CLOSED = Stage.USED, Stage.CLOSED
S = TypeVar("S", bound=TransportSession)


class SessionTable(Generic[S]):
    """All sessions of one endpoint, of one kind."""

    def __init__(
        self,
        kind: Callable[[StreamTerms, Any, float], S],
        converse: Callable[[Any, Any, Account], Any],
        terms: StreamTerms,
        *,
        max_sessions: int,
        idle_timeout: float,
        initialize_timeout: float,
        prefix: str = "",
        store: SessionStore | None = None,
        budget: Budget | None = None,
        name: str = "the sessions of an endpoint",
    ) -> None:
        """Create an empty table.

        Args:
            kind: Makes a session.
            converse: Makes the server's side of a session, its principal and its account.
            terms: What the sessions share.
            max_sessions: How many there may be.
            idle_timeout: Seconds without a request after which a session ends.
            initialize_timeout: The same until the client has sent `notifications/initialized`.
            prefix: The beginning of every id.
            store: Where records of the sessions are kept for other processes.
            budget: Counts the sessions of each caller.
            name: What they are called in the tree.
        """
        self._kind = kind
        self._converse = converse
        self._terms = terms
        self._max = max_sessions
        self._idle = idle_timeout
        self._opening_time = min(initialize_timeout, idle_timeout)
        self._prefix = prefix
        self._store = store
        self._opening: OrderedDict[str, S] = OrderedDict()
        self._unused: OrderedDict[str, S] = OrderedDict()
        self._used: OrderedDict[str, S] = OrderedDict()
        self._tables = (self._opening, self._unused, self._used)  # by stage
        self._budget = budget or Budget()
        self._by_caller: dict[Account, dict[str, S]] = {}  # in the order they began
        self._stop_releasing = self._budget.when_short(self._release_own)
        self._narrowing: asyncio.Task[None] | None = None  # saves a session with fewer rights
        self._restoring: dict[str, list[SessionRecord | None]] = {}  # what changes meanwhile
        self._saving: set[str] = set()  # changes of these are merged with those of others
        self._saved: dict[str, SessionRecord] = {}  # as they are in the store, by id
        self._keeper = Keeper(name, self._sweep)
        self._swept = clock.monotonic()  # when records of sessions in use were last touched
        self._touching: asyncio.Task[None] | None = None
        self._stop_watching: Callable[[], None] | None = None
        if store is not None:
            self._stop_watching = store.watch(self._changed_elsewhere, self._missed_changes)

    def node(self) -> Node:
        """Return what ends idle sessions, as a part of a tree."""
        return self._keeper.node()

    def __len__(self) -> int:
        return len(self._opening) + len(self._unused) + len(self._used)

    # Beginning and finding

    def create(self, principal: Any, caller: Hashable = None, *, begins: bool = True) -> S:
        """Make a session that is not in the table yet; refused with 503 when there is no room.

        Args:
            principal: Whose session it will be.
            caller: What stands for all that are counted together; None for this client alone.
            begins: Whether it is a new one, rather than one of another process.
        """
        if self._store is not None and begins and self._store.count >= self._max:
            raise busy("Too many sessions on all machines together", 10, "max_sessions")
        account = self._budget.account(caller)
        self._check_share(account)
        if len(self) >= self._max:
            self._make_room()
        try:
            charged = account.hold("sessions", SESSION)
        except NoRoom as error:
            raise busy(str(error), 10) from None
        session = self._kind(self._terms, principal, clock.monotonic())
        session.charge(account, charged)
        session.receiver = self._converse(session, principal, account)
        return session

    def _check_share(self, account: Account) -> None:
        """Make room for one more session of a caller among its own."""
        own = len(self._by_caller.get(account, ()))
        if own and own + 1 > self._max - len(self) - 1 and not self._release_own(account):
            raise busy(
                f"This client has {own} of the {self._max} sessions there may be, and may have no "
                "more; end one with DELETE",
                10,
                "max_sessions",
            )

    def _release_own(self, account: Account) -> bool:
        """End the oldest idle session of a caller: one it never used, or has not used for a while."""
        own = self._by_caller.get(account)
        idle = [each for each in islice((own or {}).values(), _OWN_LOOKS) if not each.open]
        unused = [each for each in idle if each.stage is not Stage.USED]
        before = clock.monotonic() - self._opening_time
        candidates = unused or [each for each in idle if each.used <= before]
        if not candidates:
            return False
        self._expire(min(candidates, key=lambda session: session.used))
        return True

    def add(self, session: S) -> None:
        """Assign a session its id; from now on it is found."""
        store = self._store
        try:
            name = clock.token(24) if store is None else store.new_id(self._record_of(session))
        except StoreUnavailable as error:
            raise _unavailable(error) from None
        self._enter(session, self._prefix + name)

    def _enter(self, session: S, id: str) -> None:
        session.id = id
        self._tables[session.stage][id] = session
        self._by_caller.setdefault(session.account, {})[id] = session
        self._keeper.wake(self._opening_time / 4)

    def find(self, id: str, principal: Any) -> S | None:
        """Return a session of this process; None for another principal's, which does not exist."""
        session = self.here(id)
        if session is None:
            return None
        if session.principal is not principal:
            if session.principal != principal:
                return None
            self._recognize(session, principal)
        return session

    def here(self, id: str) -> S | None:
        """Return a session of this process, of any principal."""
        session = self._used.get(id) or self._unused.get(id) or self._opening.get(id)
        return None if session is None or session.stage is _CLOSED else session

    async def restore(self, id: str, principal: Any, caller: Hashable = None) -> S | None:
        """Rebuild a session that began at another process, if its record is in the store."""
        if self._store is None:
            return None
        changed = self._restoring.setdefault(id, [])
        try:
            record = await self._store.load(id)
            missed = () if record is None else await self._store.missed(record)
        except StoreUnavailable as error:
            raise _unavailable(error) from None
        finally:
            self._restoring.pop(id, None)
        if record is None or record.identity != principal.identity:
            return None
        for each in changed:  # by another process, while the store was asked
            if each is None:
                return None
            record = each if each.revision > record.revision else record
        found = self.find(id, principal)
        if found is not None:
            self._adopt(found, record)
            return found
        session = self.create(principal, caller, begins=False)
        session.id = id
        try:
            session.receiver.restore(record.state, record.uris)
        except LimitReached as error:
            session.end()
            raise busy(str(error), 10) from None
        self._saved[id] = record
        session.stage = Stage.USED if record.state.ready else Stage.OPENING
        self._enter(session, id)
        self._recognize(session, principal)
        session.receiver.make_up(missed)
        return session

    def _recognize(self, session: S, principal: Any) -> None:
        """Continue a session under a token; what that does not allow any more ends everywhere."""
        session.recognize(principal)
        saved = self._saved.get(session.id)
        if saved is not None and self._record_of(session).uris != saved.uris:
            self._narrowing = asyncio.get_running_loop().create_task(self._narrow(session))

    async def _narrow(self, session: S) -> None:
        try:
            await self.save(session)
        except Refused as error:
            logger.warning("a session keeps subscriptions it has no rights to: %s", error)

    def _adopt(self, session: S, record: SessionRecord) -> None:
        """Take over what another process changed in a session that is here."""
        saved = self._saved.get(session.id)
        if saved is not None and saved.revision >= record.revision:
            return
        session.receiver.adopt(record.state, record.uris)
        self._saved[session.id] = record
        if session.stage is Stage.OPENING:
            self._advance(session)

    def _changed_elsewhere(self, id: str, record: SessionRecord | None) -> None:
        if id in self._restoring:
            self._restoring[id].append(record)
        session = self.here(id)
        if session is None:
            return
        if record is None:
            self._drop(session)
        elif id not in self._saving:
            self._adopt(session, record)

    def _missed_changes(self) -> None:
        """Let go of sessions that another process may have changed: the store has them."""
        for session in self.all():
            if not session.open and session.stage is Stage.USED:
                self._drop(session)

    def leave(self, session: S) -> None:
        """Note that a request of a session was answered: it was used just now."""
        session.open -= 1
        session.used = clock.monotonic()
        stage = session.stage
        if stage is _USED:
            self._used.move_to_end(session.id)
        elif not session.id:
            session.end()  # it could not be given one, and will not be found
        elif stage is not _CLOSED:
            self._advance(session)

    def _advance(self, session: S) -> None:
        """Put a session that is not in use yet where it belongs now."""
        del self._tables[session.stage][session.id]
        if session.stage is Stage.UNUSED:
            session.stage = Stage.USED
        elif session.receiver.is_ready:
            session.stage = Stage.UNUSED
        self._tables[session.stage][session.id] = session

    def gone(self, id: str) -> Refused:
        """Make the refusal of a request whose session is not here."""
        if self._store is not None or id.startswith(self._prefix) or not _is_ours(id):
            return Refused(404, "There is no such session; begin a new one with `initialize`")
        return Refused(404, _ELSEWHERE)

    # The store

    def _record_of(self, session: S) -> SessionRecord:
        state, uris = session.receiver.snapshot()
        saved = self._saved.get(session.id)
        revision, since = (0, 0.0) if saved is None else (saved.revision, saved.since)
        return SessionRecord(
            id=session.id,
            identity=session.principal.identity,
            state=state,
            uris=uris,
            revision=revision,
            since=since,
        )

    async def save(self, session: S) -> None:
        """Write what changed in a session; refused with 503 when the store is not available."""
        store = self._store
        saved, record = self._saved.get(session.id), self._record_of(session)
        if store is None or record == saved or session.closed:
            return
        self._saving.add(session.id)
        try:
            following = replace(record, revision=record.revision + 1)
            while not await store.save(following, self._idle):
                stored = await store.load(session.id)
                if stored is None:
                    self._drop(session)  # it was ended at another process
                    raise self.gone(session.id)
                following = _merged(saved, record, stored)
                session.receiver.adopt(following.state, following.uris)
        except StoreUnavailable as error:
            raise _unavailable(error) from None
        finally:
            self._saving.discard(session.id)
        if not session.closed:  # it may have ended meanwhile
            self._saved[session.id] = following

    async def delete(self, session: S) -> None:
        """End a session at its client's wish, here and in the store."""
        if self._store is not None:
            try:
                await self._store.delete(session.id)
            except StoreUnavailable as error:
                raise _unavailable(error) from None
        self.remove(session)

    # Ending

    def remove(self, session: S) -> None:
        """End a session and forget its events."""
        self._drop(session)
        if self._terms.events is not None:
            self._terms.events.forget(session.id)

    def _drop(self, session: S) -> None:
        """End a session in this process."""
        for table in self._tables:
            if table.get(session.id) is session:  # it may have been rebuilt meanwhile
                del table[session.id]
                self._saved.pop(session.id, None)
        own = self._by_caller.get(session.account, {})
        if own.get(session.id) is session:
            del own[session.id]
            if not own:
                del self._by_caller[session.account]
        session.end()

    def _expire(self, session: S) -> None:
        """End a session that was not used for long. With a store, it may be in use elsewhere."""
        if self._store is None:
            self.remove(session)
        else:
            self._drop(session)

    def _make_room(self) -> None:
        self._sweep_tables(clock.monotonic())
        if len(self) < self._max:
            return
        tables = self._tables if self._store is not None else self._tables[: Stage.USED]
        fronts = [self._idle_front(table) for table in tables]
        idle = [session for session in fronts if session is not None]
        if not idle:
            raise busy("Too many sessions", 10, "max_sessions")
        self._expire(min(idle, key=lambda session: session.used))

    def _idle_front(self, table: OrderedDict[str, S]) -> S | None:
        """Return the session of a table that was idle longest, if one is found near the front."""
        for _ in range(min(len(table), _LOOKS)):
            id, session = next(iter(table.items()))
            if not session.open:
                return session
            table.move_to_end(id)
        return None

    def _sweep(self) -> float | None:
        now = clock.monotonic()
        self._sweep_tables(now)
        if self._store is not None and now - self._swept >= self._idle / 4:
            self._touch_used(now)
        return self._opening_time / 4 if len(self) else None

    def _sweep_tables(self, now: float) -> None:
        self._sweep_table(self._opening, now, self._opening_time)
        self._sweep_table(self._unused, now, self._idle)
        self._sweep_table(self._used, now, self._idle)

    def _sweep_table(self, table: OrderedDict[str, S], now: float, patience: float) -> None:
        """End the sessions at the front that are over; stop at the first that is not."""
        while table:
            id, session = next(iter(table.items()))
            if now - session.used <= patience:
                return
            if session.open:
                session.used = now  # being answered is being used
                table.move_to_end(id)
            else:
                self._expire(session)

    def _touch_used(self, now: float) -> None:
        """Keep the records of sessions that were used since the last time from expiring."""
        since, self._swept = self._swept, now
        used = []
        for session in reversed(self._used.values()):
            if session.used <= since:
                break
            used.append(session)
        if used and (self._touching is None or self._touching.done()):
            self._touching = asyncio.get_running_loop().create_task(self._touch(used))

    async def _touch(self, sessions: list[S]) -> None:
        assert self._store is not None
        try:
            for session in sessions:
                if not await self._store.touch(session.id, self._idle):
                    self._drop(session)  # it was ended at another process
        except StoreUnavailable as error:
            logger.warning("sessions in use could not be kept from expiring: %s", error)

    def all(self) -> list[S]:
        """Return every session."""
        return [session for table in self._tables for session in table.values()]

    def close(self) -> None:
        """End all sessions in this process; what the store has of them stays."""
        self._stop_releasing()
        if self._stop_watching is not None:
            self._stop_watching()
        self._keeper.stop()
        if self._touching is not None:
            self._touching.cancel()
        for session in self.all():
            self._expire(session)


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


def _unavailable(error: StoreUnavailable) -> Refused:
    logger.debug("a session was refused: %s", error)
    return busy(f"The session cannot be looked up or changed: {TOLD}", 5)


def _is_ours(id: str) -> bool:
    """Whether an id looks like one that a process of this kind of server gave."""
    return len(id) > 5 and id[4] == "."
