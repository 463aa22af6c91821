"""The client of an upstream: its questions are put to the client that the gateway works for."""

from collections.abc import Awaitable, Callable
from typing import Any

from mcpearl.client.callbacks import Callbacks
from mcpearl.client.client import Client
from mcpearl.client.connection import ClientConnection, Told
from mcpearl.client.progress import ProgressCallback
from mcpearl.client.relay import Relay
from mcpearl.client.tasks.shapes import ModernTasks, TaskShape
from mcpearl.gateway.settings import UpstreamSettings
from mcpearl.protocol.errors import ConnectionLost, McpError
from mcpearl.protocol.events import Notice
from mcpearl.transports.http_client.transport import HttpTransport
from mcpearl.transports.transport import Transport
from mcpearl.types.base import RequestId, Result
from mcpearl.types.capabilities import ClientCapabilities
from mcpearl.types.elicitation import ElicitResult
from mcpearl.types.jsonrpc import INTERNAL_ERROR, METHOD_NOT_FOUND
from mcpearl.types.logging import LoggingMessageNotificationParams
from mcpearl.types.roots import ListRootsResult
from mcpearl.types.sampling import CreateMessageResult
from mcpearl.types.tasks import TASKS_EXTENSION, Task

ANSWERS: dict[str, type[Result]] = {
    "elicitation/create": ElicitResult,
    "sampling/createMessage": CreateMessageResult,
    "roots/list": ListRootsResult,
}
Ask = Callable[[str, Any, type[Result]], Awaitable[Result]]
"""Puts a question to a client: method, params, and the type of the answer."""
Heard = Callable[[LoggingMessageNotificationParams, RequestId | None], None]
"""Takes a log message, and the request on whose stream it came."""
NOTHING = ClientCapabilities()
QUIET = ClientCapabilities(extensions={TASKS_EXTENSION: {}})
"""What the gateway can do itself, for clients that cannot be asked anything."""


class RelayedQuestions(Callbacks):
    """Answers an upstream's questions with what another client answers."""

    def __init__(self, capabilities: ClientCapabilities, ask: Ask | None, timeout: float) -> None:
        super().__init__(None, None, None, timeout)
        self._declared = capabilities
        self._ask = ask

    def capabilities(self, extensions: dict[str, dict[str, Any]]) -> ClientCapabilities:
        """Return what the other client can do: an upstream must not ask for more."""
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
    """A client that works for another one.

    Args:
        target: The upstream, as for `Client`.
        settings: How the gateway treats it.
        capabilities: What the other client can do.
        ask: Puts questions to it.
        heard: Called with each log message as it arrives, and the request on whose stream it came.
        guard: Returns the addresses that may be connected to, for one that is not trusted.
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
        **options: Any,
    ) -> None:
        self._heard = heard
        self._ask_timeout = settings.ask_timeout
        self._guard = guard
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
        self.relay = Relay(self._link, settings.timeout, settings.max_timeout, settings.patience)
        """The way for requests of the other client."""

    @property
    def has_session(self) -> bool:
        """Whether the upstream can keep state for this connection: over HTTP, if it opened a session."""
        connection = self._link.connection
        transport = None if connection is None else connection.transport
        return not isinstance(transport, HttpTransport) or transport.has_session

    def task_shape(self, ask: Ask | None, seen: Callable[[Task], None] | None = None) -> TaskShape:
        """Return how a task of the upstream is followed.

        Args:
            ask: Puts the questions of a task at a modern upstream; in a session they come as requests.
            seen: Called with each of its states, at a modern upstream.
        """
        if self.era != "modern":
            return self._tasks.shape()
        questions = RelayedQuestions(NOTHING, ask, self._ask_timeout)
        return ModernTasks(self._requests, questions, self._subscriptions.stream, seen)

    def keep_progress(self, token: RequestId, callback: ProgressCallback) -> None:
        """Go on calling `callback` with the progress of a request that became a task."""
        connection = self._link.connection
        if connection is not None and isinstance(token, int):
            connection.progress.keep(token, callback)

    def drop_progress(self, token: RequestId) -> None:
        """Stop that: the task has ended."""
        connection = self._link.connection
        if connection is not None and isinstance(token, int):
            connection.progress.drop(token)

    def _noticed(self, notice: Notice) -> Told | None:
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
