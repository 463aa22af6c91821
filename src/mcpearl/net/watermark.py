"""The amount of unread output at which a sender waits for its peer to read."""

HIGH_WATER = 1024 * 1024
"""Unread bytes from which a sender waits."""


def high_water(limit: int) -> int:
    """Return the mark for a peer that is dropped at `limit` unread bytes; it is well below that."""
    return min(HIGH_WATER, limit // 4)
