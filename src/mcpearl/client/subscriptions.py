"""Following changes on a modern server: one `subscriptions/listen` request, read as a stream."""

import asyncio
from collections import deque
from types import TracebackType
from typing import TYPE_CHECKING

import msgspec

from mcpearl.protocol.errors import LimitReached, McpError, RequestTimeout
from mcpearl.protocol.events import Notice
from mcpearl.protocol.pending import Entry
from mcpearl.types.subscriptions import SubscriptionFilter, SubscriptionsListenRequestParams

if TYPE_CHECKING:
    from mcpearl.client.connection import ClientConnection

MAX_UNREAD = 10_000
_ACKNOWLEDGED = "notifications/subscriptions/acknowledged"


class Subscription:
    """A stream of notifications. It ends when the server ends it; leaving the block ends it here.

    >>> async with client.listen(tools=True, resources=["weather://oslo/now"]) as changes:
    ...     async for notice in changes:
    ...         print(notice.method)
    """

    def __init__(
        self,
        connection: "ClientConnection",
        wanted: SubscriptionFilter,
        timeout: float,
        *,
        kept: bool = True,
    ) -> None:
        self._connection = connection
        self._wanted = wanted
        self._timeout = timeout
        self._kept = kept  # whether somebody reads the stream; `on_notification` hears it anyway
        self._entry: Entry | None = None
        self._unread: deque[Notice] = deque()
        self._news = asyncio.Event()
        self._end: asyncio.Future[msgspec.Raw] | None = None
        self._failure: Exception | None = None
        self.granted: SubscriptionFilter | None = None
        """What the server agreed to."""

    async def open(self) -> None:
        """Subscribe, and wait for the server to acknowledge it."""
        params = SubscriptionsListenRequestParams(notifications=self._wanted)
        self._entry, self._end = self._connection.listen(params, self._noticed)
        self._end.add_done_callback(self._ended)
        try:
            async with asyncio.timeout(self._timeout):
                while self.granted is None and not self._end.done():
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            self.close()
            raise RequestTimeout("subscriptions/listen", self._timeout) from None
        except BaseException:
            self.close()
            raise
        if self.granted is None:
            self.close()
            if not self._end.cancelled():
                self._end.result()  # raises what the server answered instead

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        return self._end is not None and self._end.done()

    def _noticed(self, notice: Notice) -> None:
        if notice.method == _ACKNOWLEDGED:
            self.granted = notice.params.notifications
        elif not self._kept:
            return
        elif len(self._unread) >= MAX_UNREAD:
            self._failure = LimitReached(
                f"{MAX_UNREAD} notifications were not read; the subscription is closed"
            )
            self.close()
        else:
            self._unread.append(notice)
        self._news.set()

    def _ended(self, future: "asyncio.Future[msgspec.Raw]") -> None:
        if not future.cancelled() and self._failure is None:
            self._failure = future.exception()  # type: ignore[assignment]
        self.close()
        self._news.set()

    def close(self) -> None:
        """End the subscription."""
        if self._entry is not None:
            self._connection.unlisten(self._entry)

    def __aiter__(self) -> "Subscription":
        return self

    async def __anext__(self) -> Notice:
        while not self._unread:
            assert self._end is not None
            if self._end.done():
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
    """Make the error of listening on a server that has no such streams."""
    return McpError(
        -32601,
        f"`subscriptions/listen` is not part of protocol version {version}; "
        "use `subscribe` and `on_notification`",
    )
