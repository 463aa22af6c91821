"""Errors every store may raise."""


class StoreUnavailable(Exception):
    """The store cannot be reached or used at the moment; the same step may succeed later.

    Its text is for the operator: it may name an address or a file. Clients get `TOLD` instead.
    """


class Unreadable(StoreUnavailable):
    """A stored value is not of the expected kind, or it is sealed with another key."""


TOLD = "the server's store cannot be used at the moment"
RETRY_AFTER = 5
"""Seconds after which clients are asked to repeat what was refused with `TOLD`."""
