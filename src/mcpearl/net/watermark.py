"""When a sender should wait for a peer that does not keep up with reading."""

HIGH_WATER = 1024 * 1024
"""Unread bytes from which a sender waits."""


def high_water(limit: int) -> int:
    """Return the mark for a peer that is dropped at `limit` unread bytes: well before that."""
    return min(HIGH_WATER, limit // 4)
