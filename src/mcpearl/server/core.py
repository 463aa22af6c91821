"""What the connections of one server share: settings, the dispatcher, subscriptions, the roster.

A connection knows this object and not the `Server`, so it can serve anything that has a dispatcher.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Set
from typing import TYPE_CHECKING, Any

import msgspec

from mcpearl.protocol.events import Many, Opened, Reply
from mcpearl.protocol.limits import Limits
from mcpearl.protocol.modern import Stamp
from mcpearl.protocol.offer import Offer
from mcpearl.runtime import clock
from mcpearl.runtime.budget import Budget
from mcpearl.runtime.limited_log import LimitedLog
from mcpearl.runtime.liveness import Keepalive
from mcpearl.server.attendants import Attendants
from mcpearl.server.dispatch import Dispatch, Dispatcher, Middleware, compile_chain
from mcpearl.server.roster import Roster
from mcpearl.server.subscriptions import Subscriptions
from mcpearl.telemetry.options import Telemetry
from mcpearl.types.base import Implementation

if TYPE_CHECKING:
    from mcpearl.protocol.errors import Overloaded
    from mcpearl.protocol.events import Call
    from mcpearl.protocol.seal import Sealer
    from mcpearl.receipts.recorder import Recorder
    from mcpearl.runtime.observer import Bound, Counters, Observer
    from mcpearl.runtime.observers import Guarded
    from mcpearl.server.composition.part import Enclosing
    from mcpearl.server.session import Session
    from mcpearl.server.tasks.feed import TaskFeed
    from mcpearl.stores.shared import SharedStore
    from mcpearl.stores.state import StateStore


logger = logging.getLogger("mcpearl.server")
sessions = logging.getLogger("mcpearl.sessions")


def _guarded(observer: "Observer | Iterable[Observer]") -> "Guarded | None":
    from mcpearl.runtime.observers import guarded  # most servers have no observer

    return guarded(observer)


def _asked(request: Any) -> tuple[int | str | None, Any]:
    """Return the id and the params of a request, None for what it does not have."""
    if request is None:
        return None, None
    return request.id, None if request.params is msgspec.UNSET else request.params


class ServerCore:
    """One server, as its connections see it.

    Args:
        dispatcher: Answers the calls.
        info: Name and version the server announces.
        instructions: How a model should use the server.
        versions: Protocol versions it speaks, newest first.
        limits: Bounds of every connection.
        keepalive: When silent legacy sessions are pinged; None for never.
        ask_timeout: Seconds a client has to answer a request of a handler.
        grace: Seconds calls have to finish when the server or their connection ends.
        mask_errors: Whether the text of unexpected exceptions is kept from clients.
        state_keys: Keys that seal `requestState`; the first one seals, all of them open.
        state_ttl: Seconds a sealed state is valid.
        max_held: Bytes held for all clients together; None for a part of the machine's memory.
        observer: Notified of calls, connections and bounds.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        info: Implementation,
        *,
        instructions: str | None,
        versions: tuple[str, ...],
        limits: Limits,
        keepalive: Keepalive | None,
        ask_timeout: float,
        grace: float,
        mask_errors: bool,
        state_keys: list[bytes] | None,
        state_ttl: float,
        max_held: int | None,
        observer: "Observer | Iterable[Observer] | None",
    ) -> None:
        self.dispatcher = dispatcher
        self.dispatch: Dispatch = dispatcher.dispatch  # with middleware and limits around it
        self.redispatch: Dispatch = self.dispatch  # for a call that was admitted before: no limits
        self.limited: Dispatch = self.dispatch  # without the observer's part in front of it
        self.mounted: Dispatch = self.dispatch  # for calls that a server it is mounted in answers
        # Whether nothing reads results before they are sent, so that handlers may return encoded ones.
        self.takes_encoded = False
        self.at_once: Set[str] = frozenset()
        """The tools whose calls are run without a task of their own; see `Dispatcher.at_once`."""
        self.mirrored = dispatcher.mirrored  # the parameters that tools mirror into HTTP headers
        self.offer = Offer(info, dispatcher.capabilities(), instructions, versions)
        self.stamp = Stamp(info)
        self.limits = limits
        self.keepalive = keepalive
        self.ask_timeout = ask_timeout
        self.grace = grace
        self.mask_errors = mask_errors
        self.lifespan_value: Any = None  # what the lifespan yielded, while the server runs
        self.observer = None if observer is None else _guarded(observer)
        self.exported: Telemetry | None = None  # with OpenTelemetry
        self._sources: list[Counters] = []  # counters beside the core's own
        self.budget = Budget(max_held, self.bounded)
        self.subscriptions = Subscriptions()
        # Tells which calls have handlers that may continue after the answer.
        self.outlives: Callable[[Call], bool] | None = None
        self.tasks: TaskFeed | None = None  # the listeners of tasks, where tools can be tasks
        self.recorder: Recorder | None = None  # records every call, where the server has receipts
        self.enclosing: list[Enclosing] = []  # the servers in which this one is mounted
        # Returns what a method is refused with while the server does not keep up, where it sheds load.
        self.refusal: Callable[[str], Overloaded | None] | None = None
        self.roster = Roster(self.observer)
        self.attendants = Attendants()  # functions for sessions and notifications
        self._lives = LimitedLog(
            sessions, logging.INFO, "%d more sessions began or ended within a second"
        )
        more = "refused %d more requests within a second"
        self._refusals = LimitedLog(logger, logging.INFO, more)
        self._state_store: StateStore | None = None
        self.state_keys = state_keys
        # Where ids of requests to clients begin whose sessions several processes serve.
        self._first_request = 0
        self._blocks = 0  # blocks of these ids that sessions have received
        self.state_ttl = state_ttl
        self._sealer: Sealer | None = None
        if self.observer is not None:
            self.observer.started(self.counters)

    async def join(self, store: "SharedStore") -> None:
        """Become a process of a deployment: use its keys, and own ids for requests to clients."""
        from mcpearl.stores.shared import REQUEST_BITS

        self.state_keys = await store.start(self.state_keys)
        self._sealer = None
        self._first_request = (store.relay.number << REQUEST_BITS) + 1
        self.roster.names.directory = store.names

    def first_request(self) -> int:
        """Return the first id of a session's requests to its client; 0 for the default."""
        if not self._first_request:
            return 0
        from mcpearl.stores.shared import REQUEST_BLOCK, REQUEST_BLOCKS

        block, self._blocks = self._blocks, (self._blocks + 1) % REQUEST_BLOCKS
        return self._first_request + block * REQUEST_BLOCK

    def observe(self, observer: "Observer") -> None:
        """Notify another observer of the connections that are made from now on."""
        from mcpearl.runtime.observers import both

        added = _guarded(observer)
        assert added is not None
        self.observer = self.roster.observer = both(self.observer, added)
        self._enter()
        added.started(self.counters)

    def add_counters(self, source: "Counters") -> Callable[[], None]:
        """Include the counters of a part of the server in `counters`; return a function that ends this.

        Numbers of the same name are added up.
        """
        self._sources.append(source)
        return lambda: self._sources.remove(source)

    def use(
        self,
        dispatcher: Dispatcher,
        middleware: list[Middleware],
        around: Callable[[Dispatch], Dispatch] | None = None,
        *,
        takes_encoded: bool = False,
    ) -> None:
        """Answer every call from now on with this dispatcher.

        Args:
            dispatcher: Answers the calls.
            middleware: Runs around it.
            around: Puts limits around both; they do not wait.
            takes_encoded: Whether the dispatcher's tools may return encoded results.
        """
        self.takes_encoded = takes_encoded and not middleware
        durable = self.recorder is not None and self.recorder.durable
        self.at_once = frozenset() if middleware or durable else dispatcher.at_once
        self.dispatcher = dispatcher
        self.mirrored = dispatcher.mirrored
        self.redispatch = compile_chain(middleware, dispatcher.dispatch)
        self.limited = self.redispatch if around is None else around(self.redispatch)
        self.mounted = self.limited
        if self.recorder is not None:
            from mcpearl.server.recording import recorded, recorded_as_part

            self.mounted = recorded_as_part(self, self.recorder, self.limited)
            self.limited = recorded(self, self.recorder, self.limited)
        self._enter()
        for outer in self.enclosing:
            outer.entrance_changed()
        self.offer.extend(dispatcher.routes(), dispatcher.notices())
        self.renew()

    def _enter(self) -> None:
        """Let an observer that wants to prepare the tasks of handlers do so."""
        observer = self.observer
        self.dispatch = self.limited if observer is None else observer.entering(self.limited)

    def renew(self) -> None:
        """Announce what the dispatcher can do now."""
        self.offer.renew(self.dispatcher.capabilities())

    @property
    def state_store(self) -> "StateStore":
        """What keeps `Context.session`; in memory, unless another one was set."""
        if self._state_store is None:
            from mcpearl.stores.memory_state import MemoryStateStore

            self._state_store = MemoryStateStore()
        return self._state_store

    @state_store.setter
    def state_store(self, store: "StateStore") -> None:
        self._state_store = store

    @property
    def given_state_store(self) -> "StateStore | None":
        """The store that was set, if one was."""
        return self._state_store

    def sealer(self) -> "Sealer":
        """Return the sealer of `requestState`, made when first needed."""
        if self._sealer is None:
            from mcpearl.protocol.seal import Sealer

            self._sealer = Sealer(
                self.state_keys,
                ttl=self.state_ttl,
                max_size=self.limits.max_request_state,
                random_bytes=clock.random_bytes,
            )
        return self._sealer

    def session_began(self, session: "Session") -> None:
        """Tell the application that a legacy client is ready."""
        self._lives.note("session begun: %a", session)
        if session.id is not None:
            self.roster.names.changed("session", session.id, session)
        if self.attendants.on_session:
            self.attendants.attend(session)

    def session_ended(self, session: "Session") -> None:
        """Note that a legacy client has left."""
        self._lives.note("session ended: %a", session)
        if session.id is not None:
            self.roster.names.changed("session", session.id, None)

    def replied(self, event: "Reply | Opened | Many", medium: str, seconds: float) -> None:
        """Log, record and tell what the protocol answered without a call, or refused.

        Args:
            event: The answer, or a batch, of which some messages may have been answered so.
            medium: What the request came over.
            seconds: From reading it to the answer.
        """
        if isinstance(event, Many):
            for each in event.replied:
                self.replied(each, medium, seconds)
            return
        message, refusal, kind = event.message, None, ""
        if isinstance(event, Opened):
            method, kind = "initialize", "session"
        elif event.refused:
            from mcpearl.server.refused_message import RefusedMessage

            method, kind, refusal = event.method, "refused", RefusedMessage(message)
            self._refusals.note("refused a request over %s: %s", medium, refusal)
        elif not event.method:
            return  # the answers of a batch
        else:
            method = event.method
        if kind and self.recorder is not None:
            self.recorder.answered_itself(kind, message, medium)
        if self.observer is not None:
            from mcpearl.runtime.observer import AnsweredMessage  # loaded with the observer

            code = None if refusal is None else refusal.code
            id, params = _asked(event.request)
            size = len(message)
            answered = AnsweredMessage(method, id, seconds, code, size, medium, params)
            self.observer.message_answered(answered)

    def blocked(self, what: str, seconds: float) -> None:
        """Tell the observer, if there is one, that something held up the event loop."""
        if self.observer is not None:
            self.observer.loop_blocked(what, seconds)

    def refused(self, bound: "Bound", reason: str) -> None:
        """Log that a call is refused because a limit was reached, and tell the observer of it.

        Args:
            bound: The name of the limit, which clients cannot choose.
            reason: The reason that the caller is told.
        """
        self._refusals.note("refused a call (%s): %s", bound, reason)
        self.bounded(bound, reason)

    def bounded(self, bound: "Bound", detail: str) -> None:
        """Tell the observers of this server, and of those it is mounted in, that a limit was reached."""
        if self.observer is not None:
            self.observer.bound_reached(bound, detail)
        for outer in self.enclosing:
            outer.core.bounded(bound, detail)

    def counters(self) -> Mapping[str, int]:
        """Count what is open and what went wrong, over all open connections."""
        ends = [connection.end for connection in self.roster]
        found = {
            "connections": len(self.roster),
            "calls_in_flight": sum(len(end.in_flight) for end in ends),
            "requests_waiting": sum(len(end.pending) for end in ends),
            "messages_malformed": sum(end.malformed for end in ends),
            "answers_late": sum(end.pending.late for end in ends),
            "answers_unknown": sum(end.pending.unknown for end in ends),
            "handlers_unwinding": self.roster.unwinding,
            "bytes_held": self.budget.held,
            **{f"bytes_held_{kind}": size for kind, size in self.budget.by_kind.items()},
            **{f"subscriptions_{kind}": n for kind, n in self.subscriptions.counts().items()},
        }
        for source in self._sources:
            for name, number in source().items():
                found[name] = found.get(name, 0) + number
        return found
