"""Legs: sessions with an upstream that belong to single clients, since the upstream keeps state in them.

A legacy client has one for as long as its own session lasts. A client without sessions is lent one for
the duration of a call; then it is kept for a while for the same tenant (`tenants`), or closed if the
client cannot be recognized. In a session that is lent to one call, every question of the upstream belongs
to that call. Clients that cannot be asked anything use one session for all their calls at once.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from mcpearl.gateway.following import Following
from mcpearl.gateway.logs import say
from mcpearl.gateway.settings import UpstreamSettings
from mcpearl.gateway.shares import Shares
from mcpearl.gateway.tenants import Tenant
from mcpearl.gateway.upstream_client import QUIET, UpstreamClient
from mcpearl.host.records import OfferKind
from mcpearl.protocol.errors import ConnectionLost, McpearlError
from mcpearl.protocol.events import Notice
from mcpearl.server.call_end import send_notification
from mcpearl.server.connection import ServerConnection
from mcpearl.server.context import Context, call_of
from mcpearl.server.session import Session
from mcpearl.server.subscriptions import RESOURCE_UPDATED
from mcpearl.types.base import RELATED_TASK_KEY, RequestId, Result
from mcpearl.types.capabilities import ClientCapabilities
from mcpearl.types.logging import LoggingMessageNotificationParams

logger = logging.getLogger("mcpearl.gateway")
_PAGE_DONE = "notifications/elicitation/complete"
BETWEEN_CHANGES = 0.25  # seconds at least between two announcements of changed lists
LISTS: dict[str, tuple[OfferKind, ...]] = {
    "notifications/tools/list_changed": ("tools",),
    "notifications/prompts/list_changed": ("prompts",),
    "notifications/resources/list_changed": ("resources", "resource_templates"),
}


class Leg:
    """One session with an upstream, and the client it belongs to at the moment."""

    def __init__(
        self, session: Session | None, tenant: Hashable = None, owner: Hashable = None
    ) -> None:
        self.client: UpstreamClient
        self.session = session
        self.tenant = tenant
        """The tenant that the session is for; None for a client that cannot be recognized again."""
        self.owner = owner
        """The client to whose share of all sessions it counts."""
        self.calls: dict[Context, None] = {}  # in flight, in the order they began
        self.level: str | None = None  # of log messages, as requested from the upstream
        self.tasks: dict[str, Context] = {}  # tasks of the upstream, each with its call
        self.own_lists: dict[str, list[Any] | None] = {}
        """Lists that changed in this session, by kind; None for one that has to be read."""
        self.followed: dict[str, str] = {}  # resources, each with the URI as the client spells it
        self._announced: dict[str, bool] = {}
        """Changes of lists that were just passed on, and whether the list has changed again."""
        self.questioner: Callable[[str, Any, type[Result]], Awaitable[Result]] | None = None
        """Handles the questions to a client without a session."""
        self.listener: Callable[[], Context | None] | None = None
        """Returns the context of that client's call, while the client waits for it."""
        self.used = True
        self.look: asyncio.TimerHandle | None = None
        """The timer that closes a leg of several calls if it was not used meanwhile."""

    async def ask(self, method: str, params: Any, kind: type[Result]) -> Result:
        """Put a question of the upstream to the client."""
        if self.questioner is not None:
            return await self.questioner(method, params, kind)
        ctx, params = self._questioned(params)
        if ctx is None:
            raise ConnectionLost(f"`{method}` cannot be asked: no client is there")
        answer: Result = await ctx.put(method, params, kind)
        return answer

    def _questioned(self, params: Any) -> tuple[Context | None, Any]:
        """Return the call that a question belongs to, and its params without the upstream's task."""
        related = None if params.meta is None else params.meta.get(RELATED_TASK_KEY)
        if not isinstance(related, dict):
            return self._speaker(), params
        meta = {key: value for key, value in params.meta.items() if key != RELATED_TASK_KEY}
        ctx = self.tasks.get(str(related.get("taskId"))) or self._speaker()
        return ctx, replace(params, meta=meta or None)

    def log(self, params: LoggingMessageNotificationParams, id: RequestId | None) -> None:
        """Pass a log message on, if the client wants messages of its level."""
        ctx = self._speaker()
        if ctx is not None:
            say(ctx, params)

    def noticed(self, notice: Notice) -> None:
        """Pass a notification on to the client: a changed list or resource, a completed elicitation."""
        if self.session is None or self.session.closed:
            return
        call = call_of(self.session.context())
        for kind in LISTS.get(notice.method, ()):
            self.own_lists[kind] = None
        if notice.method in LISTS:
            if notice.method in self._announced:
                self._announced[notice.method] = True
                return
            self._announced[notice.method] = False
            asyncio.get_running_loop().call_later(BETWEEN_CHANGES, self._announce_again, notice)
            send_notification(call, notice.method, notice.params)
        elif notice.method == RESOURCE_UPDATED:
            spelled = self.followed.get(notice.params.uri)
            if spelled is not None:
                send_notification(call, RESOURCE_UPDATED, replace(notice.params, uri=spelled))
        elif notice.method == _PAGE_DONE:
            send_notification(call, _PAGE_DONE, notice.params)

    def _announce_again(self, notice: Notice) -> None:
        """Announce a list again, if it has changed since the last announcement."""
        if self._announced.pop(notice.method):
            self.noticed(notice)

    def _speaker(self) -> Context | None:
        """Return the context for messages to the client: that of its latest call, or of its session."""
        if self.listener is not None:
            return self.listener()
        if self.calls:
            return next(reversed(self.calls))
        if self.session is not None and not self.session.closed:
            return self.session.context()
        return None


MakeClient = Callable[[Leg, ClientCapabilities, Any], Awaitable[UpstreamClient]]


class Legs:
    """All legs of one upstream.

    Args:
        name: The upstream, for error messages.
        settings: Timeouts and limits for the upstream.
        make: Makes the client of a leg, with capabilities and for a principal, without connecting it.
    """

    def __init__(self, name: str, settings: UpstreamSettings, make: MakeClient) -> None:
        self._name = name
        self._settings = settings
        self._make = make
        self._sessions: dict[Session, asyncio.Task[Leg]] = {}
        self._watches: set[asyncio.Task[None]] = set()
        self._idle: dict[Hashable, list[tuple[Leg, asyncio.TimerHandle]]] = {}
        self._joint: dict[Hashable, asyncio.Task[Leg]] = {}  # used by several calls of one tenant
        self._of: dict[Hashable, set[Leg]] = {}  # all open legs, by tenant
        self._following = Following()
        most = settings.max_sessions
        taken = f"`{name}` has {most} sessions of single clients already"
        self._places = Shares(most, taken, "max_sessions")

    def __len__(self) -> int:
        return len(self._places)

    # Of clients with a session

    async def of_session(
        self, session: Session, capabilities: ClientCapabilities, owner: Hashable
    ) -> Leg:
        """Return the leg of a client's session; the first call opens it."""
        opening = self._sessions.get(session)
        if opening is None:
            self._places.take(owner)
            loop = asyncio.get_running_loop()
            leg = Leg(session, owner=owner)
            opening = loop.create_task(self._open(leg, capabilities, session.principal))
            self._sessions[session] = opening
            watch = loop.create_task(self._watch(session))
            self._watches.add(watch)
            watch.add_done_callback(self._watches.discard)
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            raise
        except Exception:
            if self._sessions.get(session) is opening:
                del self._sessions[session]
            raise

    def known(self, session: Session | None) -> Leg | None:
        """Return the leg of a session, if it is open."""
        opening = None if session is None else self._sessions.get(session)
        if opening is None or not opening.done() or opening.cancelled() or opening.exception():
            return None
        return opening.result()

    async def _watch(self, session: Session) -> None:
        """Close the leg of a session when the session ends."""
        try:
            await session.wait_closed()
        finally:
            opening = self._sessions.pop(session, None)
            if opening is not None:
                opening.cancel()
                await asyncio.wait((opening,))
                if not opening.cancelled() and opening.exception() is None:
                    await self._close(opening.result())

    # Of clients without a session

    async def lend(self, tenant: Tenant, capabilities: ClientCapabilities, key: bytes) -> Leg:
        """Return a leg for one call; pass it to `give_back` afterwards."""
        while free := self._idle.get((tenant.key, key)):
            leg, timer = free.pop()
            if not free:
                del self._idle[tenant.key, key]
            timer.cancel()
            if not leg.client.is_over:
                return leg
            await self._close(leg)
        self._places.take(tenant.owner)
        leg = Leg(None, tenant.key, tenant.owner)
        return await self._open(leg, capabilities, tenant.principal)

    def give_back(self, leg: Leg, tenant: Tenant, key: bytes) -> None:
        """Keep a leg for the tenant's next call; close it if no call comes in time."""
        leg.questioner = leg.listener = None
        leg.calls.clear()
        if tenant.key is None or _is_gone(tenant.key):
            self.drop(leg)
            return
        loop = asyncio.get_running_loop()
        free = self._idle.setdefault((tenant.key, key), [])
        timer = loop.call_later(self._settings.idle, self._expire, leg, (tenant.key, key))
        free.append((leg, timer))

    async def joint(self, tenant: Tenant) -> Leg:
        """Return the leg that a tenant which cannot be asked anything uses for all its calls."""
        key = tenant.key
        assert key is not None
        opening = self._joint.get(key)
        if opening is not None and opening.done() and opening.result().client.is_over:
            del self._joint[key]
            self.drop(opening.result())
            opening = None
        if opening is None:
            self._places.take(tenant.owner)
            loop = asyncio.get_running_loop()
            leg = self._open(Leg(None, key, tenant.owner), QUIET, tenant.principal)
            opening = self._joint[key] = loop.create_task(leg)
            opening.add_done_callback(lambda opened: self._joined(key, opened))
        return await asyncio.shield(opening)

    def _joined(self, key: Hashable, opened: "asyncio.Task[Leg]") -> None:
        if opened.cancelled() or opened.exception() is not None:
            if self._joint.get(key) is opened:
                del self._joint[key]
        else:
            self._look_at_joint(key, opened)

    def _look_at_joint(self, key: Hashable, opened: "asyncio.Task[Leg]") -> None:
        """Close the joint leg of a tenant, if it was not used since the last check."""
        leg = opened.result()
        if self._joint.get(key) is not opened:
            return
        if leg.used or leg.calls or self._following.uris(key):
            leg.used = False
            loop = asyncio.get_running_loop()
            leg.look = loop.call_later(self._settings.idle, self._look_at_joint, key, opened)
        else:
            del self._joint[key]
            self.drop(leg)

    def drop(self, leg: Leg) -> None:
        """Close a leg whose state is not known, such as that of a call that was cancelled."""
        task = asyncio.get_running_loop().create_task(self._close(leg))
        self._watches.add(task)
        task.add_done_callback(self._watches.discard)

    def _expire(self, leg: Leg, key: Hashable) -> None:
        kept = [pair for pair in self._idle.get(key, ()) if pair[0] is not leg]
        if kept:
            self._idle[key] = kept
        else:
            self._idle.pop(key, None)
        self.drop(leg)

    async def follow(self, tenant: Tenant, uri: str, ctx: Context) -> None:
        """Subscribe a tenant's sessions to changes of a resource, for a listening call."""
        await self.joint(tenant)
        for leg in list(self._of.get(tenant.key, ())):
            await leg.client.subscribe(uri)
        for gone in self._following.add(tenant.key, uri, ctx):
            for leg in list(self._of.get(tenant.key, ())):
                with suppress(McpearlError):
                    await leg.client.unsubscribe(gone)

    def updated(self, leg: Leg, params: Any) -> None:
        """Pass on a change of a resource that was announced in a leg."""
        self._following.updated(leg.tenant, params)

    # Both

    async def _open(self, leg: Leg, capabilities: ClientCapabilities, principal: Any) -> Leg:
        try:
            leg.client = await self._make(leg, capabilities, principal)
            await leg.client.connect()
        except BaseException:
            self._places.give_back(leg.owner)
            raise
        if leg.tenant is not None:
            self._keep(leg)
            for uri in self._following.uris(leg.tenant):
                with suppress(McpearlError):  # a new session may have other resources
                    await leg.client.subscribe(uri)
        return leg

    def _keep(self, leg: Leg) -> None:
        legs = self._of.get(leg.tenant)
        if legs is None:
            legs = self._of[leg.tenant] = set()
            if isinstance(leg.tenant, ServerConnection):
                watch = asyncio.get_running_loop().create_task(self._see_off(leg.tenant))
                self._watches.add(watch)
                watch.add_done_callback(self._watches.discard)
        legs.add(leg)

    async def _see_off(self, connection: ServerConnection) -> None:
        """Close the legs of a client without a session when its connection ends.

        Legs that are lent are closed when they are given back.
        """
        await connection.wait_closed()
        joint = self._joint.pop(connection, None)
        legs = [joint.result()] if joint is not None and joint.done() else []
        for key in [key for key in self._idle if isinstance(key, tuple) and key[0] is connection]:
            for leg, timer in self._idle.pop(key):
                timer.cancel()
                legs.append(leg)
        for leg in legs:
            if leg.look is not None:
                leg.look.cancel()
            await self._close(leg)

    async def _close(self, leg: Leg) -> None:
        self._places.give_back(leg.owner)
        others = self._of.get(leg.tenant)
        if others is not None:
            others.discard(leg)
            if not others:
                del self._of[leg.tenant]
        try:
            await leg.client.close()
        except Exception as error:
            logger.warning("a session with `%s` could not be closed: %s", self._name, error)

    async def close(self) -> None:
        """Close all legs."""
        for watch in list(self._watches):
            watch.cancel()
        if self._watches:
            await asyncio.wait(list(self._watches))
        openings = [*self._sessions.values(), *self._joint.values()]
        self._sessions, self._joint = {}, {}
        idle, self._idle = [pair for each in self._idle.values() for pair in each], {}
        for opening in openings:
            opening.cancel()
        if openings:
            await asyncio.wait(openings)
        legs = [o.result() for o in openings if not o.cancelled() and o.exception() is None]
        for leg in legs:
            if leg.look is not None:
                leg.look.cancel()
        for leg, timer in idle:
            timer.cancel()
            legs.append(leg)
        await asyncio.gather(*(self._close(leg) for leg in legs))


def _is_gone(tenant: Hashable) -> bool:
    """Whether a tenant is a connection that has ended."""
    return isinstance(tenant, ServerConnection) and tenant.closed
