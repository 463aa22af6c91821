"""How the clients of a gateway are presented to its upstreams: name, capabilities, log level."""

from typing import TYPE_CHECKING

from msgspec.structs import replace

from mcpearl.gateway.logs import level_of
from mcpearl.protocol.events import Caller
from mcpearl.protocol.modern import Presentation
from mcpearl.protocol.versions import NEWEST
from mcpearl.types.base import encode
from mcpearl.types.capabilities import TASKS_EXTENSION, ClientCapabilities

if TYPE_CHECKING:
    from mcpearl.gateway.upstream import Upstream

_KNOWN_CALLERS = 512  # callers whose presentations are kept


class Presentations:
    """The presentations of callers to one modern upstream, each made once.

    Args:
        upstream: The upstream.
    """

    def __init__(self, upstream: "Upstream") -> None:
        self._upstream = upstream
        self._of: dict[int, tuple[Caller, str | None, Presentation]] = {}  # by id of the caller
        self._equal: dict[bytes, Presentation] = {}  # by what is presented

    def of(self, caller: Caller) -> Presentation:
        """Return how a caller is presented.

        Args:
            caller: The caller.
        """
        known, level = self._of.get(id(caller)), level_of(caller)
        if known is not None and known[0] is caller and known[1] == level:
            return known[2]
        made = self._made(caller, level)
        while len(self._of) >= _KNOWN_CALLERS:
            self._of.pop(next(iter(self._of)))
        self._of[id(caller)] = caller, level, made
        return made

    def _made(self, caller: Caller, level: str | None) -> Presentation:
        """Return the presentation that equal clients share."""
        info, capabilities = caller.client or self._upstream.info, self._declared(caller)
        key = encode((info, capabilities, level))
        made = self._equal.get(key)
        if made is None:
            while len(self._equal) >= _KNOWN_CALLERS:
                self._equal.pop(next(iter(self._equal)))
            made = self._equal[key] = Presentation(NEWEST, info, capabilities, level)
        return made

    def _declared(self, caller: Caller) -> ClientCapabilities:
        """Return the capabilities to declare: with tasks, which a legacy client's calls may be too."""
        capabilities = declared(caller)
        theirs = caller.capabilities.extensions or {}
        if caller.version.modern and TASKS_EXTENSION not in theirs:
            return capabilities
        if not self._upstream.tasks.offered:
            return capabilities
        extensions = {**(capabilities.extensions or {}), TASKS_EXTENSION: {}}
        return replace(capabilities, extensions=extensions)


def declared(caller: Caller) -> ClientCapabilities:
    """Return the capabilities of a caller that a gateway passes on: all but tasks, which are its own.

    Args:
        caller: The caller.
    """
    capabilities = caller.capabilities
    extensions = capabilities.extensions
    if capabilities.tasks is None and (not extensions or TASKS_EXTENSION not in extensions):
        return capabilities
    kept = {key: value for key, value in (extensions or {}).items() if key != TASKS_EXTENSION}
    return replace(capabilities, tasks=None, extensions=kept or None)
