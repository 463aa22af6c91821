"""Calls of a client that an observer is notified of."""

import asyncio
from typing import Any, TypeVar

from mcpearl.client.requests import ClientCall, Requests
from mcpearl.runtime.observer import outcome_of
from mcpearl.runtime.observers import Guarded
from mcpearl.types.base import Result

R = TypeVar("R", bound=Result)


class ObservedRequests(Requests):
    """Requests that an observer is notified of: when a call begins, and how it ended.

    A call is reported once, however many rounds of questions and connections it took.

    Args:
        observer: Notified of each call.
        *rest: As for `Requests`.
        **options: As for `Requests`.
    """

    def __init__(self, observer: Guarded, *rest: Any, **options: Any) -> None:
        super().__init__(*rest, **options)
        self._observer = observer

    async def run(self, call: ClientCall[R]) -> R:
        """Send a call, with what the observer adds to its `_meta`; report its beginning and end."""
        observer = self._observer
        began = observer.call_began(call)
        if observer.has_meta:
            added = observer.call_meta(began)
            if added:
                call.meta = {**added, **(call.meta or {})}
        try:
            result = await super().run(call)
        except asyncio.CancelledError:
            observer.call_ended(began, call, "cancelled", 0, None)
            raise
        except Exception as error:
            observer.call_ended(began, call, "error", 0, error)
            raise
        observer.call_ended(began, call, outcome_of(result), 0, result)
        return result
