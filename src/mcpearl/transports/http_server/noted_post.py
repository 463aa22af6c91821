"""A POST that notes its calls at its request, for the ids in a line of the access log."""

from collections.abc import Callable

from mcpearl.net.http_server.request import Work
from mcpearl.protocol.events import Call
from mcpearl.transports.http_server.post import CallRunner, PostOutlet


class NotedPost(PostOutlet):
    """A POST to an endpoint whose access log clears what is noted here: `FiledAccess`.

    Until then the request and its calls refer to each other. The request is of
    `net/http_server/noted_requests`.
    """

    def serve(
        self,
        conversation: CallRunner,
        calls: list[Call],
        status: "Callable[[PostOutlet], int]",
    ) -> Work | None:
        """Note the calls, then run them; see `PostOutlet.serve`."""
        self._request.carried = calls  # type: ignore[attr-defined]
        return super().serve(conversation, calls, status)
