"""Which sessions an endpoint has: found by id, swept when idle, bounded in number.

A session that a client began and never used is the first to be ended. A caller may have as many sessions
as then remain free, so that no caller uses up all of them. At that bound its own oldest idle session
makes room for its next one.

With a `SessionStore`, a session that is not here may live elsewhere: it is rebuilt from its record (see
`session_records`). Then the bounds are those of all processes together, and making room here does not end
a session: a caller at its bound is refused. Without a store, a session that is not here is gone.
"""

from collections.abc import Callable, Hashable
from itertools import islice
from typing import Any, Generic, TypeVar

from mcpearl.protocol.errors import LimitReached
from mcpearl.runtime import clock
from mcpearl.runtime.budget import Account, Budget, NoRoom
from mcpearl.runtime.keeper import Keeper
from mcpearl.runtime.tree import Node
from mcpearl.stores.sessions import SessionStore
from mcpearl.transports.http_server.gate import Refused, busy
from mcpearl.transports.http_server.session_order import SessionOrder
from mcpearl.transports.http_server.session_records import SessionRecords, caller_name, gone
from mcpearl.transports.http_server.sessions import Stage, StreamTerms, TransportSession

SESSION = 8 * 1024  # bytes a session is charged, about what it takes
_OWN_LOOKS = 64  # sessions of one caller looked at to find an idle one
ELSEWHERE = (
    "This session began at another process, or before this one was started; begin a new one with "
    "`initialize`. If several processes serve this address, each has sessions of its own, unless they "
    "share a store: use `Server(store='redis://…')` or `app.run('http', workers=…)`, or send all "
    "requests with the same Mcp-Session-Id to the same process"
)
# Looked up once, since reading a member of an enumeration is slow.
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
            converse: Makes the server's side from a session, its principal and its account.
            terms: What the sessions share.
            max_sessions: How many there may be; with a store, at all processes together.
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
        self._order: SessionOrder[S] = SessionOrder(self._opening_time, idle_timeout)
        self._used = self._order.used
        self._budget = budget or Budget()
        self._by_caller: dict[Account, dict[str, S]] = {}  # in the order they began
        self._stop_releasing = self._budget.when_short(self._release_own)
        self._keeper = Keeper(name, self._sweep)
        self._swept = clock.monotonic()  # when records of sessions in use were last touched
        self.records: SessionRecords[S] | None = None
        """What the store has of them; None without a store."""
        if store is not None:
            self.records = SessionRecords(store, idle_timeout, self)

    def node(self) -> Node:
        """Return what ends idle sessions, as a part of a tree."""
        return self._keeper.node()

    def __len__(self) -> int:
        return len(self._order)

    # Beginning

    def create(self, principal: Any, caller: Hashable = None, *, begins: bool = True) -> S:
        """Make a session that is not in the table yet; refused with 503 when there is no room.

        Args:
            principal: Whose session it will be.
            caller: The key of the caller whose sessions are counted together; None for this one alone.
            begins: Whether it is a new session, rather than one of another process.
        """
        account = self._budget.account(caller)
        name = caller_name(caller) if begins and self.records is not None else ""
        self._check_share(account, name, begins)
        if len(self) >= self._max:
            self._make_room()
        try:
            charged = account.hold("sessions", SESSION)
        except NoRoom as error:
            raise busy(str(error), 10) from None
        session = self._kind(self._terms, principal, clock.monotonic())
        session.charge(account, charged)
        session.caller = name
        session.receiver = self._converse(session, principal, account)
        return session

    def _check_share(self, account: Account, name: str, begins: bool) -> None:
        """Make sure that a caller may have one more session; refused with 503 if it may not."""
        total, can_release = len(self), True
        own = len(self._by_caller.get(account, ()))
        if self.records is not None and begins:
            total, can_release = max(total, self.records.count), False
            if total >= self._max:
                raise _full()
            if name:
                own = max(own, self.records.count_of(name))
        if not own or own + 1 <= self._max - total - 1:
            return
        if not can_release or not self._release_own(account):
            raise self._share_is_used(own)

    def _share_is_used(self, own: int) -> Refused:
        return busy(
            f"This client has {own} of the {self._max} sessions there may be, and may have no more; "
            "end one with DELETE",
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

    def add(self, session: S) -> bool:
        """Assign a session its id; from now on it is found. Return False if it has to be admitted."""
        records = self.records
        name = clock.token(24) if records is None else records.new_id(session)
        self._enter(session, self._prefix + name)
        return records is None or records.begin(session, self._max)

    async def admit(self, session: S) -> None:
        """Count a new session at all processes; end it, refused with 503, if there is no room."""
        records, admitted = self.records, False
        assert records is not None
        try:
            admitted = await records.admit(session, self._max)
        finally:
            if not admitted:
                self.drop(session)
        if not admitted and records.count >= self._max:
            raise _full()
        if not admitted:
            raise self._share_is_used(records.count_of(session.caller))

    def _enter(self, session: S, id: str) -> None:
        session.id = id
        self._order.add(session)
        self._by_caller.setdefault(session.account, {})[id] = session
        self._keeper.wake(self._opening_time / 4)

    # Finding

    def find(self, id: str, principal: Any) -> S | None:
        """Return a session of this process; None if there is none, or it is another principal's."""
        session = self._used.get(id)
        if session is None or session.stage is _CLOSED:
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
        order = self._order
        session = self._used.get(id) or order.unused.get(id) or order.opening.get(id)
        return None if session is None or session.stage is _CLOSED else session

    def all(self) -> list[S]:
        """Return every session."""
        return list(self._order)

    async def restore(self, id: str, principal: Any, caller: Hashable = None) -> S | None:
        """Rebuild a session that began at another process, or bring it up to date with its record."""
        records = self.records
        loaded = None if records is None else await records.load(id, principal.identity)
        if records is None or loaded is None:
            return None
        record, missed = loaded
        found = self.find(id, principal)
        if found is not None:
            was_opening = found.stage is Stage.OPENING
            records.adopt(found, record)
            if was_opening and record.state.ready:
                found.receiver.make_up(missed)
            return found
        session = self.create(principal, caller, begins=False)
        session.id = id
        try:
            session.receiver.restore(record.state, record.uris)
        except LimitReached as error:
            session.end()
            raise busy(str(error), 10) from None
        records.restored(session, record)
        session.stage = Stage.USED if record.state.ready else Stage.OPENING
        self._enter(session, id)
        self._recognize(session, principal)
        session.receiver.make_up(missed)
        return session

    def _recognize(self, session: S, principal: Any) -> None:
        """Continue a session under a new token; what it no longer allows ends at every process."""
        session.recognize(principal)
        if self.records is not None:
            self.records.save_narrowed(session)

    def gone(self, id: str) -> Refused:
        """Return the refusal of a request whose session is not here."""
        if self.records is not None or id.startswith(self._prefix) or not _is_ours(id):
            return gone()
        return Refused(404, ELSEWHERE)

    # Using

    def leave(self, session: S) -> None:
        """Note that a request of a session was answered: it was used just now."""
        session.open -= 1
        session.used = clock.monotonic()
        stage = session.stage
        if stage is _USED:
            self._used.move_to_end(session.id)
        elif not session.id:
            session.end()  # it has no id, so it cannot be found
        elif stage is not _CLOSED:
            self._order.advance(session)

    def advance(self, session: S) -> None:
        """Note how far a session that was not in use yet has come."""
        self._order.advance(session)

    def has_saved(self, session: S) -> bool:
        """Whether a session that just began needs no `save`: its id has everything."""
        return self.records is not None and self.records.has_saved(session)

    async def save(self, session: S) -> None:
        """Write what changed in a session, if there is a store."""
        if self.records is not None:
            await self.records.save(session)

    # Ending

    async def delete(self, session: S) -> None:
        """End a session because its client asked for that, here and in the store."""
        if self.records is not None:
            await self.records.delete(session)
        self.remove(session)

    def remove(self, session: S) -> None:
        """End a session and forget its events."""
        self.drop(session)
        if self._terms.events is not None:
            self._terms.events.forget(session.id)

    def drop(self, session: S) -> None:
        """End a session in this process; what a store has of it stays."""
        if self._order.remove(session) and self.records is not None:
            self.records.forget(session)
        own = self._by_caller.get(session.account, {})
        if own.get(session.id) is session:
            del own[session.id]
            if not own:
                del self._by_caller[session.account]
        session.end()

    def _expire(self, session: S) -> None:
        """End a session that was not used for long. With a store, it may be in use elsewhere."""
        if self.records is None:
            self.remove(session)
        else:
            self.drop(session)

    def _make_room(self) -> None:
        self._order.sweep(clock.monotonic(), self._expire)
        if len(self) < self._max:
            return
        idle = self._order.longest_idle(with_used=self.records is not None)
        if idle is None:
            raise busy("Too many sessions", 10, "max_sessions")
        self._expire(idle)

    def _sweep(self) -> float | None:
        now = clock.monotonic()
        self._order.sweep(now, self._expire)
        if self.records is not None and now - self._swept >= self._idle / 4:
            since, self._swept = self._swept, now
            self.records.touch(self._order.used_since(since))
        return self._opening_time / 4 if len(self) else None

    def close(self) -> None:
        """End all sessions in this process; what the store has of them stays."""
        self._stop_releasing()
        self._keeper.stop()
        if self.records is not None:
            self.records.close()
        for session in self.all():
            self._expire(session)


def _full() -> Refused:
    return busy("Too many sessions on all machines together", 10, "max_sessions")


def _is_ours(id: str) -> bool:
    """Whether an id looks like one that a process of this kind of server made."""
    return len(id) > 5 and id[4] == "."
