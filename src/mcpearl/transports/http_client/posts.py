"""The POSTs of one transport: a message is sent with its headers, and what comes back is read.

Which message is sent when, and what its outcome means, is decided by `transport`.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from mcpearl.net.http_client.exchange import ExchangeFailed
from mcpearl.runtime.backoff import Backoff, Retries, doubling
from mcpearl.transports.http_client.answers import AnswerReader, NotNow
from mcpearl.transports.http_client.endpoint import Oversized, RemoteEndpoint, SessionEnded
from mcpearl.transports.http_client.exchange import PostExchange
from mcpearl.transports.mirrored_headers import ToolHeaders

logger = logging.getLogger("mcpearl.http")

_AGAIN = Backoff(delays=doubling(0.1, 5.0))  # before an answer is sent again


class Posts:
    """Sends messages to one endpoint.

    Args:
        endpoint: The server's address.
        answers: Reads responses.
    """

    def __init__(self, endpoint: RemoteEndpoint, answers: AnswerReader) -> None:
        self._endpoint = endpoint
        self._answers = answers
        self.tools = ToolHeaders()
        """The parameters of tools that are repeated in headers."""

    def send_now(self, exchange: PostExchange, answered: Callable[[], None]) -> bool:
        """Send a request at once, and have `answered` called; return whether that was possible."""
        about, name = exchange.about, exchange.named
        if name and about.method == "tools/call" and self.tools.mirrors(name):
            return False  # its headers depend on the arguments
        exchange.begun = self._endpoint.post_now(
            exchange.message,
            about.method or "",
            name,
            partial(exchange.headers, self.tools),
            about.version,
            answered,
        )
        exchange.has_left = exchange.begun is not None
        return exchange.has_left

    async def post(self, exchange: PostExchange) -> None:
        """Send a message and read what comes back; repeat that as often as necessary."""
        again = True
        while again:
            headers = exchange.headers(self.tools)
            version = exchange.about.version
            begun, exchange.begun = exchange.begun, None
            connection = await self._endpoint.post(
                exchange.message, headers, version, exchange, begun
            )
            try:
                again = await self._answers.read(exchange, connection)
            finally:
                connection.release()

    async def persist(self, exchange: PostExchange) -> None:
        """Send a message that has no answer, repeatedly until the server takes it.

        A message that was refused for now is sent again. So is an answer whose connection broke: the
        server knows by its id whether it had it already.
        """
        retries = Retries(_AGAIN)
        while True:
            try:
                await self.post(exchange)
                return
            except (SessionEnded, Oversized):
                raise
            except NotNow as error:
                reason, delay = error.reason, error.after
            except ExchangeFailed as error:
                if exchange.is_notification:
                    raise
                reason, delay = error.reason, retries.next_delay()
            logger.debug("%s is sent again in %.1f s: %s", exchange.name, delay, reason)
            await asyncio.sleep(delay)
