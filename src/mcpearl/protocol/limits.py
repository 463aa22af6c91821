"""The bounds of one connection, each with its default. Reaching one is an error to whoever did."""

from msgspec import Struct

MIB = 1024 * 1024


class Limits(Struct, frozen=True, kw_only=True):
    """What one peer may make this side hold.

    >>> Server("weather", limits=Limits(max_message=1_000_000))
    """

    max_message: int = 16 * MIB
    """Bytes in one message; a longer one is refused without being buffered whole."""
    max_in_flight: int = 1024
    """Requests of one peer being worked on; past it reading pauses."""
    max_in_flight_hard: int = 16_384
    """Requests of one peer held at all; past it each further one is refused."""
    max_pending: int = 10_000
    """Requests of ours that wait for the peer's answer."""
    max_batch: int = 1000
    """Messages in one JSON-RPC batch (2025-03-26)."""
    max_subscriptions: int = 10_000
    """Resource subscriptions of one peer."""
    max_outgoing: int = 64 * MIB
    """Bytes waiting for a peer that does not read; past it the peer is dropped."""
    max_request_state: int = 256 * 1024
    """Bytes of a sealed `requestState`."""
