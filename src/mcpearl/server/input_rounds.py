"""Questions to a modern client: a call that needs answers ends, and runs again once they arrive.

The questions a handler asks in one iteration of the event loop are sent together as one
`input_required` result. The answers so far, and the values of `once`, travel sealed in `requestState`,
so any worker with the keys can continue. An answer is found by its key: the kind and number of the
question within the handler, or the key that the handler chose.
"""

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, Raw, Struct

from mcpearl.protocol.errors import McpError
from mcpearl.protocol.events import Call
from mcpearl.protocol.modern import INPUT_REQUIRED, ROUND_METHODS
from mcpearl.protocol.seal import Binding, Sealer, binding
from mcpearl.types.base import Result, convert
from mcpearl.types.input_required import InputRequest, InputRequiredResult
from mcpearl.types.jsonrpc import INVALID_PARAMS

if TYPE_CHECKING:
    from collections.abc import Callable


class _Carried(Struct, omit_defaults=True):
    """What is carried from round to round."""

    answers: dict[str, dict[str, Any]] = {}
    done: dict[str, Raw] = {}  # the values of `once`, by key
    asked: list[str] = []  # in the previous round; only these may be answered now


_carried_decoder = msgspec.json.Decoder(_Carried)


class InputRounds:
    """The rounds of one call: earlier answers, and the questions of this round."""

    def __init__(
        self,
        call: Call,
        sealer: "Callable[[], Sealer]",
        now: float,
        stop: "Callable[[Call], None]",
    ) -> None:
        self._call = call
        self._stop = stop  # ends the handler
        self._sealer = sealer
        self._asks: dict[str, InputRequest] = {}  # unanswered questions of this round
        self._waiting: list[asyncio.Future[None]] = []
        self._counts: dict[str, int] = {}
        self._bound: Binding | None = None
        self.suspended = False
        self._carried = self._carry_on(now)

    def _carry_on(self, now: float) -> _Carried:
        params = self._call.params
        if self._call.method not in ROUND_METHODS:
            return _Carried()
        if params.request_state is None:
            # The first round: a client may send answers to questions it expects.
            return _Carried(answers=dict(params.input_responses or {}))
        opened = self._sealer().open(params.request_state, self._binding(), now)
        carried = _carried_decoder.decode(opened)
        for key, answer in (params.input_responses or {}).items():
            if key in carried.asked:
                carried.answers[key] = answer
        return carried

    def _binding(self) -> Binding:
        if self._bound is None:
            params = self._call.params
            name = str(getattr(params, "name", None) or getattr(params, "uri", ""))
            arguments = getattr(params, "arguments", None)
            if arguments is UNSET or arguments is None:
                raw: bytes | Raw | None = None
            else:
                raw = arguments if isinstance(arguments, Raw) else msgspec.json.encode(arguments)
            principal = self._call.caller.principal
            identity = None if principal is None else principal.identity
            self._bound = binding(identity, self._call.method, name, raw)
        return self._bound

    def key(self, kind: str, given: str | None) -> str:
        """Return the key of the next question of this kind, which is the same in every round."""
        if given is not None:
            return given
        self._counts[kind] = count = self._counts.get(kind, 0) + 1
        return f"{kind}-{count}"

    async def ask(self, key: str, request: InputRequest, kind: type[Result]) -> Any:
        """Return the client's answer. If it has not arrived, the handler is suspended."""
        answer = self._carried.answers.get(key)
        if answer is not None:
            return _read(key, answer, kind)
        if self._call.method not in ROUND_METHODS:
            raise McpError(INVALID_PARAMS, f"`{self._call.method}` cannot ask the client for input")
        if self.suspended:
            raise asyncio.CancelledError  # the handler continued although its round is over
        self._asks[key] = request
        loop = asyncio.get_running_loop()
        never: asyncio.Future[None] = loop.create_future()
        if not self._waiting:
            loop.call_soon(self._suspend)
        self._waiting.append(never)
        await never
        raise AssertionError("a suspended ask never returns")

    def _suspend(self) -> None:
        """Cancel the handler: all questions it can ask in this iteration have been asked."""
        self.suspended = True
        for future in self._waiting:
            future.cancel()
        self._stop(self._call)

    def done(self, key: str) -> Raw | None:
        """Return the value of `once` under this key in an earlier round, or None."""
        return self._carried.done.get(key)

    async def record(self, key: str, value: bytes) -> None:
        """Keep a value of `once`."""
        self._carried.done[key] = Raw(value)

    @property
    def asking(self) -> bool:
        """Whether the handler asks the client at the moment, or did and was stopped."""
        return self.suspended or bool(self._waiting)

    def hand_over(self) -> tuple[dict[str, dict[str, Any]], dict[str, Raw], dict[str, int]]:
        """Return the answers so far, the values of `once`, and how many questions of each kind."""
        return self._carried.answers, self._carried.done, self._counts

    def required(self, now: float) -> InputRequiredResult:
        """Return the result that asks the open questions."""
        carried = self._carried
        carried.asked = list(self._asks)
        state = self._sealer().seal(msgspec.json.encode(carried), self._binding(), now)
        return InputRequiredResult(
            result_type=INPUT_REQUIRED, input_requests=self._asks, request_state=state
        )


def _read(key: str, answer: dict[str, Any], kind: type[Result]) -> Any:
    try:
        return convert(kind, answer)
    except msgspec.ValidationError as error:
        raise McpError(
            INVALID_PARAMS, f"The answer to `{key}` in `inputResponses`: {error}", {"key": key}
        ) from None
