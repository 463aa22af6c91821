"""Refuses a POST that waited too long for its turn, at a fraction of the cost of serving it.

Only the envelope of its message is read. An unusual request (its head is new, its body is large, a page
of another site sent it) is left to the endpoint, which refuses it in the same words.
"""

from collections.abc import Callable
from math import ceil

from msgspec import UNSET

from mcpearl.net.http_server.http1_request import Http1Request
from mcpearl.protocol import codec
from mcpearl.protocol.errors import Malformed, Overloaded
from mcpearl.transports.http_server.checks import HeadNotes

Refusal = Callable[[str], Overloaded | None]
_LARGEST = 4096  # bytes of the largest body that is looked at


class TurningAway:
    """Answers requests in place of the endpoint.

    Args:
        refusal: Returns the error a method is refused with; None for a method that is not refused.
    """

    __slots__ = ("_refusal",)

    def __init__(self, refusal: Refusal) -> None:
        self._refusal = refusal

    def __call__(self, request: Http1Request) -> bool:
        """Refuse a request; return False if it has to be served after all."""
        notes: HeadNotes | None = request.head.noted
        body = request.body
        if notes is None or notes.post is None or notes.cors or body is None:
            return False
        if len(body) > _LARGEST:
            return False
        try:
            message = codec.decode(body)
        except Malformed:
            return False
        if message.method is UNSET or message.id is UNSET:
            return False
        error = self._refusal(message.method)
        if error is None:
            return False
        wait = (b"retry-after", b"%d" % max(1, ceil(error.retry_after)))
        return request.respond_now(503, codec.encode_error(message.id, error), (wait,))
