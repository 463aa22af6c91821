"""Refusing calls before they cost anything: over a rate, or when the server does not keep up.

It stands in front of the middleware and the dispatcher, and only where a limit is set: without one a
call passes nothing of this.
"""

from collections.abc import Callable, Hashable
from operator import attrgetter
from typing import TYPE_CHECKING

from msgspec import Struct

from mcpearl.net.fairness import Fairness
from mcpearl.protocol.errors import Overloaded, RateLimited
from mcpearl.protocol.events import Call
from mcpearl.runtime.lag import LagWatch
from mcpearl.runtime.rate import By, Meter, RateLimit
from mcpearl.server.dispatch import Dispatch

if TYPE_CHECKING:
    from mcpearl.runtime.threads import ThreadPool

KeyOf = Callable[[Call], Hashable]
# Requests that are answered however far behind the server is: they cost nothing, or end what others cost.
# A client that polls its task is not a new call either, and must get to know how it stands.
_SPARED = frozenset({"initialize", "ping", "server/discover", "logging/setLevel"})


class Shedding(Struct, frozen=True, kw_only=True):
    """When a server refuses new calls because it does not keep up with those it has.

    >>> Server("weather", shedding=Shedding(lag=0.1))
    """

    lag: float = 0.1
    """Seconds one turn of the event loop may take, and a message that was read may wait for its turn;
    later calls are refused."""
    queue: int = 1000
    """Calls that may wait for a thread."""
    retry_after: float = 1.0
    """Seconds a refused caller is asked to wait."""


class Throttle:
    """The limits of a whole server.

    Args:
        rate: How often each caller may call.
        shedding: When calls are refused because of load.
        pool: The threads of handlers, which may fall behind.
        turns: Of the clients on sockets, whose messages may have waited.
        bounded: Called with the name of a limit that was reached, and what was refused.
    """

    def __init__(
        self,
        rate: RateLimit | None,
        shedding: Shedding | None,
        pool: "ThreadPool",
        turns: Fairness,
        bounded: Callable[[str, str], None],
    ) -> None:
        self.meter = None if rate is None else Meter(rate)
        self._key_of = None if rate is None else key_of(rate.by)
        self._shedding = shedding
        self._turns = turns
        self._bounded = bounded
        self._lag: LagWatch | None = None
        if shedding is not None:
            most = shedding.queue
            self._lag = LagWatch(shedding.lag, lambda: pool.waiting > most)

    def start(self) -> None:
        """Begin to watch the running loop."""
        if self._lag is not None:
            self._lag.start()

    def stop(self) -> None:
        """Watch the loop no more."""
        if self._lag is not None:
            self._lag.stop()

    def around(self, dispatch: Dispatch) -> Dispatch:
        """Put the rate in front of what answers calls."""
        if self.meter is not None and self._key_of is not None:
            dispatch = self.meter.before(dispatch, self._key_of, self._over)
        return dispatch

    def _over(self, wait: float) -> RateLimited:
        assert self.meter is not None
        error = RateLimited(str(self.meter.limit), wait)
        self._bounded("Server.rate", error.message)
        return error

    def gate(self) -> Callable[[str], None] | None:
        """Return what refuses requests while the server is behind; None if it never does."""
        lag, shedding, turns = self._lag, self._shedding, self._turns
        if lag is None or shedding is None:
            return None
        longest, pause = shedding.lag, shedding.retry_after

        def gate(method: str) -> None:
            now = lag.now()
            behind = now > lag.due or now - turns.since > longest
            if behind and method not in _SPARED and method[:6] != "tasks/":
                error = Overloaded("The server has more calls than it can serve", pause)
                self._bounded("Server.shedding", error.message)
                raise error

        return gate


def key_of(by: By) -> KeyOf:
    """Return the function that tells callers apart."""
    keys: dict[By, KeyOf] = {
        "principal": attrgetter("caller.principal"),
        "client": _client,
        "address": _address,
    }
    return keys[by]


def _client(call: Call) -> Hashable:
    """Return the client a token was issued to, or else the name a client goes by."""
    caller = call.caller
    client_id: str | None = getattr(caller.principal, "client_id", None)
    if client_id is not None:
        return client_id
    return None if caller.client is None else ("name", caller.client.name)


def _address(call: Call) -> Hashable:
    address: str | None = call.outlet.address
    return address
