"""A legacy client as the application sees it outside of calls.

A `Session` is a handle, made when it is needed; the connection owns everything. Its messages go through a
`Context` whose call is not a request of the client: it belongs to the session, and ends with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

import msgspec

from mcpearl import types
from mcpearl.protocol import codec
from mcpearl.protocol.errors import ConnectionLost
from mcpearl.protocol.events import Call, Caller
from mcpearl.server.asking import Elicited
from mcpearl.server.context import Context
from mcpearl.types.base import Implementation, RequestParams, Result
from mcpearl.types.capabilities import ClientCapabilities

if TYPE_CHECKING:
    from mcpearl.auth.principal import Principal
    from mcpearl.server.connection import ServerConnection
    from mcpearl.server.core import ServerCore
else:
    Principal = ServerConnection = ServerCore = Any  # loaded where they are made


_LONGEST = 128  # characters of a client's name that are shown


class Session:
    """A client that is connected now, in a version of the protocol with sessions.

    >>> for session in app.sessions:
    ...     await session.log("warning", "the server restarts in a minute")

    Args:
        connection: The server's side of the client; sessions are made by the server.
        core: What the server's connections share.
    """

    __slots__ = ("_connection", "_core", "_first")

    def __init__(self, connection: ServerConnection, core: ServerCore) -> None:
        assert connection.end.caller is not None
        self._connection = connection
        self._core = core
        self._first: Caller = connection.end.caller

    def __repr__(self) -> str:
        client = self.client
        name = "a client" if client is None else f"{client.name} {client.version}"[:_LONGEST]
        return f"<Session of {name}, {self.protocol}>"

    # The client

    @property
    def id(self) -> str | None:
        """The id of the session over HTTP; None on wires whose connection is the session."""
        return self._connection.transport.session_id

    @property
    def client(self) -> Implementation | None:
        """Name and version of the client, as it declared them."""
        return self._caller.client

    @property
    def capabilities(self) -> ClientCapabilities:
        """What the client can do."""
        return self._caller.capabilities

    @property
    def protocol(self) -> str:
        """The version of the protocol, such as `2025-11-25`."""
        return self._caller.version.name

    @property
    def principal(self) -> Principal | None:
        """The authenticated client; None when the wire did not authenticate it."""
        return self.context().principal

    @property
    def closed(self) -> bool:
        """Whether the client has left."""
        return self._connection.session is not self

    @property
    def _caller(self) -> Caller:
        """The client as it is now: a new token may have changed its principal."""
        current = self._connection.end.caller
        return self._first if current is None or self.closed else current

    # Telling

    def log(
        self, level: types.LoggingLevel, data: Any, logger: str | None = None
    ) -> Awaitable[None]:
        """Write to the client's log, if it wants messages of this level.

        Await it in async code; a plain function in a thread just calls it.

        Args:
            level: `debug`, `info`, `notice`, `warning`, `error`, `critical`, `alert` or `emergency`.
            data: The message: a string, or anything with a JSON form.
            logger: The name of the part that logs.
        """
        return self.context().log(level, data, logger)

    async def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        """Send a notification, such as one of an extension. After the end it is dropped.

        Args:
            method: Its method, such as `notifications/tools/list_changed`.
            params: Its params.
        """
        if not self.closed:
            body = None if params is None else msgspec.json.encode(params)
            self._connection.tell(codec.encode_notification(method, body or b"{}"))
            self._connection.transport.flush()
        await asyncio.sleep(0)

    # Asking

    async def roots(self) -> list[types.Root]:
        """Ask the client which folders it lets the server work in."""
        return await self.context().roots()

    async def elicit(self, message: str, schema: Any = None) -> Elicited[Any]:
        """Ask the user to fill in a form.

        Args:
            message: What the user is asked.
            schema: The form, as for `Context.elicit`.
        """
        answer: Elicited[Any] = await self.context().elicit(message, schema)
        return answer

    async def sample(
        self,
        messages: str | list[str | types.SamplingMessage],
        *,
        max_tokens: int = 1024,
        system_prompt: str | None = None,
        temperature: float | None = None,
    ) -> types.CreateMessageResult:
        """Ask the client's model to continue a conversation.

        Args:
            messages: The conversation: a text of the user, or a list of texts and messages.
            max_tokens: How long the answer may be.
            system_prompt: Instructions for the model.
            temperature: How much the model varies.
        """
        return await self.context().sample(
            messages, max_tokens=max_tokens, system_prompt=system_prompt, temperature=temperature
        )

    # Ending

    async def close(self) -> None:
        """End the session: calls in flight have the server's grace period to finish."""
        if not self.closed:
            await self._connection.drain(self._core.grace)
            await self._connection.wait_closed()

    async def wait_closed(self) -> None:
        """Wait until the client has left."""
        if not self.closed:
            await self._connection.wait_closed()

    def context(self) -> Context:
        """Return a context that belongs to no call of the client, only to its session."""
        call = Call(0, "", RequestParams(), b"{}", self._caller, outlet=self._connection.outlet)
        return Context(call, SessionPeer(self, self._connection), self._core)


class SessionPeer:
    """The other end of what the application says and asks outside of calls."""

    __slots__ = ("_connection", "_session", "loop", "share", "thread")

    def __init__(self, session: Session, connection: ServerConnection) -> None:
        self._session = session
        self._connection = connection
        self.loop = connection.loop
        self.thread = connection.thread
        self.share = connection.share

    def waits_for(self, call: Call) -> bool:
        """Whether the client is still there."""
        return not self._session.closed

    async def notify(self, call: Call, method: str, params: msgspec.Struct) -> None:
        """Send a notification, and wait while the client does not read."""
        await self._connection.notify(call, method, params)
        self._connection.transport.flush()

    async def ask(self, call: Call, method: str, params: msgspec.Struct, kind: type[Result]) -> Any:
        """Send a request, and return the answer as `kind`."""
        if self._session.closed:
            raise ConnectionLost(f"`{method}` cannot be sent: the client has left")
        return await self._connection.ask(call, method, params, kind)

    def tell(self, message: bytes) -> bool:
        """Send a message; return whether the client is still there."""
        return not self._session.closed and self._connection.tell(message)

    def answer(self, call: Call, result: Result) -> None:
        """Do nothing: there is no call of the client."""

    def stop(self, call: Call) -> None:
        """Do nothing: there is no handler to end."""

    def reserve(self, uri: str) -> None:
        """Make sure that there is room for a subscription; raises `LimitReached`."""
        self._connection.reserve(uri)

    def subscribe(self, uri: str) -> None:
        """Send updates of a resource to the client from now on."""
        self._connection.subscribe(uri)

    def unsubscribe(self, uri: str) -> None:
        """Send no more updates of a resource."""
        self._connection.unsubscribe(uri)
