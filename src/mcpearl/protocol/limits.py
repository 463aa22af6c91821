"""The bounds of one connection, with their defaults."""

from msgspec import Struct

MIB = 1024 * 1024


class Limits(Struct, frozen=True, kw_only=True):
    """How much one peer may make this side hold, and how much work it may cause.

    >>> Server("weather", limits=Limits(max_message=1_000_000))
    """

    max_message: int = 16 * MIB
    """Bytes of one message; a longer one is refused without being buffered whole."""
    max_in_flight: int = 1024
    """Running requests of one peer; beyond this, reading from the peer pauses."""
    max_in_flight_hard: int = 16_384
    """Requests of one peer, running or held; beyond this, each further one is refused."""
    max_pending: int = 10_000
    """Requests of this side waiting for the peer's answer; beyond this, `LimitReached` is raised."""
    max_batch: int = 1000
    """Messages in one JSON-RPC batch (2025-03-26)."""
    max_subscriptions: int = 10_000
    """Resource subscriptions of one peer."""
    max_outgoing: int = 64 * MIB
    """Bytes waiting for a peer that does not read; beyond this, the peer is dropped."""
    max_request_state: int = 256 * 1024
    """Bytes of a sealed `requestState`; beyond this, the call fails."""
