"""Forwards calls of modern clients to a legacy upstream, which may ask in the middle of a call.

When the upstream asks, the call is parked (`parked`). The client gets `input_required`, and its retry
continues the parked call, in this process or in the one that has it (`away`).
"""

from typing import TYPE_CHECKING

from msgspec import Raw

from mcpearl.client.progress import ProgressCallback
from mcpearl.gateway.legs import Leg
from mcpearl.gateway.parked import ParkedCall, required
from mcpearl.gateway.sealed_state import SealedState, binding_of, open_state
from mcpearl.gateway.sending import Sending
from mcpearl.protocol.errors import LimitReached, McpError
from mcpearl.protocol.events import Call
from mcpearl.server.context import Context
from mcpearl.server.core import ServerCore
from mcpearl.types.base import encode
from mcpearl.types.capabilities import ClientCapabilities
from mcpearl.types.input_required import InputRequest, InputRequiredResult
from mcpearl.types.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS
from mcpearl.types.progress import ProgressNotificationParams

if TYPE_CHECKING:
    from mcpearl.gateway.upstream import Upstream


class Parking:
    """Forwards calls, and parks them while their client has to answer a question.

    Args:
        upstream: The upstream.
        sending: Sends its requests.
    """

    def __init__(self, upstream: "Upstream", sending: Sending) -> None:
        self._upstream = upstream
        self._sending = sending

    async def forward(
        self, call: Call, ctx: Context, core: ServerCore, capabilities: ClientCapabilities
    ) -> Raw | InputRequiredResult:
        """Start a call, or continue a parked one; return its result, or questions to its client.

        Args:
            call: The call: a first round, or a retry with answers.
            ctx: Its context.
            core: The core of the gateway.
            capabilities: What the client can be asked.
        """
        bound = binding_of(call)
        parked: ParkedCall | None
        if call.params.request_state is None:
            parked = await self._begin(call, ctx, capabilities)
            state = SealedState(parked=parked.id, home=self._upstream.home)
        else:
            state = open_state(call.params.request_state, bound, core)
            parked = self._upstream.parked.find(state.parked or "")
            if parked is not None:
                parked.take(call.params.input_responses)
        if parked is None:
            outcome = await self._elsewhere(state, call)
        else:
            outcome = await parked.outcome(ctx)
        if isinstance(outcome, Raw):
            return outcome
        if parked is not None:
            parked.expire_in(core.sealer().ttl)
        return required(outcome, state.seal(bound, core))

    async def _elsewhere(self, state: SealedState, call: Call) -> Raw | dict[str, InputRequest]:
        """Have another process continue a call that is parked there."""
        away, home = self._upstream.away, self._upstream.home
        if away is None or not state.parked or not state.home or state.home == home:
            raise McpError(
                INVALID_PARAMS,
                f"the call at `{self._upstream.name}` that this state belongs to is over, or was "
                "given up; start it again",
            )
        return await away.go_on(state.parked, state.home, call.params.input_responses or {})

    async def _begin(
        self, call: Call, ctx: Context, capabilities: ClientCapabilities
    ) -> ParkedCall:
        """Send a call in a session that is lent to it until it ends."""
        upstream, tenant = self._upstream, self._upstream.tenant_of(call, ctx)
        places = upstream.parked.places
        try:
            places.take(tenant.owner)
        except LimitReached as error:
            raise McpError(INTERNAL_ERROR, str(error)) from None
        key = encode(capabilities)
        leg: Leg | None = None
        try:
            leg = await upstream.lend(tenant, capabilities, key)
            await upstream.follow_level(leg, call.caller)
        except BaseException:
            places.give_back(tenant.owner)
            if leg is not None:
                upstream.drop(leg)
            raise

        def ended(leg: Leg, by_itself: bool) -> None:
            if by_itself:
                upstream.give_back(leg, tenant, key)
            else:
                upstream.drop(leg)

        parked = ParkedCall(leg, ended, upstream.parked.remove, tenant.owner)
        upstream.parked.add(parked)
        on_progress = None if call.progress_token is None else _reporter(parked)
        parked.start(self._sending.send(leg.client.relay, call, call.params, None, on_progress))
        return parked


def _reporter(parked: ParkedCall) -> ProgressCallback:
    """Return a callback that passes progress on to the round that waits for a call, if there is one."""

    async def report(params: ProgressNotificationParams) -> None:
        if parked.ctx is not None:
            await parked.ctx.progress(params.progress, params.total, params.message)

    return report
