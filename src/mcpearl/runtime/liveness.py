"""Noticing a peer that is gone without having said so: a ping when it was silent for long.

One timer per connection, which sleeps as long as nothing can be due. Whoever reads only notes when,
once per read; nothing is timed per message. A peer that was silent for a whole interval is asked; if
it stays silent for the time an answer may take, it is dead: so it is found out within the two of them
after it was last heard. Where a wire notices by itself, none of this runs.
"""

import asyncio
from typing import Protocol

from msgspec import Struct


class Keepalive(Struct, frozen=True, kw_only=True):
    """How long a silent session is left alone, and how long its peer may take to answer a ping.

    >>> Server("weather", keepalive=Keepalive(interval=60))
    """

    interval: float = 30.0
    """Seconds of silence before a ping, and between pings of an idle session."""
    patience: float = 10.0
    """Seconds for the answer; after them the peer is taken for dead."""


class Watched(Protocol):
    """A connection whose peer may fall silent."""

    heard_at: float
    """When something was last read, by the loop's clock."""

    @property
    def attentive(self) -> bool:
        """Whether what the peer says is read at the moment, so that silence is its own."""
        ...

    def ping(self, patience: float) -> bool:
        """Ask the peer whether it is there; False when that is no use now."""
        ...

    def silent(self, patience: float) -> None:
        """Take the peer for dead."""
        ...


class Watch:
    """Looks after one connection until stopped."""

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
            peer.heard_at = now  # what nobody reads cannot be heard
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
            self._wait_for_answer(now)  # this side slept; the answer may lie there, not read yet
        else:
            peer.silent(self._times.patience)

    def stop(self) -> None:
        """Look no more."""
        self._handle.cancel()
