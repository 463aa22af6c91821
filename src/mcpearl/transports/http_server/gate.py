"""Who comes in: what an HTTP endpoint asks of authorization, and how a request is refused.

An endpoint knows neither tokens nor keys. It asks a gate for the principal behind each request, and a
gate that does not find one raises the refusal that is sent.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from msgspec import UNSET

from mcpearl.net.http_server.request import Headers, Scope
from mcpearl.protocol.errors import McpError
from mcpearl.types.jsonrpc import INTERNAL_ERROR, INVALID_REQUEST

WELL_KNOWN = "/.well-known/"
"""Where documents are that everybody may read."""


class Refused(Exception):
    """A request that is answered without anybody having looked at its message."""

    def __init__(
        self,
        status: int,
        message: str,
        code: int = INVALID_REQUEST,
        headers: Headers = (),
        data: Any = UNSET,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.error = McpError(code, message, data)
        self.headers = headers


def busy(reason: str, seconds: int) -> Refused:
    """Refuse for now: it may be tried again after so many seconds."""
    return Refused(503, reason, INTERNAL_ERROR, ((b"retry-after", b"%d" % seconds),))


class Gate(Protocol):
    """Tells who is asking. Headers are given by name in lower case, as bytes.

    What it gives is kept with sessions, and compared there: the same somebody must be equal.
    """

    def known(self, scope: Scope, headers: Mapping[bytes, bytes]) -> Any | None:
        """Give the principal where that takes no waiting, or None: then `admit` is asked."""
        ...

    async def admit(self, scope: Scope, headers: Mapping[bytes, bytes]) -> Any:
        """Give the principal, or raise `Refused`."""
        ...

    def insufficient(
        self, scope: Scope, headers: Mapping[bytes, bytes], needed: Iterable[str]
    ) -> Refused:
        """Make the refusal of a call that needs scopes its principal does not have."""
        ...

    def document(self, scope: Scope) -> bytes | None:
        """Give the JSON document this well-known path has for everybody, such as resource metadata."""
        ...
