"""Answers the requests that a legacy server sends to its client: sampling, elicitation, roots, tasks.

The callbacks of the application make the answers. While one is being made the server is not late with
its own answers: it waits for the client.
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
    """The server's requests that are being answered.

    Args:
        end: The client's end of the protocol.
        callbacks: Answer the requests.
        medium: The wire they come over.
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
        """Is told of every request and its answer."""
        self._end = end
        self._medium = medium
        self._held = HeldTasks(callbacks, notify)
        self._reply = reply
        self._now = asyncio.get_running_loop().time
        self._open = 0  # requests that are being answered
        self._last_answered = -inf

    def busy_until(self, now: float) -> float:
        """Return until when the server last waited for an answer: `now` while it does."""
        return now if self._open else self._last_answered

    async def answer(self, call: Call) -> None:
        """Answer a request of the server, which is not late meanwhile."""
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
        """Make the answer to a request, and tell the observer of both."""
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
