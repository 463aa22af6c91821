"""How a handler asks the client: forms, addresses to visit, the client's model, its roots.

Asking a legacy client sends it a request; asking a modern one ends this round of the call (see
`input_rounds`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

import msgspec

from mcpearl import types
from mcpearl.protocol.capabilities import require
from mcpearl.protocol.events import Call
from mcpearl.runtime import clock
from mcpearl.server.peer import Peer
from mcpearl.types.base import Result

if TYPE_CHECKING:
    from mcpearl.server.core import ServerCore
    from mcpearl.server.input_rounds import InputRounds
    from mcpearl.server.tasks.questions import TaskQuestions
else:
    # Loaded where they are made, not where they are named.
    InputRounds = ServerCore = TaskQuestions = Any

T = TypeVar("T")


class Elicited(Generic[T]):
    """The user's reaction to a form.

    Args:
        action: What the user did: `accept`, `decline` or `cancel`.
        data: What they filled in, as the form's type; None unless they accepted.
    """

    __slots__ = ("action", "data")

    def __init__(self, action: Literal["accept", "decline", "cancel"], data: T) -> None:
        self.action = action
        self.data = data

    @property
    def accepted(self) -> bool:
        """Whether the user accepted the form."""
        return self.action == "accept"

    def __repr__(self) -> str:
        return f"Elicited(action={self.action!r}, data={self.data!r})"


class Asking:
    """The part of a `Context` that asks the client."""

    __slots__ = ("_call", "_core", "_peer")

    _call: Call
    _core: ServerCore
    _peer: Peer

    @overload
    async def elicit(
        self, message: str, schema: type[T], *, key: str | None = None
    ) -> Elicited[T]: ...

    @overload
    async def elicit(
        self, message: str, *, response_type: type[T], key: str | None = None
    ) -> Elicited[T]: ...

    @overload
    async def elicit(
        self,
        message: str,
        schema: dict[str, Any] | types.RequestedSchema | None = None,
        *,
        key: str | None = None,
    ) -> Elicited[dict[str, Any]]: ...

    @overload
    async def elicit(
        self, message: str, schema: Any = None, *, response_type: Any = None, key: str | None = None
    ) -> Elicited[Any]: ...

    async def elicit(
        self, message: str, schema: Any = None, *, response_type: Any = None, key: str | None = None
    ) -> Elicited[Any]:
        """Ask the user to fill in a form.

        >>> answer = await ctx.elicit("Which city?", City)
        >>> if answer.accepted:
        ...     print(answer.data.name)

        Args:
            message: What the user is asked.
            schema: The form, and the type of the answer's `data`: a flat dataclass, `TypedDict`, struct
                or pydantic model; or `str`, `int`, `float`, `bool`, a `Literal`, an `Enum`, or a list of
                `Literal`, which is one question; or a list of texts to choose one of, in another list
                to choose several; or a JSON Schema. None asks for consent only.
            response_type: Another name of `schema`.
            key: Tells this question from others when the handler runs again; by default its number.
        """
        if response_type is not None:
            if schema is not None:
                raise TypeError("`response_type` is another name of `schema`; give one of them")
            schema = response_type
        require(self._call.caller.capabilities, "elicitation.form")
        from mcpearl.server.registry.forms import Form  # most handlers ask nothing

        form = Form(schema)
        params = types.ElicitRequestParams(
            message=message, mode="form", requested_schema=form.requested_schema
        )
        return form.read(await self._elicit(params, key))

    async def elicit_url(
        self,
        message: str,
        url: str,
        *,
        elicitation_id: str | None = None,
        key: str | None = None,
    ) -> Elicited[None]:
        """Ask the user to visit an address, for what must not pass through the client.

        Args:
            message: Why the user should go there.
            url: The address.
            elicitation_id: Identifies the visit in later notifications; by default a random one.
            key: Tells this question from others when the handler runs again; by default its number.
        """
        require(self._call.caller.capabilities, "elicitation.url")
        params = types.ElicitRequestParams(
            message=message,
            mode="url",
            url=url,
            elicitation_id=elicitation_id or f"{self._call.id}-{clock.token(8)}",
        )
        result = await self._elicit(params, key)
        return Elicited(result.action, None)

    async def _elicit(
        self, params: types.ElicitRequestParams, key: str | None
    ) -> types.ElicitResult:
        question = types.ElicitRequest(params=params)
        result: types.ElicitResult = await self._ask(
            "elicitation/create", params, question, types.ElicitResult, key
        )
        return result

    async def sample(
        self,
        messages: str | list[str | types.SamplingMessage],
        *,
        max_tokens: int = 1024,
        system_prompt: str | None = None,
        temperature: float | None = None,
        model_preferences: types.ModelPreferences | None = None,
        stop_sequences: list[str] | None = None,
        tools: list[types.Tool] | None = None,
        tool_choice: types.ToolChoice | None = None,
        metadata: dict[str, Any] | None = None,
        key: str | None = None,
    ) -> types.CreateMessageResult:
        """Ask the client's model to continue a conversation.

        Args:
            messages: The conversation: a text of the user, or a list of texts and messages.
            max_tokens: How long the answer may be.
            system_prompt: Instructions for the model.
            temperature: How much the model varies.
            model_preferences: Which model the client should choose.
            stop_sequences: Texts at which the model stops.
            tools: Tools the model may use.
            tool_choice: Whether it has to use one.
            metadata: Passed on to the model's provider.
            key: Tells this question from others when the handler runs again; by default its number.
        """
        require(self._call.caller.capabilities, "sampling.tools" if tools else "sampling")
        params = types.CreateMessageRequestParams(
            messages=_conversation(messages),
            max_tokens=max_tokens,
            system_prompt=system_prompt,
            temperature=temperature,
            model_preferences=model_preferences,
            stop_sequences=stop_sequences,
            tools=tools,
            tool_choice=tool_choice,
            metadata=metadata,
        )
        request = types.CreateMessageRequest(params=params)
        result: types.CreateMessageResult = await self._ask(
            "sampling/createMessage", params, request, types.CreateMessageResult, key
        )
        return result

    async def roots(self, *, key: str | None = None) -> list[types.Root]:
        """Ask the client which folders it lets the server work in.

        Args:
            key: Tells this question from others when the handler runs again; by default its number.
        """
        require(self._call.caller.capabilities, "roots")
        from mcpearl.types.base import RequestParams

        result: types.ListRootsResult = await self._ask(
            "roots/list", RequestParams(), types.ListRootsRequest(), types.ListRootsResult, key
        )
        return result.roots

    async def put(self, method: str, params: Any, kind: type[Result]) -> Any:
        """Pass a question of another server on to the client, unchanged; for gateways.

        Args:
            method: `elicitation/create`, `sampling/createMessage` or `roots/list`.
            params: Its params.
            kind: The type of the answer.
        """
        request: types.InputRequest
        match method:
            case "elicitation/create":
                request = types.ElicitRequest(params=params)
            case "sampling/createMessage":
                request = types.CreateMessageRequest(params=params)
            case _:
                request = types.ListRootsRequest()
        return await self._ask(method, params, request, kind, None)

    async def _ask(
        self,
        method: str,
        params: msgspec.Struct,
        request: types.InputRequest,
        kind: type[Result],
        key: str | None,
    ) -> Any:
        rounds = self._rounds()
        if rounds is None:
            return await self._peer.ask(self._call, method, params, kind)
        return await rounds.ask(rounds.key(method.partition("/")[0], key), request, kind)

    def _rounds(self) -> InputRounds | TaskQuestions | None:
        """Return what keeps the answers of this call; None for a call of a legacy client."""
        call = self._call
        if call.rounds is None and call.caller.version.modern:
            from mcpearl.server.input_rounds import InputRounds

            call.rounds = InputRounds(call, self._core.sealer, clock.now(), self._peer.stop)
        rounds: InputRounds | TaskQuestions | None = call.rounds
        return rounds

    async def once(self, key: str, function: Callable[[], Any]) -> Any:
        """Run a function once per call, however often the handler runs again; return its value.

        Args:
            key: Names the step, within this handler.
            function: Performs the step and returns a value with a JSON form, since it travels in sealed
                state. It may be async.
        """
        rounds = self._rounds()
        if rounds is None:
            value = function()
            return await value if inspect.isawaitable(value) else value
        before = rounds.done(key)
        if before is not None:
            return msgspec.json.decode(before)
        value = function()
        if inspect.isawaitable(value):
            value = await value
        await rounds.record(key, msgspec.json.encode(value))
        return value


def _conversation(messages: str | list[str | types.SamplingMessage]) -> list[types.SamplingMessage]:
    from mcpearl.types.content import TextContent

    given = [messages] if isinstance(messages, str) else messages
    return [
        types.SamplingMessage(role="user", content=TextContent(text=message))
        if isinstance(message, str)
        else message
        for message in given
    ]
