"""One MCP endpoint, and what every HTTP request to it carries: version, session, authorization.

It stands between the connection pool, which knows HTTP only, and the transport, which knows messages.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol
from urllib.parse import urljoin, urlsplit

from mcpearl._version import __version__
from mcpearl.net.http_client.exchange import ExchangeFailed, Header, HttpExchange
from mcpearl.net.http_client.http1 import Http1Connection, format_head
from mcpearl.net.http_client.pool import ConnectionPool
from mcpearl.net.http_client.urls import origin_of, target_of
from mcpearl.protocol.errors import AuthorizationFailed
from mcpearl.transports.http_client.authorizer import Authorizer, check_given, let_in
from mcpearl.transports.http_client.failures import REDIRECTS, unauthorized
from mcpearl.transports.mirrored_headers import LAST_EVENT_ID, PROTOCOL_VERSION, SESSION_ID

JSON = "application/json"
EVENTS = "text/event-stream"
_SAME_METHOD = (307, 308)
_MAX_REDIRECTS = 5
_MAX_HEADS, _LONGEST_NAME = 256, 256  # heads that are kept, and the length of names in them
_OF_A_POST: list[Header] = [("Accept", f"{JSON}, {EVENTS}"), ("Content-Type", JSON)]


class SessionEnded(ExchangeFailed):
    """The server no longer knows the session."""

    def __init__(self, *, sent: bool = False) -> None:
        super().__init__("the server ended the session", sent=sent)


class Oversized(ExchangeFailed):
    """The server's answer is larger than a message may be. A retry would not help."""

    def __init__(self, what: str, limit: int) -> None:
        super().__init__(f"{what} is over the limit of {limit} bytes", sent=True)


class ExchangeSender(Protocol):
    """The source of a request, which is notified of the request's progress."""

    def sent(self) -> None:
        """Note that the request was handed to the loop."""
        ...

    def held(self, holding: bool) -> None:
        """Note that the request begins or stops waiting for authorization."""
        ...


class _Unconcerned:
    """The sender of requests whose progress does not matter."""

    def sent(self) -> None: ...

    def held(self, holding: bool) -> None: ...


_UNCONCERNED = _Unconcerned()


class RemoteEndpoint:
    """The way to one MCP endpoint. It owns the version and session that requests carry.

    Args:
        url: The address of the endpoint.
        pool: Makes the connections to its origin.
        headers: Further headers of every request.
        authorizer: Supplies the headers that authorize each request.
    """

    def __init__(
        self,
        url: str,
        pool: ConnectionPool,
        headers: Mapping[str, str] | None,
        authorizer: Authorizer | None,
    ) -> None:
        self.pool = pool
        self._url = url
        self._target = target_of(urlsplit(url))
        self._given = list((headers or {}).items())
        if not any(name.lower() == "user-agent" for name, _ in self._given):
            self._given.append(("User-Agent", f"mcpearl/{__version__}"))
        format_head("POST", "/", self._given)  # refuses invalid headers now, not per request
        check_given((name for name, _ in self._given), authorizer)
        self._authorizer = authorizer
        self._version: str | None = None  # of the last message
        self._session: str | None = None
        self._messages = self._target  # where messages go; an HTTP+SSE server names it
        # Heads of POSTs, by method, name and version.
        self._heads: dict[tuple[str, str | None, str | None], bytes] = {}
        self.is_sse = False
        """Whether the server speaks HTTP+SSE of 2024-11-05."""

    # State

    @property
    def has_session(self) -> bool:
        """Whether the server opened a legacy session."""
        return self._session is not None

    def join_session(self, session: str) -> None:
        """Send this session id from now on, if it is a valid one."""
        if session and all("!" <= character <= "~" for character in session):
            self._session = session
            self._heads.clear()

    def send_messages_to(self, target: str) -> None:
        """POST messages to the target that an HTTP+SSE server named."""
        self._messages = target
        self._heads.clear()
        self.is_sse = True

    def unauthorized(self, status: int, body: bytes, challenge: str) -> AuthorizationFailed:
        """Make the error for a server that does not let this client in."""
        has_header = any(name.lower() == "authorization" for name, _ in self._given)
        has_auth = self._authorizer is not None
        return unauthorized(status, body, challenge, has_auth=has_auth, has_header=has_header)

    # Requests

    def post_now(
        self,
        message: bytes,
        method: str,
        name: str | None,
        mirrored: Callable[[], list[Header]],
        version: str | None,
        told: Callable[[], None],
    ) -> Http1Connection | None:
        """Send one message at once, if a connection is idle and no authorizer has to be asked.

        Args:
            message: The body.
            method: Its method.
            name: What it names. Messages with the same method and name have the same headers.
            mirrored: Returns headers that repeat parts of the message.
            version: The protocol version of the message.
            told: Called once, when the answer's head has arrived or never will.

        Returns:
            The connection, with which `post` continues; None for a message that `post` has to send.
        """
        connection = self.pool.idle() if self._authorizer is None else None
        if connection is None:
            return None
        self._version = version
        head = self._heads.get((method, name, version))
        if head is None:
            headers = self._complete([*_OF_A_POST, *mirrored()])
            try:
                head = connection.head_of_post(self._messages, headers)
            except ValueError:
                self.pool.keep(connection)
                return None
            if name is None or len(name) <= _LONGEST_NAME:
                if len(self._heads) >= _MAX_HEADS:
                    self._heads.clear()
                self._heads[method, name, version] = head
        connection.post(head, message, told)
        return connection

    def post(
        self,
        message: bytes,
        mirrored: list[Header],
        version: str | None,
        sender: ExchangeSender,
        begun: HttpExchange | None = None,
    ) -> Awaitable[HttpExchange]:
        """Send one message and wait for the head of the answer.

        Args:
            message: The body.
            mirrored: Headers that repeat parts of the message.
            version: The protocol version of the message; later GETs and DELETEs name it too.
            sender: Notified when the message is sent, and when it waits for authorization.
            begun: The connection on which the message was sent already.
        """
        self._version = version
        headers = [*_OF_A_POST, *mirrored]
        return self._ask("POST", self._messages, headers, message, sender, begun)

    async def get(self, last_id: str = "") -> HttpExchange:
        """Ask for a stream of events, from the start or after the event `last_id`."""
        headers = [("Accept", EVENTS), ("Cache-Control", "no-cache")]
        if last_id:
            headers.append((LAST_EVENT_ID, last_id))
        return await self._ask("GET", self._target, headers)

    async def delete(self) -> None:
        """End the session with the credentials at hand; this is not worth a login."""
        headers = self._complete([])
        if self._authorizer is not None:
            shown = self._authorizer.headers("DELETE", self.pool.origin + self._target)
            headers += shown if isinstance(shown, list) else await shown
        (await self._exchange("DELETE", self._target, headers, b"", _UNCONCERNED)).release()

    def _complete(self, headers: list[Header]) -> list[Header]:
        """Add the headers that every request carries."""
        headers += self._given
        if self._version is not None:
            headers.append((PROTOCOL_VERSION, self._version))
        if self._session is not None:
            headers.append((SESSION_ID, self._session))
        return headers

    async def _ask(
        self,
        method: str,
        target: str,
        headers: list[Header],
        body: bytes = b"",
        sender: ExchangeSender = _UNCONCERNED,
        begun: HttpExchange | None = None,
    ) -> HttpExchange:
        """Make a request, or continue one, following redirects only within the origin."""
        headers = self._complete(headers)
        for _ in range(_MAX_REDIRECTS):
            if begun is not None:
                connection, begun = begun, None
                await _head_of(connection)
            elif self._authorizer is None:
                connection = await self._exchange(method, target, headers, body, sender)
            else:
                connection = await self._authorized(
                    self._authorizer, method, target, headers, body, sender
                )
            if connection.status == 404 and self._session is not None:
                connection.release()
                raise SessionEnded  # the server did nothing with the request
            if connection.status not in REDIRECTS:
                return connection
            elsewhere = self._redirected(method, target, connection)
            if elsewhere is None:
                return connection
            connection.release()
            target = elsewhere
        raise ExchangeFailed(f"the server redirects more than {_MAX_REDIRECTS} times", sent=False)

    async def _authorized(
        self,
        authorizer: Authorizer,
        method: str,
        target: str,
        headers: list[Header],
        body: bytes,
        sender: ExchangeSender,
    ) -> HttpExchange:
        """Make a request with what the authorizer supplies."""

        def ask(shown: list[Header]) -> Awaitable[HttpExchange]:
            return self._exchange(method, target, headers + shown, body, sender)

        return await let_in(authorizer, method, self.pool.origin + target, ask, sender.held)

    async def _exchange(
        self, method: str, target: str, headers: list[Header], body: bytes, sender: ExchangeSender
    ) -> HttpExchange:
        connection = self.pool.free() or await self.pool.acquire()
        try:
            connection.send(method, target, headers, body)
            sender.sent()
        except BaseException:
            connection.release()
            raise
        await _head_of(connection)
        return connection

    def _redirected(self, method: str, target: str, connection: HttpExchange) -> str | None:
        """Return the target a redirect points to, if it may be followed."""
        location = connection.headers.get("location")
        if location is None or (method != "GET" and connection.status not in _SAME_METHOD):
            return None
        return self.within(location, target)

    def within(self, reference: str, base: str | None = None) -> str | None:
        """Return the target a reference names, if it is of the same origin."""
        origin = self.pool.origin
        try:
            url = urlsplit(urljoin(self._url if base is None else origin + base, reference))
            return target_of(url) if origin_of(url) == origin else None
        except ValueError:
            return None


async def _head_of(connection: HttpExchange) -> None:
    """Wait for the head of an answer."""
    try:
        await connection.answered()
    except BaseException:
        connection.release()
        raise


def kind_of(connection: HttpExchange) -> str:
    """Return the content type of an answer without its parameters."""
    return connection.headers.get("content-type", "").partition(";")[0].strip().lower()


def is_stream(connection: HttpExchange) -> bool:
    """Whether the answer is a stream of events."""
    return connection.status == 200 and kind_of(connection) == EVENTS
