"""Handlers that an application sets and removes at run time, one for each notification or request.

They also serve extensions: a notification or request with a method that this package does not know is
accepted once there is a handler for it.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from mcpearl.protocol.routes import TO_CLIENT, Route
from mcpearl.types.base import Open, Result
from mcpearl.types.methods import Method

Handler = Callable[[Any], Any]

_NOTIFICATION = "notifications/"
_MAX_HANDLERS = 1000
_ELSEWHERE = {
    "notifications/progress": "progress belongs to a call: pass `on_progress=`",
    "notifications/cancelled": "a cancelled request has its own outcome",
    "sampling/createMessage": "pass `Client(sampling=…)`, which also declares the capability",
    "elicitation/create": "pass `Client(elicitation=…)`, which also declares the capability",
    "roots/list": "pass `Client(roots=…)`, which also declares the capability",
    "ping": "pings are answered by the client itself",
}


class ForeignParams(Open, kw_only=True):
    """Params of a method that the specification does not define."""

    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


class Handlers:
    """The handlers of one client.

    Args:
        notices: Notifications that are accepted without a handler too.
    """

    def __init__(self, notices: Mapping[str, Route]) -> None:
        self.notices: dict[str, Route] = dict(notices)
        """Notifications that are accepted; connections look up each one here."""
        self.requests: dict[str, Route] = dict(TO_CLIENT)
        """Requests that are accepted, likewise."""
        self._known = notices
        self._handlers: dict[str, Handler] = {}

    def put(self, method: str, handler: Handler | None) -> None:
        """Set the handler of a method, or remove it with None."""
        if method in _ELSEWHERE:
            raise ValueError(f"`{method}` has no handler of its own: {_ELSEWHERE[method]}")
        is_notification = method.startswith(_NOTIFICATION)
        routes, known = (
            (self.notices, self._known) if is_notification else (self.requests, TO_CLIENT)
        )
        if handler is None:
            self._handlers.pop(method, None)
            if method not in known:
                routes.pop(method, None)
            return
        if not callable(handler):
            raise TypeError(
                f"the handler of `{method}` is a {type(handler).__name__}, not a function"
            )
        if method not in self._handlers and len(self._handlers) >= _MAX_HANDLERS:
            raise ValueError(f"a client has at most {_MAX_HANDLERS} handlers; remove some first")
        self._handlers[method] = handler
        if method not in routes:
            routes[method] = Route(Method(name=method, params=ForeignParams, sender="server"))

    def of(self, method: str) -> Handler | None:
        """Return the handler of a method, or None."""
        return self._handlers.get(method)

    async def answer(self, method: str, params: Any) -> Result | None:
        """Answer a request of the server; None if there is no handler for it."""
        handler = self._handlers.get(method)
        if handler is None:
            return None
        value = handler(shown(params))
        if inspect.isawaitable(value):
            value = await value
        if isinstance(value, Result):
            return value
        if value is None or isinstance(value, Mapping):
            return Result(extra=dict(value or {}))
        raise TypeError(f"a handler of requests returns a dict or None, not {value!r}")


def shown(params: Any) -> Any:
    """Return the params as handlers get them: a dict if the specification does not define the method."""
    return params.to_dict() if isinstance(params, ForeignParams) else params
