"""One endpoint and what every exchange with it carries: who asks, in which version and session.

Between the wire, which knows HTTP alone, and the transport, which knows messages.
"""

from collections.abc import Awaitable, Callable, Mapping
from urllib.parse import urljoin, urlsplit

from mcpearl._version import __version__
from mcpearl.net.http_client.exchange import ExchangeFailed, Header, HttpExchange
from mcpearl.net.http_client.http1 import format_head
from mcpearl.net.http_client.pool import ConnectionPool, origin_of, target_of
from mcpearl.transports.http_client.authorizer import Authorizer, check_given, let_in
from mcpearl.transports.mirrored_headers import LAST_EVENT_ID, PROTOCOL_VERSION, SESSION_ID

JSON = "application/json"
EVENTS = "text/event-stream"
REDIRECTS = (301, 302, 303, 307, 308)
_SAME_METHOD = (307, 308)
_MAX_REDIRECTS = 5


class SessionEnded(ExchangeFailed):
    """The server no longer knows the session."""

    def __init__(self, *, sent: bool = False) -> None:
        super().__init__("the server ended the session", sent=sent)


class Oversized(ExchangeFailed):
    """The server's answer is larger than a message may be. Asking again would not mend it."""

    def __init__(self, what: str, limit: int) -> None:
        super().__init__(f"{what} is over the limit of {limit} bytes", sent=True)


class RemoteEndpoint:
    """The way to one MCP endpoint. Whoever learns of a version, session or address sets it here."""

    def __init__(
        self,
        url: str,
        wire: ConnectionPool,
        headers: Mapping[str, str] | None,
        authorizer: Authorizer | None,
    ) -> None:
        self.wire = wire
        self._url = url
        self._target = target_of(urlsplit(url))
        self._given = list((headers or {}).items())
        if not any(name.lower() == "user-agent" for name, _ in self._given):
            self._given.append(("User-Agent", f"mcpearl/{__version__}"))
        format_head("POST", "/", self._given)  # so that a bad one is refused here
        check_given((name for name, _ in self._given), authorizer)
        self._authorizer = authorizer
        self.version: str | None = None
        """As the last message named it, or `initialize` agreed."""
        self.session: str | None = None
        self.endpoint: str | None = None
        """Where messages go instead, when the server speaks HTTP+SSE."""

    async def post(
        self,
        message: bytes,
        mirrored: list[Header],
        version: str | None,
        sent: Callable[[], None],
        held: Callable[[bool], None],
    ) -> HttpExchange:
        """Send one message and wait for the head of the answer; `sent` is told in between.

        `held` is told when the message has to wait here for authorization, and when no longer.
        """
        headers = [("Accept", f"{JSON}, {EVENTS}"), ("Content-Type", JSON), *mirrored]
        return await self._ask(
            "POST", self.endpoint or self._target, headers, message, version, sent, held
        )

    async def get(self, last_id: str = "") -> HttpExchange:
        """Ask for a stream of events, from the start or after the event `last_id`."""
        headers = [("Accept", EVENTS), ("Cache-Control", "no-cache")]
        if last_id:
            headers.append((LAST_EVENT_ID, last_id))
        return await self._ask("GET", self._target, headers)

    async def delete(self) -> None:
        """End the session. Nobody is asked to log in for that."""
        headers = [*self._given, *self._common(self.version)]
        if self._authorizer is not None:
            shown = self._authorizer.headers("DELETE", self.wire.origin + self._target)
            headers += shown if isinstance(shown, list) else await shown
        (await self._exchange("DELETE", self._target, headers, b"", lambda: None)).release()

    async def _ask(
        self,
        method: str,
        target: str,
        headers: list[Header],
        body: bytes = b"",
        version: str | None = None,
        sent: Callable[[], None] = lambda: None,
        held: Callable[[bool], None] = lambda _: None,
    ) -> HttpExchange:
        """Make a request, following redirects only within the origin."""
        headers = [*headers, *self._given, *self._common(version or self.version)]
        for _ in range(_MAX_REDIRECTS):
            connection = await self._let_in(method, target, headers, body, sent, held)
            elsewhere = self._redirected(method, target, connection)
            if elsewhere is None:
                return self._in_session(connection)
            connection.release()
            target = elsewhere
        raise ExchangeFailed(f"the server redirects more than {_MAX_REDIRECTS} times", sent=False)

    async def _let_in(
        self,
        method: str,
        target: str,
        headers: list[Header],
        body: bytes,
        sent: Callable[[], None],
        held: Callable[[bool], None],
    ) -> HttpExchange:
        """Make a request, with authorization where there is somebody to give it."""
        if self._authorizer is None:
            return await self._exchange(method, target, headers, body, sent)

        def ask(shown: list[Header]) -> Awaitable[HttpExchange]:
            return self._exchange(method, target, headers + shown, body, sent)

        return await let_in(self._authorizer, method, self.wire.origin + target, ask, held)

    async def _exchange(
        self,
        method: str,
        target: str,
        headers: list[Header],
        body: bytes,
        sent: Callable[[], None],
    ) -> HttpExchange:
        connection = await self.wire.acquire()
        try:
            connection.send(method, target, headers, body)
            sent()
            await connection.answered()
        except BaseException:
            connection.release()
            raise
        return connection

    def _in_session(self, connection: HttpExchange) -> HttpExchange:
        """Refuse the answer that means a lost session: nothing was done for it."""
        if connection.status == 404 and self.session is not None:
            connection.release()
            raise SessionEnded
        return connection

    def _common(self, version: str | None) -> list[Header]:
        headers: list[Header] = []
        if version is not None:
            headers.append((PROTOCOL_VERSION, version))
        if self.session is not None:
            headers.append((SESSION_ID, self.session))
        return headers

    def _redirected(self, method: str, target: str, connection: HttpExchange) -> str | None:
        """Give where an answer points to, if it may be followed there."""
        location = connection.headers.get("location")
        if connection.status not in REDIRECTS or location is None:
            return None
        if method != "GET" and connection.status not in _SAME_METHOD:
            return None
        return self.within(location, target)

    def within(self, reference: str, base: str | None = None) -> str | None:
        """Give the target a reference names, if it is of the same origin."""
        try:
            url = urlsplit(
                urljoin(self._url if base is None else self.wire.origin + base, reference)
            )
            return target_of(url) if origin_of(url) == self.wire.origin else None
        except ValueError:
            return None


def kind_of(connection: HttpExchange) -> str:
    """Give the content type of an answer without its parameters."""
    return connection.headers.get("content-type", "").partition(";")[0].strip().lower()


def is_stream(connection: HttpExchange) -> bool:
    """Whether the answer is a stream of events."""
    return connection.status == 200 and kind_of(connection) == EVENTS
