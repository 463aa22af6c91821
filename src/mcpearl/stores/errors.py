"""Errors every store may raise."""


class StoreUnavailable(Exception):
    """The store cannot be reached or used at the moment; the same step may succeed later."""
