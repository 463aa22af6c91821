"""Detecting a peer that is gone without having closed its connection, by pings.

There is one timer per connection, which sleeps while nothing can be due. A connection notes the time
once per read; no message has a timer of its own. A peer that is silent for `interval` is pinged, and
considered dead when it stays silent for `patience` more. Transports that detect a lost peer themselves do
not use this.
"""

import asyncio
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct


class Keepalive(Struct, frozen=True, kw_only=True):
    """When the peer of a silent session is pinged, and how long it may take to answer.

    >>> Server("weather", keepalive=Keepalive(interval=60))
    """

    interval: float = 30.0
    """Seconds of silence before a ping, and between pings of an idle session."""
    patience: float = 10.0
    """Seconds to wait for the answer, after which the peer is considered dead."""


if TYPE_CHECKING:

    class Watched(Protocol):
        """A connection whose peer may fall silent."""

        heard_at: float
        """When something was last read, in the loop's time."""

        @property
        def attentive(self) -> bool:
            """Whether the connection is being read; otherwise silence says nothing about the peer."""
            ...

        def ping(self, patience: float) -> bool:
            """Send a ping; return False when none can be sent now."""
            ...

        def silent(self, patience: float) -> None:
            """Called when the peer is considered dead."""
            ...
else:
    Watched = Any  # making a protocol takes time at each start


class Watch:
    """Watches one connection until stopped."""

    __slots__ = ("_asked_at", "_due", "_handle", "_loop", "_peer", "_times")

    def __init__(self, loop: asyncio.AbstractEventLoop, peer: Watched, times: Keepalive) -> None:
        self._loop = loop
        self._peer = peer
        self._times = times
        self._asked_at = 0.0  # when the last ping was sent
        self._due = 0.0  # when the answer to it has to be there
        peer.heard_at = loop.time()
        self._handle = loop.call_at(peer.heard_at + times.interval, self._look)

    def _look(self) -> None:
        peer, now = self._peer, self._loop.time()
        if not peer.attentive:
            peer.heard_at = now  # nothing is being read, so silence says nothing
        silent_until = peer.heard_at + self._times.interval
        if now < silent_until:
            self._handle = self._loop.call_at(silent_until, self._look)
        elif peer.ping(self._times.patience):
            self._asked_at = now
            self._wait_for_answer(now)
        else:
            self._handle = self._loop.call_at(now + self._times.patience, self._look)

    def _wait_for_answer(self, now: float) -> None:
        self._due = now + self._times.patience
        self._handle = self._loop.call_at(self._due, self._judge)

    def _judge(self) -> None:
        peer, now = self._peer, self._loop.time()
        if peer.heard_at >= self._asked_at or not peer.attentive:
            self._look()
        elif now > self._due + self._times.patience / 2:
            # This process was suspended; the answer may have arrived unread.
            self._wait_for_answer(now)
        else:
            peer.silent(self._times.patience)

    def stop(self) -> None:
        """Stop watching."""
        self._handle.cancel()
