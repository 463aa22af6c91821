"""Changes on a modern server as a stream: one `subscriptions/listen` request.

The stream outlives its connection. After a reconnect the client opens it on the new connection; if
only the stream breaks, which happens over HTTP, it opens itself again.
"""

import asyncio
from collections import deque
from functools import partial
from math import inf
from types import TracebackType

import msgspec

from mcpearl.client.connection import ClientConnection
from mcpearl.client.link import Link
from mcpearl.protocol.errors import (
    ConnectionLost,
    LimitReached,
    McpearlError,
    McpError,
    RequestTimeout,
)
from mcpearl.protocol.events import Notice
from mcpearl.protocol.modern import LISTEN
from mcpearl.protocol.pending import PendingRequest
from mcpearl.runtime.backoff import Retries
from mcpearl.runtime.tree import State
from mcpearl.types.subscriptions import SubscriptionFilter, SubscriptionsListenRequestParams

MAX_UNREAD = 10_000
_ACKNOWLEDGED = "notifications/subscriptions/acknowledged"


class Subscription:
    """A stream of notifications, made by `Client.listen`.

    It ends when the server ends it, or when the block is left.

    >>> async with client.listen(tools=True, resources=["weather://oslo/now"]) as changes:
    ...     async for notice in changes:
    ...         print(notice.method)

    Args:
        link: the client's link to its server.
        streams: the client's open streams, which are opened again after a reconnect.
        wanted: what the server is asked to announce.
        timeout: seconds in which the server has to acknowledge the subscription.
        read: whether the application reads the stream; `on_notification` gets everything anyway.
    """

    def __init__(
        self,
        link: Link,
        streams: "set[Subscription]",
        wanted: SubscriptionFilter,
        timeout: float,
        *,
        read: bool = True,
    ) -> None:
        self._link = link
        self._streams = streams
        self._wanted = wanted
        self._timeout = timeout
        self._read = read
        self._connection: ClientConnection | None = None  # the one it is open on
        self._entry: PendingRequest | None = None
        self._acknowledged: asyncio.Future[None] | None = None
        self._unread: deque[Notice] = deque()
        self._news = asyncio.Event()
        self._failure: BaseException | None = None
        self._returning: asyncio.Task[None] | None = None
        self.ended = False
        """Whether the stream is over."""
        self.granted: SubscriptionFilter | None = None
        """What the server agreed to announce."""

    @property
    def node_state(self) -> State:
        """The state of the stream, for the client's tree."""
        if self.ended:
            return "ended" if self._failure is None else "failed"
        return "waiting" if self._entry is None else "running"

    # Opening

    async def open(self) -> None:
        """Subscribe, and wait for the server to acknowledge it."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout
        connection = await self._link.ready(deadline)
        self._streams.add(self)
        try:
            await self.open_on(connection, deadline - loop.time())
        except BaseException as error:
            self.fail(error)
            raise

    async def open_on(self, connection: ClientConnection, timeout: float) -> None:
        """Subscribe on a connection, unless that is done already.

        Args:
            connection: where to subscribe.
            timeout: seconds in which the server has to acknowledge the subscription.
        """
        if self._entry is not None and self._connection is connection:
            return
        if not connection.end.version.modern:
            raise not_modern(connection.end.version.name)
        self._acknowledged = connection.loop.create_future()
        params = SubscriptionsListenRequestParams(notifications=self._wanted)
        self._entry, end = connection.listen(params, self._noticed)
        self._connection = connection
        end.add_done_callback(partial(self._broke, connection, self._entry))
        try:
            await asyncio.wait(
                (self._acknowledged, end),
                timeout=timeout,
                return_when=asyncio.FIRST_COMPLETED,
            )
        except BaseException:
            self._leave()
            raise
        if self._acknowledged.done():
            return
        in_time = end.done()
        self._leave()
        if not in_time:
            raise RequestTimeout(LISTEN, self._timeout)
        if not end.cancelled():
            end.result()  # raises what the server answered instead
        self.fail(None)

    def _noticed(self, notice: Notice) -> None:
        if notice.method == _ACKNOWLEDGED:
            self.granted = notice.params.notifications
            if self._acknowledged is not None and not self._acknowledged.done():
                self._acknowledged.set_result(None)
        elif not self._read:
            return
        elif len(self._unread) >= MAX_UNREAD:
            self.fail(
                LimitReached(
                    f"{MAX_UNREAD} notifications were not read; the subscription is closed"
                )
            )
        else:
            self._unread.append(notice)
            self._news.set()

    # Breaking, and coming back

    def _broke(
        self,
        connection: ClientConnection,
        entry: PendingRequest,
        end: "asyncio.Future[msgspec.Raw]",
    ) -> None:
        """Handle the end of the request: end the stream, or have it opened again."""
        failure = None if end.cancelled() else end.exception()
        assert self._acknowledged is not None
        if self._entry is not entry or not self._acknowledged.done():
            return  # an earlier request, or one not acknowledged, which `open_on` reports
        self._leave()
        if not self._comes_back(failure):
            self.fail(failure)
        elif connection.lost_reason is None and self._returning is None:
            self._returning = connection.loop.create_task(self._come_back())

    def _comes_back(self, failure: BaseException | None) -> bool:
        if self._link.reconnect is None:
            return False
        # A stream that is read ends when the server ends it. A subscription to a URI goes on.
        return isinstance(failure, ConnectionLost) or (failure is None and not self._read)

    async def _come_back(self) -> None:
        """Open the stream again: it broke, but its connection did not."""
        assert self._link.reconnect is not None
        retries = Retries(self._link.reconnect)
        try:
            while not self.ended:
                await asyncio.sleep(retries.next_delay())
                connection = await self._link.ready(inf)
                try:
                    await self.open_on(connection, self._timeout)
                    return
                except ConnectionLost as lost:
                    if not lost.maybe_executed and connection.lost_reason is None:
                        self._link.doubt(connection, lost)
        except McpearlError as error:
            self.fail(error)
        finally:
            self._returning = None

    # Ending

    def fail(self, failure: BaseException | None) -> None:
        """End the stream for good; its reader gets what has arrived, then the failure.

        Args:
            failure: what the reader gets at the end; None ends its iteration.
        """
        if self.ended:
            return
        self.ended = True
        self._failure = failure
        self._streams.discard(self)
        self._leave()
        if self._returning is not None and self._returning is not asyncio.current_task():
            self._returning.cancel()
        self._news.set()

    def _leave(self) -> None:
        entry, self._entry = self._entry, None
        if entry is not None and self._connection is not None:
            self._connection.unlisten(entry)

    def close(self) -> None:
        """End the subscription."""
        self.fail(None)

    # Reading

    def __aiter__(self) -> "Subscription":
        return self

    async def __anext__(self) -> Notice:
        while not self._unread:
            if self.ended:
                if self._failure is not None:
                    raise self._failure
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        return self._unread.popleft()

    async def __aenter__(self) -> "Subscription":
        await self.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def not_modern(version: str) -> McpError:
    """Make the error for listening on a server that has no such streams."""
    return McpError(
        -32601,
        f"`subscriptions/listen` is not part of protocol version {version}; "
        "use `subscribe` and `on_notification`",
    )
