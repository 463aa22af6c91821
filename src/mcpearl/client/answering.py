"""Answers the requests that a legacy server sends to its client: sampling, elicitation, roots, tasks.

The application's callbacks produce the answers. While one of them runs, the timeouts of the client's
own requests stand still, except for the maximum: the server may be waiting for this answer.
"""

import asyncio
import logging
from collections.abc import Callable
from math import inf

from msgspec import Struct

from mcpearl.client.callbacks import Callbacks
from mcpearl.client.tasks.held import HeldTasks
from mcpearl.protocol.client_end import ClientEnd
from mcpearl.protocol.errors import McpearlError, McpError
from mcpearl.protocol.events import Call
from mcpearl.runtime.observers import Guarded, ObservedQuestion, watched
from mcpearl.types.base import Result
from mcpearl.types.jsonrpc import INTERNAL_ERROR

logger = logging.getLogger("mcpearl.client")


class Answering:
    """Answers the requests that the server sends on one connection.

    Args:
        end: The client's end of the protocol.
        callbacks: The application's callbacks.
        medium: The kind of transport, for the observer.
        notify: Sends a notification.
        reply: Sends an answer at once.
    """

    def __init__(
        self,
        end: ClientEnd,
        callbacks: Callbacks,
        medium: str,
        notify: Callable[[str, Struct | None], None],
        reply: Callable[[bytes], None],
    ) -> None:
        self.observer: Guarded | None = None
        """Notified of every request and its answer."""
        self._end = end
        self._medium = medium
        self._held = HeldTasks(callbacks, notify)
        self._reply = reply
        self._now = asyncio.get_running_loop().time
        self._open = 0  # requests that are being answered
        self._last_answered = -inf

    def busy_until(self, now: float) -> float:
        """Return when the server last stopped waiting for an answer; `now` while it still waits."""
        return now if self._open else self._last_answered

    async def answer(self, call: Call) -> None:
        """Answer a request of the server; timeouts of the client's own requests stand still meanwhile."""
        message: bytes | None
        self._open += 1
        try:
            result = await self._made(call)
            message = self._end.result(call, result)
        except McpError as error:
            message = self._end.fail(call, error)
        except McpearlError as error:
            message = self._end.fail(call, McpError(INTERNAL_ERROR, str(error)))
        except Exception as error:
            logger.error("the answer to %s cannot be encoded", call.method, exc_info=error)
            failure = McpError(INTERNAL_ERROR, f"The client's answer has no JSON form: {error}")
            message = self._end.fail(call, failure)
        except asyncio.CancelledError:
            self._end.drop(call)
            raise
        finally:
            self._open -= 1
            self._last_answered = self._now()
        if message is not None:
            self._reply(message)

    async def _made(self, call: Call) -> Result:
        """Produce the answer to a request, and report both to the observer."""
        if self.observer is None:
            return await self._held.answer(call.method, call.params)
        version = self._end.agreed or ""
        question = ObservedQuestion(call.method, call.params, self._medium, version, call.id)
        with watched(self.observer, question):
            result = question.answer = await self._held.answer(call.method, call.params)
        return result

    def close(self) -> None:
        """End the tasks that the server started at the client."""
        self._held.close()
