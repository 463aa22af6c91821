"""Routes: for each method, what is needed to admit it: decoder of params, versions, capability."""

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
from msgspec import Raw

from mcpearl.protocol.capabilities import SERVER_NEEDS
from mcpearl.protocol.codec import UNREADABLE
from mcpearl.protocol.errors import McpError, brief
from mcpearl.protocol.versions import VERSIONS, Version
from mcpearl.types.base import Open, decode, read_float
from mcpearl.types.jsonrpc import INVALID_PARAMS, METHOD_NOT_FOUND, PARSE_ERROR
from mcpearl.types.methods import NOTIFICATIONS, REQUESTS, Method

_NEWEST_INDEX = len(VERSIONS) - 1


class Route:
    """One method as its receiver sees it.

    Args:
        method: Name, params type and versions of the method.
        needs: The capability that has to be announced for it, such as `tools`.
    """

    __slots__ = ("_method", "name", "needs", "read", "since", "until")

    def __init__(self, method: Method, needs: str | None = None) -> None:
        self.name = method.name
        self.needs = needs
        self.since = VERSIONS[method.since].index
        self.until = VERSIONS[method.until].index if method.until else _NEWEST_INDEX
        self._method = method
        self.read: Callable[[bytes | Raw], Any] = self._first_read
        """Reads the params; raises what `refusal` makes an error of."""

    def _first_read(self, raw: bytes | Raw) -> Any:
        """Make the decoder when the method is first called: most never are."""
        params = self._method.params
        self.read = (
            partial(decode, params)
            if issubclass(params, Open)
            # What a caller adds to `_meta` is untyped: see `types.base` about floats.
            else msgspec.json.Decoder(params, float_hook=read_float).decode
        )
        return self.read(raw)

    def decode(self, raw: bytes | Raw) -> Any:
        """Read the params; the error says what does not fit."""
        try:
            return self.read(raw)
        except UNREADABLE as error:
            raise self.refusal(error) from None

    def refusal(self, error: Exception) -> McpError:
        """Return the error for params that could not be read."""
        if isinstance(error, msgspec.ValidationError):
            message = f"Invalid params for `{self.name}`: {brief(str(error))}"
            return McpError(INVALID_PARAMS, message, {"method": self.name})
        if isinstance(error, RecursionError):
            message = f"Invalid params for `{self.name}`: nested too deeply"
            return McpError(INVALID_PARAMS, message)
        return McpError(PARSE_ERROR, f"Params of `{self.name}` are not JSON: {error}")

    def check_version(self, version: Version) -> None:
        """Refuse a method that this version does not have."""
        if not self.since <= version.index <= self.until:
            raise McpError(
                METHOD_NOT_FOUND,
                f"Method not found: `{self.name}` is not part of protocol version {version.name}",
                {"method": self.name},
            )


def unknown_method(name: str) -> McpError:
    """Return the error for a method that no version has."""
    shown = brief(name, 128)
    return McpError(METHOD_NOT_FOUND, f"Method not found: {shown}", {"method": shown})


def _routes(table: dict[str, Method], sender: str) -> dict[str, Route]:
    return {
        name: Route(method, SERVER_NEEDS.get(name))
        for name, method in table.items()
        if method.sender in (sender, "both")
    }


TO_SERVER = _routes(REQUESTS, "client")
TO_CLIENT = _routes(REQUESTS, "server")
NOTICES_TO_SERVER = _routes(NOTIFICATIONS, "client")
NOTICES_TO_CLIENT = _routes(NOTIFICATIONS, "server")
