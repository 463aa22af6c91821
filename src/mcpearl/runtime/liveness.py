"""Noticing a peer that is gone without having said so: a ping when it was silent for long.

One coarse timer per connection. Whoever reads only notes that something came, once per read; nothing
is timed per message. A peer that was silent for a whole interval is asked; if it stays silent for
the time an answer may take, it is dead. Where a wire notices by itself, none of this runs.
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

    heard: bool
    """Set whenever something was read."""

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

    __slots__ = ("_due", "_handle", "_loop", "_peer", "_times")

    def __init__(self, loop: asyncio.AbstractEventLoop, peer: Watched, times: Keepalive) -> None:
        self._loop = loop
        self._peer = peer
        self._times = times
        self._due = 0.0  # when the answer to a ping has to be there
        self._handle = loop.call_later(times.interval, self._look)

    def _look(self) -> None:
        peer = self._peer
        if peer.heard or not peer.attentive or not peer.ping(self._times.patience):
            self._go_on()
        else:
            self._wait_for_answer()

    def _go_on(self) -> None:
        self._peer.heard = False
        self._handle = self._loop.call_later(self._times.interval, self._look)

    def _wait_for_answer(self) -> None:
        self._due = self._loop.time() + self._times.patience
        self._handle = self._loop.call_at(self._due, self._judge)

    def _judge(self) -> None:
        peer = self._peer
        if peer.heard or not peer.attentive:
            self._go_on()
        elif self._loop.time() > self._due + self._times.patience / 2:
            self._wait_for_answer()  # this side slept; the answer may lie there, not read yet
        else:
            peer.silent(self._times.patience)

    def stop(self) -> None:
        """Look no more."""
        self._handle.cancel()
