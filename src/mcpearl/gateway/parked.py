"""Calls of clients without sessions at upstreams with sessions, while the upstream waits for an answer.

A legacy upstream asks in the middle of a call. The client gets `input_required`, and the call is parked:
it stays open at the upstream, and the client's retry finds it by the id in its sealed state.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Any

import msgspec
from msgspec import Raw, Struct

from mcpearl.gateway.legs import Leg
from mcpearl.gateway.shares import Shares
from mcpearl.gateway.upstream_client import ANSWERS
from mcpearl.protocol.errors import McpError
from mcpearl.protocol.modern import INPUT_REQUIRED
from mcpearl.runtime import clock
from mcpearl.server.context import Context
from mcpearl.types.base import Result, convert
from mcpearl.types.elicitation import ElicitRequest
from mcpearl.types.input_required import InputRequest, InputRequiredResult
from mcpearl.types.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS
from mcpearl.types.roots import ListRootsRequest
from mcpearl.types.sampling import CreateMessageRequest


class ParkedQuestion(Struct, eq=False):
    """A question of the upstream that has not been answered."""

    request: InputRequest
    kind: type[Result]
    answer: Any
    """The future that the upstream's session waits for."""


class ParkedCall:
    """One call at an upstream, over all rounds of its client.

    Args:
        leg: The session it runs in, which is lent to it.
        ended: Called when the call is over, with the leg and whether the call ended by itself.
        forget: Called with the call when no round can ask for its outcome any more.
        owner: The client to whose share of all parked calls it counts.
    """

    def __init__(
        self,
        leg: Leg,
        ended: Callable[[Leg, bool], None],
        forget: "Callable[[ParkedCall], None]",
        owner: Hashable,
    ) -> None:
        self.id = clock.token(18)
        self.owner = owner
        self.ctx: Context | None = None  # of the round that waits for the call at the moment
        self.attended = False
        """Whether a round of the client waits for the call now."""
        self._leg = leg
        self._ended = ended
        self._forget = forget
        self._work: asyncio.Task[Raw]
        self._questions: dict[str, ParkedQuestion] = {}
        self._counts: dict[str, int] = {}
        self._news = asyncio.Event()
        self._expiry: asyncio.TimerHandle | None = None
        leg.questioner = self._ask
        leg.listener = lambda: self.ctx

    def start(self, request: Awaitable[Raw]) -> None:
        """Send the request."""
        self._work = asyncio.ensure_future(request)
        self._work.add_done_callback(self._done)

    def _done(self, work: "asyncio.Task[Raw]") -> None:
        """End the open questions. The outcome is kept for the client's next round."""
        self._news.set()
        for question in self._questions.values():
            if not question.answer.done():
                question.answer.set_exception(McpError(INTERNAL_ERROR, "the call is over"))
        self._ended(self._leg, not work.cancelled())
        if work.cancelled():
            self._over()
        else:
            work.exception()  # marked as retrieved; the waiting round raises it

    def _over(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
        self._forget(self)

    async def _ask(self, method: str, params: Any, kind: type[Result]) -> Result:
        """Keep a question until a round of the client brings the answer."""
        word = method.partition("/")[0]
        self._counts[word] = count = self._counts.get(word, 0) + 1
        key = f"{word}-{count}"
        answer = asyncio.get_running_loop().create_future()
        self._questions[key] = ParkedQuestion(_request(method, params), kind, answer)
        self._news.set()
        try:
            found: Result = await answer
            return found
        finally:
            self._questions.pop(key, None)

    def take(self, responses: dict[str, dict[str, Any]] | None) -> None:
        """Pass the client's answers to the upstream's session; raise `McpError` for an invalid one."""
        if self.attended:
            raise McpError(INVALID_PARAMS, "another request brings answers to this call already")
        for key, response in (responses or {}).items():
            question = self._questions.get(key)
            if question is None or question.answer.done():
                continue
            try:
                question.answer.set_result(convert(question.kind, response))
            except msgspec.ValidationError as error:
                raise McpError(
                    INVALID_PARAMS, f"The answer to `{key}` in `inputResponses`: {error}"
                ) from None

    async def outcome(self, ctx: Context | None) -> Raw | dict[str, InputRequest]:
        """Wait for the result or for questions; if the client cancels, the call is cancelled too."""
        self.ctx, self.attended = ctx, True
        if self._expiry is not None:
            self._expiry.cancel()
        try:
            while not self._work.done():
                await asyncio.sleep(0)  # collects questions that arrive at the same time
                waiting = {k: q.request for k, q in self._questions.items() if not q.answer.done()}
                if waiting and not self._work.done():
                    return waiting
                self._news.clear()
                await self._news.wait()
        except asyncio.CancelledError:
            self._work.cancel()
            raise
        finally:
            self.ctx, self.attended = None, False
            if self._work.done():
                self._over()
        return self._work.result()

    def expire_in(self, seconds: float) -> None:
        """Cancel the call unless its client comes back within so many seconds."""
        self._expiry = asyncio.get_running_loop().call_later(seconds, self._give_up)

    def _give_up(self) -> None:
        if not self._work.cancel():
            self._over()

    async def close(self) -> None:
        """Cancel the call."""
        self._give_up()
        await asyncio.wait((self._work,))


def _request(method: str, params: Any) -> InputRequest:
    assert method in ANSWERS
    if method == "elicitation/create":
        return ElicitRequest(params=params)
    if method == "sampling/createMessage":
        return CreateMessageRequest(params=params)
    return ListRootsRequest()


class ParkedCalls:
    """The parked calls of one upstream in this process.

    Args:
        limit: How many there may be.
    """

    def __init__(self, limit: int) -> None:
        taken = f"{limit} calls wait for answers of their clients"
        self.places = Shares(limit, taken, "max_parked")
        """The places for parked calls; each call takes one before it begins."""
        self._calls: dict[str, ParkedCall] = {}

    def __len__(self) -> int:
        return len(self._calls)

    def add(self, call: ParkedCall) -> None:
        """Keep a call that has begun."""
        self._calls[call.id] = call

    def find(self, id: str) -> ParkedCall | None:
        """Return the parked call with an id, or None."""
        return self._calls.get(id)

    def remove(self, call: ParkedCall) -> None:
        """Forget a call that is over."""
        if self._calls.pop(call.id, None) is not None:
            self.places.give_back(call.owner)

    async def close(self) -> None:
        """Cancel all calls."""
        await asyncio.gather(*(call.close() for call in list(self._calls.values())))


def required(questions: dict[str, InputRequest], state: str) -> InputRequiredResult:
    """Return the result that puts questions to a client."""
    return InputRequiredResult(
        result_type=INPUT_REQUIRED, input_requests=questions, request_state=state
    )
