"""One upstream of a gateway: its lists, the connection all clients share, sessions of single clients.

The shared connection lists, follows changes and subscribes. It also carries the calls if the upstream
keeps no state of its clients. Otherwise calls go through sessions of single clients (`legs`), so that
notifications on the shared connection concern no single client.
"""

import asyncio
import inspect
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, TypeVar

from msgspec.structs import replace

from mcpearl._version import __version__
from mcpearl.client.entries import ServerEntry
from mcpearl.gateway.away import Away
from mcpearl.gateway.dispatcher import UpstreamDispatcher
from mcpearl.gateway.forwarding import Forwarding
from mcpearl.gateway.legs import LISTS, Leg, Legs
from mcpearl.gateway.lists import UpstreamLists, first_line
from mcpearl.gateway.parked import ParkedCalls
from mcpearl.gateway.presenting import declared
from mcpearl.gateway.sending import Sending
from mcpearl.gateway.settings import Access, UpstreamSettings
from mcpearl.gateway.shared_subscriptions import SharedSubscriptions
from mcpearl.gateway.tasks import UpstreamTasks
from mcpearl.gateway.tenants import Tenant, owner_of, tenant_of
from mcpearl.gateway.trust import guard_of
from mcpearl.gateway.upstream_client import QUIET, UpstreamClient
from mcpearl.gateway.watching import UpstreamWatch
from mcpearl.host.member import RESTARTS, STOPPING, Member
from mcpearl.host.records import HostChange, ServerStatus
from mcpearl.protocol.errors import (
    ConnectionLost,
    LimitReached,
    McpearlError,
    McpError,
    RequestTimeout,
)
from mcpearl.protocol.events import Call, Caller, Notice
from mcpearl.protocol.versions import NEWEST
from mcpearl.runtime import clock
from mcpearl.runtime.breaker import Breaker
from mcpearl.runtime.child import Child
from mcpearl.runtime.supervisor import Supervisor
from mcpearl.runtime.tree import Node
from mcpearl.server.composition.part import Enclosing, Entrance
from mcpearl.server.context import Context
from mcpearl.server.core import ServerCore
from mcpearl.server.session import Session
from mcpearl.server.tasks.options import Tasks
from mcpearl.types.base import Implementation
from mcpearl.types.capabilities import ClientCapabilities, ServerCapabilities
from mcpearl.types.jsonrpc import INTERNAL_ERROR

logger = logging.getLogger("mcpearl.gateway")
_UPDATED = "notifications/resources/updated"
_CONNECTION, _LISTS = "connection", "lists"  # the children of its supervisor
T = TypeVar("T")


class Upstream:
    """A server that a gateway offers as a part of itself.

    Args:
        entry: How the upstream is reached.
        settings: Timeouts and limits.
        access: How the gateway authenticates to it.
        trusted: Whether it may be a program, or at a private address.
        eager: Whether the gateway waits for the connection before it serves, at most `patience` seconds.
        introduced: Called after each handshake with the upstream.
    """

    is_open = True
    is_upstream = True
    reads_raw = False

    def __init__(
        self,
        entry: ServerEntry,
        settings: UpstreamSettings,
        access: Access | None = None,
        *,
        trusted: bool = True,
        eager: bool = False,
        introduced: Callable[[], None] | None = None,
    ) -> None:
        self.name = entry.name
        self.entry = entry
        self.settings = settings
        self.info = Implementation(name="mcpearl-gateway", version=__version__)
        self.home = ""
        """A name of this process, by which retries find the calls that are parked in it."""
        self.breaker = self._make_breaker()
        self.parked = ParkedCalls(settings.max_parked)
        self.away: Away | None = None
        """Continues calls that are parked in other processes; None while the gateway does not run."""
        self.state_ttl = 600.0
        """Seconds a parked call waits for its client."""
        self.tasks = UpstreamTasks(self)
        self.subscriptions = SharedSubscriptions(self)
        self.sending = Sending(self)
        self.forwarding = Forwarding(self, self.sending)
        self.dispatcher = UpstreamDispatcher(self)
        self.entrance: Entrance = self.dispatcher
        self.lists = UpstreamLists(self, self._announce)
        self.catalog = self.lists
        self.is_modern: bool | None = None
        """Whether the upstream is of the modern era; None before the first connection."""
        self.is_stateless = False
        """Whether clients may share sessions with it, because it keeps no state of them there."""
        self.version = NEWEST.name
        self.capabilities: ServerCapabilities | None = None
        """Its capabilities; None before the first connection."""
        self.instructions: str | None = None
        """How a model should use it, in its own words."""
        self._eager = eager
        self._introduced = introduced
        self._access = access or Access()
        self.is_named = self._access.identity is not None
        """Whether the upstream learns the caller's identity; then callers share no connection."""
        self._guard = None if trusted else guard_of(entry)
        self._legs = Legs(entry.name, settings, self._leg_client)
        self._member: Member | None = None
        self._supervisor: Supervisor | None = None  # of what keeps it connected and reads its lists
        self._outer: list[Enclosing] = []
        self._watch = UpstreamWatch(self)

    def _make_breaker(self) -> Breaker:
        return Breaker(
            f"`{self.name}`",
            self.settings.failures,
            counts=(ConnectionLost, RequestTimeout),
        )

    def __repr__(self) -> str:
        return f"<Upstream {self.name!r}, {self.status.state}>"

    @property
    def status(self) -> ServerStatus:
        """The status of the shared connection."""
        if self._member is None:
            return ServerStatus(name=self.name, state="idle")
        return self._member.status()

    def node(self) -> Node:
        """Return the shared connection as a node of the gateway's tree, with what reads its lists."""
        if self._member is None or self._supervisor is None:
            return Node(name=self.name, state="ended")
        node = self._member.node()
        reading = [each for each in self._supervisor.tree().children if each.name == _LISTS]
        return replace(node, children=(*node.children, *reading))

    def kill(self, part: str = _CONNECTION) -> bool:
        """End the shared connection, or what reads the lists, as if it had failed."""
        return self._supervisor is not None and self._supervisor.kill(part)

    # Its life

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Keep the upstream connected, or keep trying to connect, inside the block."""
        loop = asyncio.get_running_loop()
        self.home = f"{os.getpid()}-{clock.token(6)}"
        self.breaker = self._make_breaker()
        member = self._member = Member(
            self.entry,
            self._shared_client,
            self.lists.begin(),
            self.settings.reconnect,
            self._told,
            lazy=False,
        )
        self._supervisor = supervisor = Supervisor(
            self.name,
            [
                Child(_CONNECTION, member.run, shutdown=STOPPING),
                Child(_LISTS, partial(self.lists.renew, member)),
            ],
            restarts=RESTARTS,
            backoff=self.settings.reconnect,
            stop_together=True,
        )
        await supervisor.start()
        if self._outer:
            self.away = Away(self, self._outer[0].bus)
            self.state_ttl = self._outer[0].core.state_ttl
        try:
            if self._eager:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self.settings.patience):
                        await member.settled()
                        await self.lists.first_read()  # then its lists and capabilities are known
            yield
        finally:
            stopping = loop.create_task(supervisor.stop())
            if self.away is not None:
                await self.away.close()
                self.away = None
            await self.parked.close()
            await self._legs.close()
            await asyncio.wait([stopping])
            self._member = self._supervisor = None

    def _shared_client(self, member: Member) -> UpstreamClient:
        return self._client(
            capabilities=QUIET,
            on_notification=self._noticed,
            heard=self.sending.logs.heard,
            on_state=member.entered,
        )

    def _client(self, headers: Any = None, **options: Any) -> UpstreamClient:
        wanted: Any = self.settings.reconnect
        if self.entry.target is not None and hasattr(self.entry.target, "open"):
            wanted = False  # a transport can be opened only once
        return UpstreamClient(
            self.entry,
            self.settings,
            reconnect=wanted,
            auth=self._access.auth,
            headers=headers,
            guard=self._guard,
            watch=self._watch.observer,
            **options,
        )

    def _told(self, change: HostChange) -> None:
        """Handle a change of the connection or of a list."""
        if change.what != "state":
            self.lists.changed(change.what)
            return
        client = self.client
        if change.status.state == "ready" and client is not None:
            self.is_modern = client.era == "modern"
            self.is_stateless = self._keeps_nothing(client)
            self.version = client.protocol_version
            self.capabilities = client.server_capabilities
            self.instructions = client.instructions
            if self._introduced is not None:
                self._introduced()
            self.lists.reconnected()
            self.sending.logs.connected()
            self.subscriptions.reconnected(client)
        elif change.status.state == "down":
            self.lists.down()

    def _keeps_nothing(self, client: UpstreamClient) -> bool:
        """Whether the upstream keeps no state of clients, so that all may share sessions with it."""
        if self.is_modern or self.settings.stateless or self.entry.extra.get("stateless") is True:
            return True
        return not client.has_session

    def noticed_in(self, leg: Leg, notice: Notice) -> None:
        """Handle a notification in the session of a single client: it concerns that client."""
        if leg.session is not None:
            leg.noticed(notice)
        elif notice.method in LISTS and self._member is not None:
            # The upstream may have notified only this session, although the list changed for all.
            self.lists.doubt(self._member, LISTS[notice.method])
        elif notice.method == _UPDATED and not self.is_stateless:
            self._legs.updated(leg, notice.params)
        elif notice.method == _UPDATED:
            for outer in self._outer:
                outer.resource_updated(notice.params.uri)

    def _noticed(self, notice: Notice) -> None:
        if notice.method == _UPDATED:
            for outer in self._outer:
                outer.resource_updated(notice.params.uri)
            self.subscriptions.updated(notice.params.uri)
        elif self._member is not None:
            self._member.noticed(notice)

    def _announce(self, *kinds: str) -> None:
        for kind in kinds:
            for outer in self._outer:
                outer.list_changed(kind)

    # As a part

    def core(self, outer: ServerCore) -> ServerCore:
        """Return the gateway's core: an upstream has none of its own."""
        return outer

    def join(self, outer: Enclosing) -> None:
        """Report changes to a server from now on."""
        self._outer.append(outer)

    def leave(self, outer: Enclosing) -> None:
        """Report no more changes."""
        self._outer.remove(outer)

    @property
    def outer_core(self) -> ServerCore | None:
        """The core of the server that the upstream is mounted in; None while there is none."""
        return self._outer[0].core if self._outer else None

    def is_followed(self, uri: str) -> bool:
        """Whether a client of the gateway is subscribed to a resource."""
        return any(outer.is_followed(uri) for outer in self._outer)

    def upstream_states(self) -> tuple[str]:
        """Return the state of the shared connection."""
        return (str(self.status.state),)

    def tool_function(self, name: str) -> None:
        """Return None: the upstream has the function."""

    def at_once(self, name: str) -> bool:
        """Return False: the upstream has to answer."""
        return False

    def tasks_of(self, name: str) -> Tasks | None:
        """Return how a tool of the upstream runs as a task of the gateway."""
        return self.tasks.options_of(name)

    @property
    def tasked(self) -> bool:
        """Whether calls of the upstream can be tasks."""
        return self.tasks.offered

    # Connections for calls

    async def until_known(self) -> bool:
        """Wait for the first connection; return whether the upstream is modern."""
        await self.shared()
        assert self.is_modern is not None
        return self.is_modern

    async def shared(self) -> UpstreamClient:
        """Return the client of the shared connection, once there is one."""
        if self._member is None:
            raise self._not_there("the gateway is not running")
        try:
            client = await self._member.connected(self.settings.patience)
        except ConnectionLost as error:
            raise self._not_there(self.status.reason or error.reason) from None
        assert isinstance(client, UpstreamClient)
        return client

    def _not_there(self, reason: str) -> McpError:
        data = {"server": self.name, "mayHaveRun": False}
        return McpError(INTERNAL_ERROR, f"`{self.name}` is not there: {first_line(reason)}", data)

    def tenant_of(self, call: Call, ctx: Context) -> Tenant:
        """Return the tenant for which sessions are opened if the client has no session."""
        found = tenant_of(call, ctx, shared=self.is_stateless, named=self.is_named)
        if self.is_named and found.key is None:
            raise self._not_known()
        return found

    @property
    def client(self) -> UpstreamClient | None:
        """The client of the connection that all clients share; None while there is none."""
        member = self._member
        client = None if member is None else member.client
        return client if isinstance(client, UpstreamClient) else None

    async def set_level(self, client: UpstreamClient, level: Any) -> None:
        """Ask for log messages of a level and above, if the upstream sends any."""
        if self.capabilities is not None and self.capabilities.logging is not None:
            with suppress(McpearlError):
                await client.set_log_level(level)

    async def follow_level(self, leg: Leg, caller: Caller) -> None:
        """Ask the upstream for the log messages that the client wants, in a session."""
        if caller.log_level != leg.level:
            leg.level = caller.log_level
            if caller.log_level is not None:
                await self.set_level(leg.client, caller.log_level)

    async def joint_leg(self, tenant: Tenant) -> Leg:
        """Return the session for all calls of a client that has no session and cannot be asked."""
        leg = await self._opened(self._legs.joint(tenant))
        leg.used = True
        return leg

    async def leg_of(self, call: Call, ctx: Context, session: Session) -> Leg:
        """Return the session of a legacy client with this upstream."""
        known = self._legs.known(session)
        if known is not None:
            return known
        capabilities, owner = declared(call.caller), owner_of(call, ctx)
        return await self._opened(self._legs.of_session(session, capabilities, owner))

    async def _opened(self, opening: Awaitable[T]) -> T:
        try:
            return await opening
        except McpError:
            raise
        except McpearlError as error:
            raise self._not_opened(error) from None

    def _not_opened(self, error: McpearlError) -> McpError:
        if isinstance(error, LimitReached):
            return McpError(INTERNAL_ERROR, str(error))
        self.breaker.failed(error)
        return self._not_there(error.reason if isinstance(error, ConnectionLost) else str(error))

    async def follow_in_sessions(self, tenant: Tenant, uri: str, ctx: Context) -> None:
        """Subscribe to a resource in the sessions that are kept for a client without a session."""
        await self._opened(self._legs.follow(tenant, uri, ctx))

    def known_leg(self, session: Session | None) -> Leg | None:
        """Return the session of a legacy client with this upstream, if there is one."""
        return self._legs.known(session)

    def lend(self, tenant: Tenant, capabilities: ClientCapabilities, key: bytes) -> Awaitable[Leg]:
        """Lend a session for a call of a client without a session."""
        return self._opened(self._legs.lend(tenant, capabilities, key))

    def give_back(self, leg: Leg, tenant: Tenant, key: bytes) -> None:
        """Take back a session that was lent."""
        self._legs.give_back(leg, tenant, key)

    def drop(self, leg: Leg) -> None:
        """Close a session that was lent."""
        self._legs.drop(leg)

    @property
    def sessions(self) -> int:
        """How many sessions with the upstream belong to single clients."""
        return len(self._legs)

    async def _leg_client(
        self, leg: Leg, capabilities: ClientCapabilities, principal: Any
    ) -> UpstreamClient:
        headers = await self._headers_for(principal)
        return self._client(
            headers,
            capabilities=capabilities,
            ask=leg.ask,
            heard=leg.log,
            on_notification=partial(self.noticed_in, leg),
        )

    def _not_known(self) -> McpError:
        return McpError(
            INTERNAL_ERROR,
            f"`{self.name}` is called on behalf of its callers, and this one is not known",
        )

    async def _headers_for(self, principal: Any) -> Any:
        """Return headers that identify the caller, if that is configured."""
        identity = self._access.identity
        if identity is None:
            return None
        if principal is None or not principal.subject:
            raise self._not_known()
        found = identity(principal)
        return await found if inspect.isawaitable(found) else found
