"""Refuses calls before they cost anything: over a rate, or when the server does not keep up.

It stands in front of the middleware and the dispatcher, and only where a limit is set: without a limit,
no call passes through this code.
"""

from collections.abc import Callable, Hashable
from operator import attrgetter
from typing import TYPE_CHECKING

from msgspec import Struct

from mcpearl.net.fairness import Fairness
from mcpearl.protocol.errors import Overloaded, RateLimited
from mcpearl.protocol.events import Call
from mcpearl.runtime import clock
from mcpearl.runtime.congestion import Congestion
from mcpearl.runtime.observer import Reached
from mcpearl.runtime.rate import By, Meter, RateLimit
from mcpearl.server.context import Context
from mcpearl.server.dispatch import Answering, Dispatch

if TYPE_CHECKING:
    from mcpearl.runtime.threads import ThreadPool

KeyOf = Callable[[Call], Hashable]
# Requests that are answered however far behind the server is: they cost nothing, or end other work.
# Polling a task is not a new call either, and its client must learn the task's state.
_SPARED = frozenset({"initialize", "ping", "server/discover", "logging/setLevel"})
# Requests that clients make to learn what there is, also without being asked to: they have a count of
# their own, so that a caller can make as many calls as its rate says.
_LISTS = frozenset(
    {"tools/list", "prompts/list", "resources/list", "resources/templates/list", "tasks/list"}
)


class Shedding(Struct, frozen=True, kw_only=True):
    """When a server refuses new calls because it does not keep up with those it has.

    >>> Server("weather", shedding=Shedding(lag=0.1))
    """

    lag: float = 0.1
    """Seconds a call may wait for its turn. While calls never cease to wait, it is a quarter of that."""
    queue: int = 1000
    """Calls that may wait for a thread."""
    retry_after: float = 1.0
    """Seconds a refused caller is asked to wait."""


class Throttle:
    """The limits of a whole server.

    Args:
        rate: How often each caller may call, and how often it may ask for lists.
        shedding: When calls are refused because of load.
        pool: The threads of handlers, which may fall behind.
        turns: The turns of clients on sockets.
        refused: Called for each call that is refused, with the name of the limit and the reason.
    """

    def __init__(
        self,
        rate: RateLimit | None,
        shedding: Shedding | None,
        pool: "ThreadPool",
        turns: Fairness,
        refused: Reached,
    ) -> None:
        self.meter = None if rate is None else Meter(rate)
        self.list_meter = None if rate is None else Meter(rate)
        """Counts requests for lists, against the same rate."""
        self._key_of = None if rate is None else key_of(rate.by)
        self._shedding = shedding
        self._refused = refused
        self._overload = self._overloaded()  # sent as it is; raised ones are new
        self.congestion: Congestion | None = None
        if shedding is not None:
            most = shedding.queue
            self.congestion = Congestion(shedding.lag, lambda: pool.waiting > most)
            turns.congestion = self.congestion

    def start(self) -> None:
        """Begin to watch the running loop."""
        if self.congestion is not None:
            self.congestion.start()

    def stop(self) -> None:
        """Stop watching the loop."""
        if self.congestion is not None:
            self.congestion.stop()

    def around(self, dispatch: Dispatch) -> Dispatch:
        """Return a dispatch that counts each call against the rate first."""
        if self.meter is None or self.list_meter is None or self._key_of is None:
            return dispatch
        take, key_of, over = self.meter.take, self._key_of, self._over
        take_list = self.list_meter.take
        anonymous, interval = self.meter.anonymous, self.meter.interval
        if self.meter.limit.by == "principal" and not self.meter.is_shared:

            def limited_by_principal(call: Call, ctx: Context) -> Answering:
                # Every call passes here. Anonymous callers, as on stdio, make short calls: while they
                # have used nothing, they are counted without calling a function.
                principal = call.caller.principal
                if call.method in _LISTS:
                    if wait := take_list(principal):
                        raise over(wait)
                elif principal is None and anonymous[0] < (now := clock.monotonic()):
                    anonymous[0] = now + interval
                elif wait := take(principal):
                    raise over(wait)
                return dispatch(call, ctx)

            return limited_by_principal

        def limited(call: Call, ctx: Context) -> Answering:
            if wait := (take_list if call.method in _LISTS else take)(key_of(call)):
                raise over(wait)
            return dispatch(call, ctx)

        return limited

    def _over(self, wait: float) -> RateLimited:
        assert self.meter is not None
        error = RateLimited(str(self.meter.limit), wait)
        self._refused("Server.rate", error.message)
        return error

    def gate(self) -> Callable[[str], None] | None:
        """Return a function that refuses requests while the server is behind; None if it never does."""
        congestion = self.congestion
        if congestion is None:
            return None
        is_behind, refusal = congestion.is_behind, self.refusal

        def gate(method: str) -> None:
            # Every call passes here, so the usual case is checked without calling a function.
            if clock.monotonic() < congestion.fine_until and not congestion.refusing:
                return
            if is_behind() and refusal(method) is not None:
                raise self._overloaded()

        return gate

    def refusal(self, method: str) -> Overloaded | None:
        """Return the error for a request while the server is behind; None for methods that pass."""
        if method in _SPARED or method[:6] == "tasks/":
            return None
        error = self._overload
        self._refused("Server.shedding", error.message)
        return error

    def _overloaded(self) -> Overloaded:
        pause = 1.0 if self._shedding is None else self._shedding.retry_after
        return Overloaded("The server has more calls than it can serve", pause)


def key_of(by: By) -> KeyOf:
    """Return the function that identifies callers."""
    keys: dict[By, KeyOf] = {
        "principal": attrgetter("caller.principal"),
        "client": _client,
        "address": _address,
    }
    return keys[by]


def _client(call: Call) -> Hashable:
    """Return the client that a token was issued to, or else the name that the client declared."""
    caller = call.caller
    client_id: str | None = getattr(caller.principal, "client_id", None)
    if client_id is not None:
        return client_id
    return None if caller.client is None else ("name", caller.client.name)


def _address(call: Call) -> Hashable:
    address: str | None = call.outlet.address
    return address
