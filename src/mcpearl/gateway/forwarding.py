"""A call on its way to an upstream and back, in all four combinations of eras.

|                   | upstream of the legacy era             | modern upstream                          |
|---|---|---|
| legacy client     | a session of its own; questions are    | questions in results become requests,    |
|                   | requests                               | and the answers another round            |
| modern client     | a session that is lent to the call;    | questions pass through, with the         |
|                   | questions park it (`parked`)           | upstream's state sealed in the gateway's |
"""

import asyncio
import logging
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, Raw, Struct
from msgspec.structs import replace

from mcpearl.client.relay import Relay
from mcpearl.client.requests import BETWEEN_ROUNDS
from mcpearl.gateway.legs import Leg
from mcpearl.gateway.logs import SharedLogs, level_of
from mcpearl.gateway.parked import ParkedCall, required
from mcpearl.gateway.results import asked_of, members_of, relayed
from mcpearl.gateway.tasks import is_task
from mcpearl.gateway.upstream_client import ANSWERS, UpstreamClient
from mcpearl.protocol.errors import (
    ConnectionLost,
    LimitReached,
    McpearlError,
    McpError,
    RequestTimeout,
    ResourceNotFound,
)
from mcpearl.protocol.events import Call, Caller, Encoded
from mcpearl.protocol.fields import narrow
from mcpearl.protocol.modern import ROUND_METHODS, Presentation
from mcpearl.protocol.seal import Binding, binding
from mcpearl.protocol.versions import NEWEST
from mcpearl.runtime import clock, tracing
from mcpearl.runtime.breaker import BreakerOpen
from mcpearl.server.context import Context, call_of
from mcpearl.server.core import ServerCore
from mcpearl.types.base import (
    CLIENT_CAPABILITIES_KEY,
    CLIENT_INFO_KEY,
    LOG_LEVEL_KEY,
    PROGRESS_TOKEN_KEY,
    PROTOCOL_VERSION_KEY,
    Implementation,
    RequestId,
    RequestParams,
    Result,
    decode,
    encode,
    to_builtins,
)
from mcpearl.types.capabilities import ClientCapabilities
from mcpearl.types.elicitation import ElicitRequestParams
from mcpearl.types.input_required import InputRequiredResult
from mcpearl.types.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS
from mcpearl.types.progress import ProgressNotificationParams
from mcpearl.types.tasks import TASKS_EXTENSION

if TYPE_CHECKING:
    from mcpearl.gateway.upstream import Upstream

logger = logging.getLogger("mcpearl.gateway")
_PRESENTED = frozenset(
    {
        PROTOCOL_VERSION_KEY,
        CLIENT_INFO_KEY,
        CLIENT_CAPABILITIES_KEY,
        LOG_LEVEL_KEY,
        PROGRESS_TOKEN_KEY,
    }
)
_LEGACY_NOT_FOUND = -32002
_KNOWN_CALLERS = 512  # whose presentations are kept


class _SealedState(Struct, array_like=True):
    """What a gateway seals into `requestState`."""

    upstream: str | None = None
    """The state of a modern upstream."""
    parked: str | None = None
    """The id of a parked call."""
    home: str | None = None
    """The process that has the parked call."""


class Forwarding:
    """Forwards the calls of all clients to one upstream.

    Args:
        upstream: The upstream.
    """

    def __init__(self, upstream: "Upstream") -> None:
        self._upstream = upstream
        self._presentations: dict[int, tuple[Caller, str | None, Presentation]] = {}
        self._equal: dict[bytes, Presentation] = {}  # by what is presented
        self.logs = SharedLogs()

    def forward(
        self, call: Call, ctx: Context, core: ServerCore
    ) -> Coroutine[Any, Any, Result | Encoded]:
        """Answer a call with what the upstream answers."""
        if getattr(call.params, "task", None) is not None and ctx.task is None:
            call.params = replace(call.params, task=None)  # what the caller's version does not have
        modern = self._upstream.is_modern
        if modern is None:
            return self._forward_later(call, ctx, core)
        return self._to_modern(call, ctx, core) if modern else self._to_legacy(call, ctx, core)

    async def _forward_later(self, call: Call, ctx: Context, core: ServerCore) -> Result | Encoded:
        await self._upstream.until_known()
        return await self.forward(call, ctx, core)

    # Sending

    async def send(
        self,
        relay: Relay,
        call: Call,
        params: Any,
        ctx: Context | None,
        on_progress: Any = None,
        on_sent: Any = None,
    ) -> Raw:
        """Send a request, and count how it went."""
        breaker = self._upstream.breaker
        try:
            breaker.enter()
        except BreakerOpen as error:
            retry_after = round(error.retry_after, 3)
            raise McpError(INTERNAL_ERROR, str(error), {"retryAfter": retry_after}) from None
        modern = bool(self._upstream.is_modern)
        if on_progress is None and ctx is not None and call_of(ctx).progress_token is not None:
            on_progress = _reporter(ctx)
        try:
            raw = await relay.request(
                call.method,
                params,
                self._body(call, params),
                on_progress=on_progress,
                presentation=self._presentation(call.caller) if modern else None,
                meta=tracing.carried(_further(params.meta)),
                on_sent=on_sent,
            )
        except McpError as error:
            breaker.worked()
            if call.method == "resources/read" and _is_not_found(error):
                raise ResourceNotFound(params.uri) from None
            raise
        except (ConnectionLost, RequestTimeout) as error:
            breaker.failed(error)
            raise self._failed(error) from None
        except McpearlError as error:
            breaker.worked()
            raise self._failed(error) from None
        except BaseException:
            breaker.undecided()
            raise
        breaker.worked()
        return raw

    def _body(self, call: Call, params: Any) -> bytes:
        """Return encoded params without `_meta`, which is made anew."""
        if type(params) is not RequestParams:
            return encode(narrow(replace(params, meta=None), self._upstream.version))
        members = members_of(call.raw)  # of an extension: only the upstream knows them
        members.pop("_meta", None)
        return encode(members)

    def _failed(self, error: McpearlError) -> McpError:
        name = self._upstream.name
        data: dict[str, Any] = {"server": name}
        if isinstance(error, ConnectionLost):
            data["mayHaveRun"] = error.maybe_executed
            text = "; the call may have run" if error.maybe_executed else ""
            return McpError(INTERNAL_ERROR, f"`{name}`: {error.reason}{text}", data)
        return McpError(INTERNAL_ERROR, f"`{name}`: {error}", data)

    def _presentation(self, caller: Caller) -> Presentation:
        """Return how a caller is presented to a modern upstream."""
        known, level = self._presentations.get(id(caller)), level_of(caller)
        if known is not None and known[0] is caller and known[1] == level:
            return known[2]
        info = caller.client or self._upstream.info
        made = self._made(info, self._declared(caller), level)
        while len(self._presentations) >= _KNOWN_CALLERS:
            self._presentations.pop(next(iter(self._presentations)))
        self._presentations[id(caller)] = caller, level, made
        return made

    def _made(
        self, info: Implementation, capabilities: ClientCapabilities, level: str | None
    ) -> Presentation:
        """Return the presentation that equal clients share."""
        key = encode((info, capabilities, level))
        made = self._equal.get(key)
        if made is None:
            while len(self._equal) >= _KNOWN_CALLERS:
                self._equal.pop(next(iter(self._equal)))
            made = self._equal[key] = Presentation(NEWEST, info, capabilities, level)
        return made

    def _declared(self, caller: Caller) -> ClientCapabilities:
        """Return what a modern upstream may do: a legacy client's calls may be tasks, too."""
        capabilities = declared(caller)
        theirs = caller.capabilities.extensions or {}
        if caller.version.modern and TASKS_EXTENSION not in theirs:
            return capabilities
        if not self._upstream.tasks.offered:
            return capabilities
        extensions = {**(capabilities.extensions or {}), TASKS_EXTENSION: {}}
        return replace(capabilities, extensions=extensions)

    def _answer(self, raw: Raw, call: Call, core: ServerCore) -> Encoded:
        modern = bool(self._upstream.is_modern)
        return relayed(self._upstream.name, raw, call, core.offer.info, modern=modern)

    # To a modern upstream

    async def _to_modern(self, call: Call, ctx: Context, core: ServerCore) -> Result | Encoded:
        upstream, params = self._upstream, call.params
        client = None if upstream.is_named else upstream.client
        if client is None:
            client = await self._client_for(call, ctx)
        relay = client.relay
        if call.method not in ROUND_METHODS:
            return self._answer(await self._logging(relay, call, params, ctx), call, core)
        rounds = 0
        bound: Binding | None = None
        if call.caller.version.modern and params.request_state is not None:
            bound = _binding(call)
            state = self._opened(params.request_state, bound, core)
            params = replace(params, request_state=state.upstream)
        send = self.send if level_of(call.caller) is None else self._logging
        while True:
            raw = await send(relay, call, params, ctx)
            asked = asked_of(raw)
            if asked is None:
                if upstream.tasks.offered and is_task(raw):
                    raw = await self._followed(client, raw, call, ctx)
                return self._answer(raw, call, core)
            if call.caller.version.modern and ctx.task is None:
                return self._sealed(asked, bound or _binding(call), core)
            if rounds == self._upstream.settings.max_rounds:
                raise McpError(
                    INTERNAL_ERROR, f"`{self._upstream.name}` asked {rounds + 1} times in one call"
                )
            answers = await self._answers(asked, ctx)
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
        """Return the result of a call that a modern upstream made a task of."""
        try:
            return await self._upstream.tasks.at_modern(client, raw, call, ctx)
        except McpError:
            raise
        except McpearlError as error:
            raise self._failed(error) from None

    async def _logging(self, relay: Relay, call: Call, params: Any, ctx: Context) -> Raw:
        """Send a request on the shared connection whose client may get log messages of it."""
        level = level_of(call.caller)
        if level is None:
            return await self.send(relay, call, params, ctx)
        if not self._upstream.is_modern and self.logs.lower(level):
            await self._upstream.set_level(await self._upstream.shared(), level)
        logs, sent = self.logs, []
        logs.enter(call, ctx)

        def on_sent(id: RequestId) -> None:
            sent.append(id)
            logs.sent(id, ctx)

        try:
            return await self.send(relay, call, params, ctx, on_sent=on_sent)
        finally:
            logs.leave(ctx, sent[-1] if sent else None)

    async def _answers(
        self, asked: InputRequiredResult, ctx: Context
    ) -> dict[str, dict[str, Any]] | None:
        """Ask a client of the legacy era, or that of a task, what a modern upstream wants to know."""
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

    def _sealed(
        self, asked: InputRequiredResult, bound: Binding, core: ServerCore
    ) -> InputRequiredResult:
        """Return an upstream's questions with its state bound to the caller."""
        if asked.request_state is None:
            return asked
        payload = encode(_SealedState(upstream=asked.request_state))
        return replace(asked, request_state=core.sealer().seal(payload, bound, clock.now()))

    def _opened(self, state: str, bound: Binding, core: ServerCore) -> _SealedState:
        return decode(_SealedState, core.sealer().open(state, bound, clock.now()))

    # To an upstream of the legacy era

    async def _to_legacy(self, call: Call, ctx: Context, core: ServerCore) -> Result | Encoded:
        caller, upstream = call.caller, self._upstream
        session = caller.session
        if not caller.version.modern and session is not None and not session.closed:
            leg = await upstream.leg_of(call, ctx, session)
            return await self._on_leg(leg, call, ctx, core)
        capabilities = declared(caller)
        can_be_asked = caller.version.modern and _can_be_asked(capabilities)
        if not can_be_asked and upstream.is_stateless and not upstream.is_named:
            relay = (upstream.client or await upstream.shared()).relay
            return self._answer(await self._logging(relay, call, call.params, ctx), call, core)
        if can_be_asked and call.method in ROUND_METHODS and ctx.task is None:
            return await self._parking(call, ctx, core, capabilities)
        tenant = upstream.tenant_of(call, ctx)
        if not can_be_asked and tenant.key is not None:
            return await self._on_leg(await upstream.joint_leg(tenant), call, ctx, core)
        key = encode(capabilities)
        leg = await upstream.lend(tenant, capabilities, key)
        ended = False
        try:
            answer = await self._on_leg(leg, call, ctx, core)
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

    async def _on_leg(
        self, leg: Leg, call: Call, ctx: Context, core: ServerCore
    ) -> Result | Encoded:
        if call.caller.log_level != leg.level:
            await self._set_level(leg, call.caller)
        leg.calls[ctx] = None
        tasks = self._upstream.tasks
        try:
            if ctx.task is not None and tasks.options_of(call.params.name) is not None:
                raw = await tasks.at_legacy(leg, call, ctx, self.send)
            else:
                raw = await self.send(leg.client.relay, call, call.params, ctx)
        except McpError:
            raise
        except McpearlError as error:
            raise self._failed(error) from None
        finally:
            leg.calls.pop(ctx, None)
        return self._answer(raw, call, core)

    async def _set_level(self, leg: Leg, caller: Caller) -> None:
        """Have an upstream send log messages as the client wants them."""
        leg.level = caller.log_level
        if caller.log_level is not None:
            await self._upstream.set_level(leg.client, caller.log_level)

    async def _parking(
        self, call: Call, ctx: Context, core: ServerCore, capabilities: ClientCapabilities
    ) -> Result | Encoded:
        """Forward a call that is parked when the upstream asks something."""
        parked_calls, bound = self._upstream.parked, _binding(call)
        if call.params.request_state is None:
            parked = await self._begin(call, ctx, capabilities)
        else:
            state = self._opened(call.params.request_state, bound, core)
            found = None if state.parked is None else parked_calls.find(state.parked)
            if found is None:
                return await self._elsewhere(state, call, ctx, core, bound)
            parked = found
            if parked.attended:
                raise McpError(
                    INVALID_PARAMS, "another request brings answers to this call already"
                )
            parked.take(call.params.input_responses)
        outcome = await parked.outcome(ctx)
        return self.concluded(parked, outcome, call, core, bound)

    def concluded(
        self, parked: ParkedCall, outcome: Any, call: Call, core: ServerCore, bound: Binding
    ) -> Result | Encoded:
        """Return the result of a parked call, or what the client has to answer first."""
        if isinstance(outcome, Raw):
            return self._answer(outcome, call, core)
        sealer = core.sealer()
        parked.expire_in(sealer.ttl)
        payload = encode(_SealedState(parked=parked.id, home=self._upstream.home))
        return required(outcome, sealer.seal(payload, bound, clock.now()))

    async def _elsewhere(
        self, state: _SealedState, call: Call, ctx: Context, core: ServerCore, bound: Binding
    ) -> Result | Encoded:
        """Have another process go on with a call that is parked there."""
        away = self._upstream.away
        if away is None or not state.parked or not state.home or state.home == self._upstream.home:
            raise McpError(
                INVALID_PARAMS,
                f"the call at `{self._upstream.name}` that this state belongs to is over, or was "
                "given up; start it again",
            )
        outcome = await away.go_on(state.parked, state.home, call.params.input_responses or {})
        if isinstance(outcome, Raw):
            return self._answer(outcome, call, core)
        payload = encode(state)
        return required(outcome, core.sealer().seal(payload, bound, clock.now()))

    async def _begin(
        self, call: Call, ctx: Context, capabilities: ClientCapabilities
    ) -> ParkedCall:
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
            if call.caller.log_level != leg.level:
                await self._set_level(leg, call.caller)
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
        wanted = call.progress_token is not None
        reporter = _reporter_of(parked) if wanted else None
        parked.start(self.send(leg.client.relay, call, call.params, None, reporter))
        return parked


def _for_legacy(params: Any) -> Any:
    """Return the params of a question with what the legacy era requires beside."""
    if isinstance(params, ElicitRequestParams) and params.mode == "url":
        return replace(params, elicitation_id=params.elicitation_id or clock.token(16))
    return params or RequestParams()


def _is_not_found(error: McpError) -> bool:
    """Whether an error says that there is no such resource, in the words of either era."""
    if error.code == _LEGACY_NOT_FOUND:
        return True
    return error.code == INVALID_PARAMS and isinstance(error.data, dict) and "uri" in error.data


def _reporter(ctx: Context) -> Any:
    async def report(params: ProgressNotificationParams) -> None:
        await ctx.progress(params.progress, params.total, params.message)

    return report


def _reporter_of(parked: ParkedCall) -> Any:
    async def report(params: ProgressNotificationParams) -> None:
        if parked.ctx is not None:
            await parked.ctx.progress(params.progress, params.total, params.message)

    return report


def _further(meta: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return what a caller says in `_meta` beside who it is: trace context, and what else there is."""
    if not meta or meta.keys() <= _PRESENTED:
        return None
    return {key: value for key, value in meta.items() if key not in _PRESENTED}


def declared(caller: Caller) -> ClientCapabilities:
    """Return what a caller can do, as far as a gateway passes it on: tasks are the gateway's."""
    capabilities = caller.capabilities
    extensions = capabilities.extensions
    if capabilities.tasks is None and (not extensions or TASKS_EXTENSION not in extensions):
        return capabilities
    kept = {key: value for key, value in (extensions or {}).items() if key != TASKS_EXTENSION}
    return replace(capabilities, tasks=None, extensions=kept or None)


def _can_be_asked(capabilities: ClientCapabilities) -> bool:
    return any((capabilities.sampling, capabilities.elicitation, capabilities.roots))


def _binding(call: Call) -> Binding:
    params = call.params
    name = str(getattr(params, "name", None) or getattr(params, "uri", ""))
    arguments = getattr(params, "arguments", None)
    raw: Any = None
    if arguments is not None and arguments is not UNSET:
        raw = arguments if isinstance(arguments, Raw) else encode(arguments)
    principal = call.caller.principal
    identity = None if principal is None else principal.identity
    return binding(identity, call.method, name, raw)
