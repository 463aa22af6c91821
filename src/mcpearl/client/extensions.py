"""Extensions of the protocol on the client's side.

An extension is announced in every handshake, or with every request in the modern era. It may claim
types of results that a server sends in place of a method's own, and handle notifications of its own.
"""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Protocol, TypeVar

from msgspec import Struct, field

from mcpearl.protocol.client_end import Claims
from mcpearl.protocol.events import Notice
from mcpearl.protocol.extensions import Extension, announced
from mcpearl.protocol.routes import NOTICES_TO_CLIENT, Route
from mcpearl.types.base import NotificationParams, Open, RequestParams, Result
from mcpearl.types.methods import Method

R = TypeVar("R", bound=Result)


class OpenParams(Open, kw_only=True):
    """Params of a request that the specification does not define."""

    meta: dict[str, Any] | None = field(default=None, name="_meta")


class Requester(Protocol):
    """The part of a `Client` that its extensions may use."""

    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | RequestParams | None = None,
        kind: type[R] = ...,
        *,
        timeout: float | None = None,
    ) -> R:
        """Send a request, as `Client.request` does."""
        ...


class ExtensionResult(Struct, frozen=True, kw_only=True):
    """A call that was answered with a result of an extension's own type."""

    method: str
    params: Struct
    deadline: float
    """When the call expires, as a time of the event loop."""


class ClientExtension(Extension):
    """One extension that a client supports. Subclass it, and pass it to `Client(extensions=[…])`."""

    results: ClassVar[Claims] = {}
    """The types of results it claims, by method and `resultType`."""
    notifications: ClassVar[Mapping[str, type[NotificationParams]]] = {}
    """The types of params of the notifications it handles, by method."""

    async def resolve(self, client: Requester, asked: ExtensionResult, result: Result) -> Result:
        """Return the result of a call that was answered with a type this extension claims.

        Args:
            client: the client that made the call; it may be used for further requests.
            asked: the call.
            result: the result that the server sent.
        """
        raise NotImplementedError(f"{type(self).__name__} claims results and has no `resolve`")

    def noticed(self, client: Requester, notice: Notice) -> Any:
        """Handle a notification of this extension; may be a coroutine function.

        Args:
            client: the client that received it.
            notice: its method and params.
        """


class ClientExtensions:
    """All extensions of one client, and what each of them claims."""

    def __init__(self, extensions: Iterable[ClientExtension]) -> None:
        extensions = tuple(extensions)
        self.settings = announced(extensions)
        """The announced settings of each extension, by identifier."""
        self.claims: dict[tuple[str, str], type[Result]] = {}
        self.routes: Mapping[str, Route] = NOTICES_TO_CLIENT
        self._by_type: dict[type[Result], ClientExtension] = {}
        self._by_notice: dict[str, ClientExtension] = {}
        for extension in extensions:
            self._add(extension)

    def _add(self, extension: ClientExtension) -> None:
        name = extension.identifier
        for claim, kind in extension.results.items():
            if claim in self.claims:
                raise ValueError(
                    f"two extensions claim the resultType {claim[1]!r} of `{claim[0]}`; "
                    f"one of them is `{name}`"
                )
            self.claims[claim] = kind
            self._by_type[kind] = extension
        for method, params in extension.notifications.items():
            if method in self.routes:
                raise ValueError(f"extension `{name}`: `{method}` is taken already")
            route = Route(Method(name=method, params=params, sender="server"))
            self.routes = {**self.routes, method: route}
            self._by_notice[method] = extension

    def claimant(self, result: Result) -> ClientExtension:
        """Return the extension that claims the type of this result."""
        return self._by_type[type(result)]

    def of_notice(self, method: str) -> ClientExtension | None:
        """Return the extension that handles this notification, or None."""
        return self._by_notice.get(method)
