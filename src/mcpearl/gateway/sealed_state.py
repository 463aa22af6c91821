"""The state that a gateway seals into `requestState`, bound to a call's caller, name and arguments."""

from msgspec import Raw, Struct

from mcpearl.protocol.events import Call
from mcpearl.protocol.seal import Binding, binding
from mcpearl.runtime import clock
from mcpearl.server.core import ServerCore
from mcpearl.types.base import decode, encode
from mcpearl.types.prompts import GetPromptRequestParams
from mcpearl.types.resources import ReadResourceRequestParams
from mcpearl.types.tool_calls import CallToolRequestParams


class SealedState(Struct, array_like=True):
    """Either the state of a modern upstream, or the place of a parked call."""

    upstream: str | None = None
    """The state of a modern upstream."""
    parked: str | None = None
    """The id of a parked call."""
    home: str | None = None
    """The process that has the parked call."""

    def seal(self, bound: Binding, core: ServerCore) -> str:
        """Return the sealed state, for a client to send back."""
        return core.sealer().seal(encode(self), bound, clock.now())


def open_state(state: str, bound: Binding, core: ServerCore) -> SealedState:
    """Open a sealed state; raise `StateRefused` if it is too old, or of another caller or call."""
    return decode(SealedState, core.sealer().open(state, bound, clock.now()))


def binding_of(call: Call) -> Binding:
    """Return what the state of a call is bound to: the caller, the method, the name and the arguments."""
    raw: Raw | bytes | None = None
    match call.params:
        case CallToolRequestParams(name=name, arguments=arguments):
            raw = arguments if isinstance(arguments, Raw) else None
        case GetPromptRequestParams(name=name, arguments=given):
            raw = None if given is None else encode(given)
        case ReadResourceRequestParams(uri=name):
            pass
        case other:
            raise TypeError(f"{type(other).__name__} has no rounds")
    principal = call.caller.principal
    identity = None if principal is None else principal.identity
    return binding(identity, call.method, name, raw)
