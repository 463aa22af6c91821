"""The gateway's client of an upstream, which passes the upstream's questions to a gateway's client."""

from collections.abc import Awaitable, Callable
from typing import Any

from mcpearl.client.callbacks import Callbacks
from mcpearl.client.client import Client
from mcpearl.client.connection import BoundCallback, ClientConnection
from mcpearl.client.progress import ProgressCallback
from mcpearl.client.relay import Relay
from mcpearl.client.tasks.shapes import ModernTasks, TaskShape
from mcpearl.gateway.settings import UpstreamSettings
from mcpearl.protocol.errors import ConnectionLost, McpError
from mcpearl.protocol.events import Notice
from mcpearl.runtime.observers import Guarded
from mcpearl.telemetry.options import Telemetry
from mcpearl.transports.http_client.transport import HttpTransport
from mcpearl.transports.transport import Transport
from mcpearl.types.base import RequestId, Result
from mcpearl.types.capabilities import TASKS_EXTENSION, ClientCapabilities
from mcpearl.types.elicitation import ElicitResult
from mcpearl.types.jsonrpc import INTERNAL_ERROR, METHOD_NOT_FOUND
from mcpearl.types.logging import LoggingMessageNotificationParams
from mcpearl.types.roots import ListRootsResult
from mcpearl.types.sampling import CreateMessageResult
from mcpearl.types.tasks import Task

ANSWERS: dict[str, type[Result]] = {
    "elicitation/create": ElicitResult,
    "sampling/createMessage": CreateMessageResult,
    "roots/list": ListRootsResult,
}
Ask = Callable[[str, Any, type[Result]], Awaitable[Result]]
"""Puts a question to a client: method, params, and the type of the answer."""
Heard = Callable[[LoggingMessageNotificationParams, RequestId | None], None]
"""Called with a log message, and the request on whose stream it came."""
NOTHING = ClientCapabilities()
QUIET = ClientCapabilities(extensions={TASKS_EXTENSION: {}})
"""The gateway's own capabilities, for clients that cannot be asked anything."""


class RelayedQuestions(Callbacks):
    """Answers an upstream's questions with the answers of a client of the gateway."""

    def __init__(self, capabilities: ClientCapabilities, ask: Ask | None, timeout: float) -> None:
        super().__init__(None, None, None, timeout)
        self._declared = capabilities
        self._ask = ask

    def capabilities(self, extensions: dict[str, dict[str, Any]]) -> ClientCapabilities:
        """Return the capabilities of that client: an upstream must not ask for more."""
        return self._declared

    async def _answer(self, method: str, params: Any) -> Result:
        kind = ANSWERS.get(method)
        if kind is None or self._ask is None:
            raise McpError(METHOD_NOT_FOUND, f"this client does not answer `{method}`")
        try:
            return await self._ask(method, params, kind)
        except ConnectionLost as error:
            raise McpError(INTERNAL_ERROR, error.reason) from None


class UpstreamClient(Client):
    """A client of an upstream that works for clients of the gateway.

    Args:
        target: The upstream, as for `Client`.
        settings: Timeouts and limits.
        capabilities: The capabilities of the gateway's client.
        ask: Puts questions to the gateway's client.
        heard: Called with each log message as it arrives, and the request on whose stream it came.
        guard: Returns the addresses that may be connected to, if the upstream is not trusted.
        watch: Returns the observer of requests to the upstream, given its URL.
        **options: Options of `Client`.
    """

    def __init__(
        self,
        target: Any,
        settings: UpstreamSettings,
        capabilities: ClientCapabilities = NOTHING,
        ask: Ask | None = None,
        heard: Heard | None = None,
        guard: Callable[[], Awaitable[list[str]]] | None = None,
        watch: Callable[[object], Guarded | None] | None = None,
        **options: Any,
    ) -> None:
        self._heard = heard
        self._ask_timeout = settings.ask_timeout
        self._guard = guard
        self._observer_of = watch
        self._questions = RelayedQuestions(capabilities, ask, settings.ask_timeout)
        super().__init__(
            target,
            timeout=settings.timeout,
            max_timeout=settings.max_timeout,
            connect_timeout=settings.connect_timeout,
            protocol=settings.protocol,
            validate_output=False,
            **options,
        )
        self.relay = self._make_relay(settings)
        """Sends the requests of the gateway's clients."""

    def _watching(
        self, observer: Guarded | None, telemetry: Telemetry | bool | None
    ) -> Guarded | None:
        """Return the observer that all clients of the upstream share, if there is one."""
        return None if self._observer_of is None else self._observer_of(self._target.identity)

    def _make_relay(self, settings: UpstreamSettings) -> Relay:
        parts = self._link, settings.timeout, settings.max_timeout, settings.patience
        if self._observer is None:
            return Relay(*parts)
        from mcpearl.client.observing import ObservedRelay

        return ObservedRelay(self._observer, *parts)

    @property
    def has_session(self) -> bool:
        """Whether the upstream can keep state for this connection: over HTTP, if it opened a session."""
        connection = self._link.connection
        transport = None if connection is None else connection.transport
        return not isinstance(transport, HttpTransport) or transport.has_session

    def task_shape(self, ask: Ask | None, seen: Callable[[Task], None] | None = None) -> TaskShape:
        """Return the shape in which the upstream has tasks, to follow one.

        Args:
            ask: Puts the questions of a modern upstream's task; in a session they come as requests.
            seen: Called with each state of a modern upstream's task.
        """
        if self.era != "modern":
            return self._tasks.shape()
        questions = RelayedQuestions(NOTHING, ask, self._ask_timeout)
        return ModernTasks(self._requests, questions, self._subscriptions.stream, seen)

    def keep_progress(self, token: RequestId, callback: ProgressCallback) -> None:
        """Keep calling `callback` with the progress of a request that became a task."""
        connection = self._link.connection
        if connection is not None and isinstance(token, int):
            connection.progress.keep(token, callback)

    def drop_progress(self, token: RequestId) -> None:
        """Stop calling the callback of a task that has ended."""
        connection = self._link.connection
        if connection is not None and isinstance(token, int):
            connection.progress.drop(token)

    def _noticed(self, notice: Notice) -> BoundCallback | None:
        if notice.method == "notifications/message" and self._heard is not None:
            connection = self._link.connection
            transport = None if connection is None else connection.transport
            reading = transport.reading if isinstance(transport, HttpTransport) else None
            self._heard(notice.params, reading)
            return None
        return super()._noticed(notice)

    def _begin(self, transport: Transport) -> ClientConnection:
        if self._guard is not None:
            if not isinstance(transport, HttpTransport):
                raise ConnectionLost("only servers at https addresses are used here")
            transport.guard = self._guard
        return super()._begin(transport)

    def _answering(self, callbacks: Callbacks) -> Callbacks:
        return self._questions
