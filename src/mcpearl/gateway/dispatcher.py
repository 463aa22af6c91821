"""Answers the calls for an upstream: lists from what is kept, everything else by forwarding."""

from collections.abc import Awaitable, Mapping, Set
from typing import TYPE_CHECKING, Any

from mcpearl.gateway.tenants import owner_of
from mcpearl.protocol.errors import McpearlError, McpError
from mcpearl.protocol.events import Call, Caller, Encoded, Notice
from mcpearl.protocol.routes import Route, unknown_method
from mcpearl.server.composition.context import spelling_of
from mcpearl.server.context import Context, call_of, peer_of
from mcpearl.server.dispatch import Answering
from mcpearl.server.registry.pagination import Registered
from mcpearl.transports.mirrored_headers import ParameterPath, annotated
from mcpearl.types.base import Result, decode
from mcpearl.types.capabilities import (
    TASKS_EXTENSION,
    ListChangedCapability,
    ResourcesCapability,
    ServerCapabilities,
)
from mcpearl.types.completion import CompleteResult, Completion
from mcpearl.types.jsonrpc import INTERNAL_ERROR
from mcpearl.types.methods import REQUESTS
from mcpearl.types.prompts import ListPromptsResult
from mcpearl.types.resources import (
    ListResourcesResult,
    ListResourceTemplatesResult,
    ReadResourceRequestParams,
    ReadResourceResult,
)
from mcpearl.types.tools import ListToolsResult, Tool

if TYPE_CHECKING:
    from mcpearl.gateway.legs import Leg
    from mcpearl.gateway.upstream import Upstream

_ROOTS_CHANGED = "notifications/roots/list_changed"
_NO_SCOPES: frozenset[str] = frozenset()
_PAGE = 1000  # entries of one page of an upstream's list; the gateway makes its own pages of them
_LISTS: dict[str, tuple[Any, type[Any], str, str]] = {
    "tools/list": ("tools", ListToolsResult, "tools", "name"),
    "prompts/list": ("prompts", ListPromptsResult, "prompts", "name"),
    "resources/list": ("resources", ListResourcesResult, "resources", "uri"),
    "resources/templates/list": (
        "resource_templates",
        ListResourceTemplatesResult,
        "resource_templates",
        "uri_template",
    ),
}


class UpstreamDispatcher:
    """The dispatcher of one upstream.

    Args:
        upstream: The upstream.
    """

    scoped = False
    at_once: Set[str] = frozenset()

    def __init__(self, upstream: "Upstream") -> None:
        self._upstream = upstream
        self._pages: dict[str, tuple[list[Any], Registered[Any]]] = {}
        self.mirrored: Mapping[str, Mapping[ParameterPath, str]] = {}
        """The parameters that the upstream's tools mirror into HTTP headers."""

    # What it offers

    def capabilities(self) -> ServerCapabilities:
        """Return the upstream's capabilities; all of them before the first connection."""
        known = self._upstream.capabilities
        if known is not None:
            return known
        changed = ListChangedCapability(list_changed=True)
        return ServerCapabilities(
            tools=changed,
            prompts=changed,
            resources=ResourcesCapability(list_changed=True, subscribe=True),
            completions={},
            logging={},
        )

    def routes(self) -> Mapping[str, Route]:
        """Return no methods beyond the specification's."""
        return {}

    def notices(self) -> Mapping[str, Route]:
        """Return no notifications beyond the specification's."""
        return {}

    def scopes_of(self, method: str, name: str) -> frozenset[str]:
        """Return no scopes: the gateway decides which ones callers need."""
        return _NO_SCOPES

    def all_scopes(self) -> frozenset[str]:
        """Return no scopes."""
        return _NO_SCOPES

    def learn_tools(self, tools: list[Tool]) -> None:
        """Note which parameters of the upstream's tools are mirrored into HTTP headers.

        Args:
            tools: The tools that the upstream has now.
        """
        mirrored: dict[str, Mapping[ParameterPath, str]] = {}
        for tool in tools:
            try:
                paths = annotated(tool.input_schema)
            except ValueError:
                continue
            if paths:
                mirrored[tool.name] = paths
        self.mirrored = mirrored

    # Calls

    def dispatch(self, call: Call, ctx: Context) -> Answering:
        """Answer a call."""
        match call.method:
            case "tools/call" | "prompts/get" | "resources/read":
                return self._upstream.forwarding.forward(call, ctx, ctx.core)
            case "tools/list" | "prompts/list" | "resources/list" | "resources/templates/list":
                return self._list(call)
            case "completion/complete":
                return self._complete(call, ctx)
            case "resources/subscribe":
                return self._subscribe(call, ctx)
            case "resources/unsubscribe":
                return self._unsubscribe(call, ctx)
        return self._pass_on(call, ctx)

    async def _pass_on(self, call: Call, ctx: Context) -> Result | Encoded:
        """Forward a method of an extension to an upstream that has any."""
        upstream = self._upstream
        if call.method in REQUESTS:
            raise unknown_method(call.method)
        if upstream.is_modern and not _has_extensions(upstream.capabilities):
            raise unknown_method(call.method)
        return await upstream.forwarding.forward(call, ctx, ctx.core)

    async def _list(self, call: Call) -> Result:
        """Return a page of a list that is kept."""
        kind, result, member, key = _LISTS[call.method]
        leg = self._upstream.known_leg(call.caller.session)
        if leg is not None and kind in leg.own_lists:
            own: Result = result(**{member: await self._own_list(leg, kind)})
            return own
        items = await self._upstream.lists.listed(kind)
        known = self._pages.get(kind)
        if known is None or known[0] is not items:
            listing = (
                known[1] if known is not None else Registered(kind, self._upstream.name, _PAGE)
            )
            _renew(listing, items, key)
            known = self._pages[kind] = (items, listing)
        entries, following = known[1].page(call.params.cursor)
        made: Result = result(**{member: entries}, next_cursor=following)
        return made

    async def _own_list(self, leg: "Leg", kind: str) -> list[Any]:
        """Return a list that changed in the session of one client."""
        known = leg.own_lists[kind]
        if known is None:
            known = []
            async for item in getattr(leg.client, kind)():
                known.append(item)
                if len(known) >= self._upstream.settings.max_offers:
                    break
            leg.own_lists[kind] = known
        return known

    async def _complete(self, call: Call, ctx: Context) -> Result | Encoded:
        known = self._upstream.capabilities
        if known is not None and known.completions is None and self._upstream.is_modern:
            return CompleteResult(completion=Completion(values=[], total=0, has_more=False))
        return await self._upstream.forwarding.forward(call, ctx, ctx.core)

    # Resources

    async def _subscribe(self, call: Call, ctx: Context) -> Result:
        peer, uri = peer_of(ctx), call.params.uri
        peer.reserve(uri)
        leg = await self._leg(call, ctx)
        if leg is None:
            await self.follow(uri, ctx)
        else:
            await self._ask(leg.client.subscribe(uri))
            leg.followed[uri] = spelling_of(peer, uri)
        if not ctx.cancelled:
            peer.subscribe(uri)
        return Result()

    async def _unsubscribe(self, call: Call, ctx: Context) -> Result:
        # A shared subscription ends later, when no client follows the resource (`shared_subscriptions`).
        uri = call.params.uri
        peer_of(ctx).unsubscribe(uri)
        leg = self._upstream.known_leg(call.caller.session)
        if leg is not None and leg.followed.pop(uri, None) is not None:
            await self._ask(leg.client.unsubscribe(uri))
        return Result()

    async def _leg(self, call: Call, ctx: Context) -> "Leg | None":
        """Return the session of a legacy client with an upstream that keeps state."""
        modern = self._upstream.is_modern
        if modern is None:
            modern = await self._upstream.until_known()
        caller = call.caller
        if modern or caller.version.modern or caller.session is None:
            return None
        return await self._upstream.leg_of(call, ctx, caller.session)

    async def _ask(self, request: Awaitable[None]) -> None:
        try:
            await request
        except McpError:
            raise
        except McpearlError as error:
            raise McpError(INTERNAL_ERROR, f"`{self._upstream.name}`: {error}") from None

    async def follow(self, uri: str, ctx: Context) -> None:
        """Subscribe to changes of a resource at the upstream."""
        upstream = self._upstream
        if upstream.is_modern is None:
            await upstream.until_known()
        if not upstream.is_stateless:
            tenant = upstream.tenant_of(call_of(ctx), ctx)
            if tenant.key is not None:
                await upstream.follow_in_sessions(tenant, uri, ctx)
                return
        await upstream.subscriptions.follow(uri, owner_of(call_of(ctx), ctx))

    async def read_resource(self, uri: str, ctx: Context) -> ReadResourceResult:
        """Read a resource from inside another call."""
        outer = ctx.client
        call = Call(0, "resources/read", ReadResourceRequestParams(uri=uri), b"{}", outer)
        answer = await self._upstream.forwarding.forward(call, ctx, ctx.core)
        if isinstance(answer, Encoded):
            return decode(ReadResourceResult, answer.body)
        raise TypeError(f"resource `{uri}` asks the client for input, so no handler can read it")

    def notified(self, notice: Notice, caller: Caller | None) -> None:
        """Notify the upstream that a client's roots changed, if that client has a session with it."""
        if notice.method == _ROOTS_CHANGED and caller is not None:
            leg = self._upstream.known_leg(caller.session)
            if leg is not None:
                leg.client.notify_roots_changed()


def _renew(listing: Registered[Any], items: list[Any], key: str) -> None:
    """Replace the items of a listing; items that stay keep their position."""
    found = {getattr(item, key): item for item in items}
    for gone in listing.keys_but(found):
        listing.remove(gone)
    for each, item in found.items():
        listing.add(each, item)


def _has_extensions(capabilities: ServerCapabilities | None) -> bool:
    """Whether a modern upstream may have methods that the specification does not define.

    A legacy upstream announces extensions only to clients that declare them.
    """
    if capabilities is None:
        return False
    return bool(capabilities.experimental or {*(capabilities.extensions or ())} - {TASKS_EXTENSION})
