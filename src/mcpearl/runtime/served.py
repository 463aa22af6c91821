"""The contexts of the calls that a request carried, for what is logged of it when they have ended.

A call runs in a context of its own, which has its ids and its span. The code that logs the request sets
`contexts` to an empty list; observers of calls that want their context to be found there append it.
"""

from contextvars import Context, ContextVar, copy_context

contexts: ContextVar[list[Context] | None] = ContextVar("mcpearl_served", default=None)


def append() -> None:
    """Append a copy of the context of a call, if the request that carried it is going to be logged."""
    found = contexts.get()
    if found is not None:
        contexts.set(None)  # for calls that its handler makes, which the request did not carry
        found.append(copy_context())
