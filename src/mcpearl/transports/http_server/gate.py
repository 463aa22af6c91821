"""What an HTTP endpoint needs from authorization, and how it refuses a request.

An endpoint knows neither tokens nor keys. It asks its gate for the principal of each request; a gate
that finds none raises the refusal to be sent.
"""

from collections.abc import Iterable
from typing import Any, Protocol

from msgspec import UNSET

from mcpearl.net.http_server.request import HeaderPairs, RequestInfo
from mcpearl.protocol.errors import McpError
from mcpearl.runtime.observer import Bound
from mcpearl.types.jsonrpc import INTERNAL_ERROR, INVALID_REQUEST

WELL_KNOWN = "/.well-known/"
"""The beginning of the paths of documents that every client may read."""


class Refused(Exception):
    """A request is answered with an error before its message is looked at."""

    def __init__(
        self,
        status: int,
        message: str,
        code: int = INVALID_REQUEST,
        headers: HeaderPairs = (),
        data: Any = UNSET,
        bound: Bound | None = None,
    ) -> None:
        super().__init__(message)
        self.bound = bound  # the setting of the limit that was reached
        self.status = status
        self.error = McpError(code, message, data)
        self.headers = headers


def busy(reason: str, seconds: int, bound: Bound | None = None) -> Refused:
    """Make a refusal that asks the client to try again after so many seconds.

    `bound` is the setting of the limit that was reached, if one was.
    """
    retry = ((b"retry-after", b"%d" % seconds),)
    return Refused(503, reason, INTERNAL_ERROR, retry, bound=bound)


class Gate(Protocol):
    """Finds the principal of a request.

    Principals are kept with sessions and compared there: the same client must get an equal one.
    """

    def known(self, request: RequestInfo) -> Any | None:
        """Return the principal if that takes no waiting; if this returns None, `admit` is called.

        Args:
            request: The request.
        """
        ...

    async def admit(self, request: RequestInfo) -> Any:
        """Return the principal, or raise `Refused`.

        Args:
            request: The request.
        """
        ...

    def insufficient(self, request: RequestInfo, needed: Iterable[str]) -> Refused:
        """Make the refusal of a call that needs scopes its principal lacks.

        Args:
            request: The request.
            needed: The scopes the call needs.
        """
        ...

    def document(self, request: RequestInfo) -> bytes | None:
        """Return the public JSON document at a well-known path, such as resource metadata; or None.

        Args:
            request: The request.
        """
        ...
