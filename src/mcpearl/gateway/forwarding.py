"""A call on its way to an upstream and back, in all four combinations of eras.

|                   | legacy upstream                        | modern upstream                          |
|---|---|---|
| legacy client     | a session of its own; questions are    | questions in results become requests,    |
|                   | requests                               | and the answers another round            |
| modern client     | a session that is lent to the call;    | questions pass through, with the         |
|                   | questions park it (`parked`)           | upstream's state sealed in the gateway's |
"""

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from msgspec import Raw
from msgspec.structs import replace

from mcpearl.client.requests import BETWEEN_ROUNDS
from mcpearl.gateway.legs import Leg
from mcpearl.gateway.logs import level_of
from mcpearl.gateway.parking import Parking
from mcpearl.gateway.presenting import declared
from mcpearl.gateway.results import asked_of, relayed
from mcpearl.gateway.sealed_state import SealedState, binding_of, open_state
from mcpearl.gateway.sending import Sending
from mcpearl.gateway.tasks import is_task
from mcpearl.gateway.upstream_client import ANSWERS, UpstreamClient
from mcpearl.protocol.errors import McpearlError, McpError
from mcpearl.protocol.events import Call, Encoded
from mcpearl.protocol.modern import ROUND_METHODS
from mcpearl.protocol.seal import Binding
from mcpearl.runtime import clock
from mcpearl.server.context import Context
from mcpearl.server.core import ServerCore
from mcpearl.types.base import RequestParams, Result, encode, to_builtins
from mcpearl.types.capabilities import ClientCapabilities
from mcpearl.types.elicitation import ElicitRequestParams
from mcpearl.types.input_required import InputRequiredResult
from mcpearl.types.jsonrpc import INTERNAL_ERROR

if TYPE_CHECKING:
    from mcpearl.gateway.upstream import Upstream


class Forwarding:
    """Forwards the calls of all clients to one upstream.

    Args:
        upstream: The upstream.
        sending: Sends its requests.
    """

    def __init__(self, upstream: "Upstream", sending: Sending) -> None:
        self._upstream = upstream
        self._sending = sending
        self._parking = Parking(upstream, sending)

    def forward(
        self, call: Call, ctx: Context, core: ServerCore
    ) -> Coroutine[Any, Any, Result | Encoded]:
        """Forward a call to the upstream, and return its answer.

        Args:
            call: The call, with the upstream's names.
            ctx: Its context.
            core: The core of the gateway.
        """
        if call.method == "tools/call" and call.params.task is not None and ctx.task is None:
            call.params = replace(call.params, task=None)  # the caller's version does not have it
        modern = self._upstream.is_modern
        if modern is None:
            return self._forward_later(call, ctx, core)
        return self._to_modern(call, ctx, core) if modern else self._to_legacy(call, ctx, core)

    async def _forward_later(self, call: Call, ctx: Context, core: ServerCore) -> Result | Encoded:
        await self._upstream.until_known()
        return await self.forward(call, ctx, core)

    def _answer(self, raw: Raw | bytes, call: Call, core: ServerCore) -> Encoded:
        upstream = self._upstream
        modern = upstream.is_modern is True
        return relayed(upstream.name, bytes(raw), call, core.offer.info, modern)

    # To a modern upstream

    async def _to_modern(self, call: Call, ctx: Context, core: ServerCore) -> Result | Encoded:
        upstream, sending, params = self._upstream, self._sending, call.params
        client = None if upstream.is_named else upstream.client
        if client is None:
            client = await self._client_for(call, ctx)
        relay = client.relay
        if call.method not in ROUND_METHODS:
            return self._answer(await sending.send_shared(relay, call, params, ctx), call, core)
        rounds = 0
        bound: Binding | None = None
        if call.caller.version.modern and params.request_state is not None:
            bound = binding_of(call)
            state = open_state(params.request_state, bound, core)
            params = replace(params, request_state=state.upstream)
        send = sending.send if level_of(call.caller) is None else sending.send_shared
        while True:
            raw = await send(relay, call, params, ctx)
            body = bytes(raw)
            asked = asked_of(body)
            if asked is None:
                if upstream.tasks.offered and is_task(body):
                    body = bytes(await self._followed(client, raw, call, ctx))
                return self._answer(body, call, core)
            if call.caller.version.modern and ctx.task is None:
                return _sealed(asked, bound or binding_of(call), core)
            if rounds == upstream.settings.max_rounds:
                raise McpError(
                    INTERNAL_ERROR, f"`{upstream.name}` asked {rounds + 1} times in one call"
                )
            answers = await _answers(asked, ctx)
            if not asked.input_requests:
                await asyncio.sleep(BETWEEN_ROUNDS.delay(rounds))
            rounds += 1
            params = replace(params, input_responses=answers, request_state=asked.request_state)

    async def _client_for(self, call: Call, ctx: Context) -> UpstreamClient:
        upstream = self._upstream
        if upstream.is_named:
            return (await upstream.joint_leg(upstream.tenant_of(call, ctx))).client
        return await upstream.shared()

    async def _followed(self, client: UpstreamClient, raw: Raw, call: Call, ctx: Context) -> Raw:
        """Return the result of a call that a modern upstream turned into a task."""
        try:
            return await self._upstream.tasks.at_modern(client, raw, call, ctx)
        except McpError:
            raise
        except McpearlError as error:
            raise self._sending.failed(error) from None

    # To a legacy upstream

    async def _to_legacy(self, call: Call, ctx: Context, core: ServerCore) -> Result | Encoded:
        caller, upstream = call.caller, self._upstream
        session = caller.session
        if not caller.version.modern and session is not None and not session.closed:
            leg = await upstream.leg_of(call, ctx, session)
            return self._answer(await self._on_leg(leg, call, ctx), call, core)
        capabilities = declared(caller)
        can_be_asked = caller.version.modern and _can_be_asked(capabilities)
        if not can_be_asked and upstream.is_stateless and not upstream.is_named:
            relay = (upstream.client or await upstream.shared()).relay
            raw = await self._sending.send_shared(relay, call, call.params, ctx)
        elif can_be_asked and call.method in ROUND_METHODS and ctx.task is None:
            outcome = await self._parking.forward(call, ctx, core, capabilities)
            if isinstance(outcome, InputRequiredResult):
                return outcome
            raw = outcome
        else:
            raw = await self._in_session(call, ctx, capabilities, can_be_asked=can_be_asked)
        return self._answer(raw, call, core)

    async def _in_session(
        self, call: Call, ctx: Context, capabilities: ClientCapabilities, *, can_be_asked: bool
    ) -> Raw:
        """Forward a call of a client without a session, in a session opened for that client."""
        upstream = self._upstream
        tenant = upstream.tenant_of(call, ctx)
        if not can_be_asked and tenant.key is not None:
            return await self._on_leg(await upstream.joint_leg(tenant), call, ctx)
        key = encode(capabilities)
        leg = await upstream.lend(tenant, capabilities, key)
        ended = False
        try:
            answer = await self._on_leg(leg, call, ctx)
            ended = True
            return answer
        except McpError:
            ended = True
            raise
        finally:
            if ended:
                upstream.give_back(leg, tenant, key)
            else:
                upstream.drop(leg)

    async def _on_leg(self, leg: Leg, call: Call, ctx: Context) -> Raw:
        if call.caller.log_level != leg.level:
            await self._upstream.follow_level(leg, call.caller)
        leg.calls[ctx] = None
        tasks, sending = self._upstream.tasks, self._sending
        try:
            if ctx.task is not None and tasks.options_of(call.params.name) is not None:
                return await tasks.at_legacy(leg, call, ctx, sending)
            return await sending.send(leg.client.relay, call, call.params, ctx)
        except McpError:
            raise
        except McpearlError as error:
            raise sending.failed(error) from None
        finally:
            leg.calls.pop(ctx, None)


async def _answers(asked: InputRequiredResult, ctx: Context) -> dict[str, dict[str, Any]] | None:
    """Put a modern upstream's questions to a legacy client, or to the client of a task."""
    if asked.input_requests is None:
        return None
    work = {}
    for key, request in asked.input_requests.items():
        method = str(request.__struct_config__.tag)
        put = ctx.put(method, _for_legacy(request.params), ANSWERS[method])
        work[key] = asyncio.ensure_future(put)
    try:
        await asyncio.gather(*work.values())
    finally:
        for task in work.values():
            task.cancel()
    return {key: to_builtins(task.result()) for key, task in work.items()}


def _sealed(asked: InputRequiredResult, bound: Binding, core: ServerCore) -> InputRequiredResult:
    """Return an upstream's questions with its state sealed and bound to the caller."""
    if asked.request_state is None:
        return asked
    state = SealedState(upstream=asked.request_state)
    return replace(asked, request_state=state.seal(bound, core))


def _for_legacy(params: Any) -> Any:
    """Return the params of a question, with the members that only the legacy era requires."""
    if isinstance(params, ElicitRequestParams) and params.mode == "url":
        return replace(params, elicitation_id=params.elicitation_id or clock.token(16))
    return params or RequestParams()


def _can_be_asked(capabilities: ClientCapabilities) -> bool:
    return any((capabilities.sampling, capabilities.elicitation, capabilities.roots))
