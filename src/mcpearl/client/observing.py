"""Calls of a client, and requests that it makes for other clients, of which an observer is notified."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import Any, TypeVar

import msgspec
from msgspec import Raw, Struct, field

from mcpearl.client.connection import RelayedRequest
from mcpearl.client.relay import Relay
from mcpearl.client.requests import ClientCall, Requests
from mcpearl.protocol.codec import UNREADABLE
from mcpearl.protocol.pending import PendingRequest
from mcpearl.runtime.observer import Outcome, outcome_of
from mcpearl.runtime.observers import Guarded
from mcpearl.types.base import Result

R = TypeVar("R", bound=Result)
A = TypeVar("A")


class _ToolOutcome(Struct):
    is_error: bool = field(default=False, name="isError")


_tool_outcome = msgspec.json.Decoder(_ToolOutcome).decode


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

    def run(self, call: ClientCall[R]) -> Awaitable[R]:
        """Send a call, with what the observer adds to its `_meta`; report its beginning and end."""

        def add(meta: Mapping[str, Any]) -> None:
            call.meta = {**meta, **(call.meta or {})}

        return _reported(self._observer, call, add, partial(super().run, call), outcome_of)


class ObservedRelay(Relay):
    """A relay whose requests an observer is notified of, each as a call of this client.

    The observer gets results as they came, undecoded.

    Args:
        observer: Notified of each request.
        *rest: As for `Relay`.
    """

    __slots__ = ("_observer",)

    def __init__(self, observer: Guarded, *rest: Any) -> None:
        super().__init__(*rest)
        self._observer = observer

    def request(self, request: RelayedRequest) -> Coroutine[Any, Any, Raw]:
        """Send a request; what the observer adds to its `_meta` replaces what its caller had there."""
        call: ClientCall[Any] = ClientCall(
            request.method, request.params, Result, self._timeout, self._max_timeout
        )
        _note_sent(request, call)

        def add(meta: Mapping[str, Any]) -> None:
            request.meta = {**(request.meta or {}), **meta}

        outcome = partial(_outcome_of, request.method)
        return _reported(self._observer, call, add, partial(self._send, request), outcome)


async def _reported(
    observer: Guarded,
    call: ClientCall[Any],
    add: Callable[[Mapping[str, Any]], None],
    send: Callable[[], Awaitable[A]],
    outcome: Callable[[A], Outcome],
) -> A:
    """Send a call with what the observer adds to its `_meta`; report its beginning and end."""
    began = observer.call_began(call)
    if observer.has_meta:
        added = observer.call_meta(began)
        if added:
            add(added)
    try:
        answer = await send()
    except asyncio.CancelledError:
        observer.call_ended(began, call, "cancelled", 0, None)
        raise
    except Exception as error:
        observer.call_ended(began, call, "error", 0, error)
        raise
    observer.call_ended(began, call, outcome(answer), 0, answer)
    return answer


def _note_sent(request: RelayedRequest, call: ClientCall[Any]) -> None:
    """Have the requests that are sent noted in a call, and reported as before."""
    note, report = call.sent.append, request.on_sent
    if report is None:
        request.on_sent = note
        return

    def sent(entry: PendingRequest) -> None:
        note(entry)
        report(entry)

    request.on_sent = sent


def _outcome_of(method: str, raw: Raw) -> Outcome:
    """Return the outcome of a request that was answered with a result."""
    if method != "tools/call":
        return "result"
    try:
        return "tool_error" if _tool_outcome(raw).is_error else "result"
    except UNREADABLE:
        return "result"
