"""The other end of a call, as its `Context` needs it.

A connection is a peer. A call that outlives its connection has a peer of another kind, which stores what
the handler sends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from typing import Any, Protocol

import msgspec

from mcpearl import types
from mcpearl.protocol.events import Call, Caller
from mcpearl.types.base import Result

LEVELS: dict[str, int] = {
    level: rank
    for rank, level in enumerate(
        ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
    )
}


class Peer(Protocol):
    """The other end of a call, as its handler sees it."""

    loop: asyncio.AbstractEventLoop
    thread: int
    """The thread the loop runs in."""
    share: Hashable
    """Identifies the peer where resources are divided between peers; None if it is not known."""

    def waits_for(self, call: Call) -> bool:
        """Whether the answer to this call is still wanted."""
        ...

    async def notify(self, call: Call, method: str, params: msgspec.Struct) -> None:
        """Send a notification that belongs to a call, and wait while the peer does not read."""
        ...

    async def ask(self, call: Call, method: str, params: msgspec.Struct, kind: type[Result]) -> Any:
        """Send a request on behalf of a call, and return the answer as `kind`."""
        ...

    def tell(self, message: bytes) -> bool:
        """Send a message that belongs to no call; return False if there is no way to send it."""
        ...

    def answer(self, call: Call, result: Result) -> None:
        """Answer a call whose handler continues."""
        ...

    def stop(self, call: Call) -> None:
        """End the handler of a call that has nothing more to do in this round."""
        ...

    def reserve(self, uri: str) -> None:
        """Make sure that there is room for a subscription; raises `LimitReached`."""
        ...

    def subscribe(self, uri: str) -> None:
        """Send updates of a resource to the peer from now on."""
        ...

    def unsubscribe(self, uri: str) -> None:
        """Send no more updates of a resource."""
        ...


def wants_log(caller: Caller, level: types.LoggingLevel) -> bool:
    """Whether a log message of this level may be sent: modern callers opt in, legacy ones out."""
    wanted = caller.log_level
    if wanted is None:
        return not caller.version.modern
    return LEVELS[level] >= LEVELS[wanted]
