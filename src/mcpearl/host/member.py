"""One server of a host: keeps it connected, without giving up, and keeps its lists.

A `Client` reconnects by itself after its first connection. This module also repeats the first attempt,
and connects again after the client has given up.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from mcpearl.client.client import Client
from mcpearl.client.entries import ServerEntry
from mcpearl.client.reconnect import Reconnect
from mcpearl.host.kept_list import KeptList
from mcpearl.host.member_client import MemberClient
from mcpearl.host.records import HostChange, OfferKind, ServerState, ServerStatus
from mcpearl.protocol.errors import (
    AuthorizationFailed,
    ConnectionLost,
    McpearlError,
    McpError,
    RequestTimeout,
    brief,
)
from mcpearl.protocol.events import Notice
from mcpearl.protocol.lifecycle import Phase
from mcpearl.runtime import clock
from mcpearl.runtime.backoff import Retries
from mcpearl.runtime.breaker import Breaker
from mcpearl.runtime.coalesce import Coalescer
from mcpearl.runtime.tree import Node, State
from mcpearl.types.base import Implementation
from mcpearl.types.subscriptions import SubscriptionFilter

logger = logging.getLogger("mcpearl.host")

# The lists that a notification makes stale.
_STALE: dict[str, tuple[OfferKind, ...]] = {
    "notifications/tools/list_changed": ("tools",),
    "notifications/prompts/list_changed": ("prompts",),
    "notifications/resources/list_changed": ("resources", "resource_templates"),
}
STATES: dict[ServerState, State] = {
    "idle": "waiting",
    "connecting": "starting",
    "ready": "running",
    "down": "waiting",
    "disabled": "ended",
    "invalid": "failed",
}
STOPPING = 15.0
"""Seconds a server has to stop; a process is killed after six at the latest."""
RESTARTS = 1_000_000
"""Restarts of a server's own task in a minute; a server that is down does not cause one."""
_REASON = 1000  # characters of a reason at most
_READING = 60.0  # seconds in which all pages of a list have to come


class Member:
    """One server of a host.

    Args:
        entry: The server's entry in the configuration.
        make: Makes a client for it.
        lists: The lists to keep.
        policy: When to connect again.
        tell: Called with each change.
        lazy: Whether to connect only when the server is needed.
        failures: Failed requests in a row after which the server is left alone for a while; None for any
            number, and for clients that are not a `MemberClient`.
    """

    def __init__(
        self,
        entry: ServerEntry,
        make: "Callable[[Member], Client]",
        lists: Mapping[OfferKind, KeptList],
        policy: Reconnect,
        tell: Callable[[HostChange], None],
        *,
        lazy: bool,
        failures: int | None = None,
    ) -> None:
        self.entry = entry
        self.lists = lists
        self.client: Client | None = None
        """The client, after its first connection; it may be reconnecting."""
        self._make = make
        self._policy = policy
        self._tell = tell
        self._failures = failures
        self._state: ServerState = "idle" if lazy else "connecting"
        self._reason: str | None = None
        self._since = clock.now()
        self._up_since = 0.0
        self._tries = 0
        self._restarts = -1  # connections after the first
        self._info: Implementation | None = None
        self._version: str | None = None
        self._wanted = asyncio.Event()
        self._settled = asyncio.Event()  # cleared while a first attempt is under way
        self._again = asyncio.Event()  # set to try again at once
        self._following: asyncio.Task[None] | None = None
        self._granted: SubscriptionFilter | None = None  # what a modern server announces to us
        self._news = {kind: Coalescer(self._teller(kind)) for kind in lists}
        if not lazy:
            self._wanted.set()
        else:
            self._settled.set()

    @property
    def name(self) -> str:
        """The server's name."""
        return self.entry.name

    # Inspecting

    def status(self) -> ServerStatus:
        """Return the server's status."""
        return ServerStatus(
            name=self.name,
            state=self._state,
            reason=self._reason,
            since=self._since,
            tries=self._tries,
            server_info=self._info,
            protocol_version=self._version,
        )

    def node(self) -> Node:
        """Return the server's part of the host's tree."""
        client = self.client
        return Node(
            name=self.name,
            state=STATES[self._state],
            restarts=max(0, self._restarts),
            last_error=self._reason,
            uptime=clock.monotonic() - self._up_since if self._state == "ready" else 0.0,
            children=() if client is None else (client.tree(),),
        )

    def _enter(self, state: ServerState, reason: str | None = None) -> None:
        if state != self._state:
            self._since = clock.now()
        elif reason == self._reason:
            return
        self._state, self._reason = state, reason
        if state == "connecting":
            self._settled.clear()
        else:
            self._settled.set()
        self._tell(HostChange(self.name, "state", self.status()))

    def _teller(self, kind: OfferKind) -> Callable[[], None]:
        def tell() -> None:
            # Templates are announced with the resources; a timer may outlive the connection.
            if kind != "resource_templates" and self._state == "ready":
                self._tell(HostChange(self.name, kind, self.status()))

        return tell

    # Using

    def want(self) -> None:
        """Connect, if the connection was put off until the server is needed."""
        if self._state == "idle":
            self._enter("connecting")
            self._wanted.set()

    def try_again(self) -> None:
        """Try to connect at once, if the server is down."""
        self.want()
        self._again.set()

    async def settled(self) -> None:
        """Wait until the first attempt to connect has succeeded or failed."""
        self.want()
        await self._settled.wait()

    async def connected(self, timeout: float) -> Client:
        """Return the client, once there is a first connection.

        Args:
            timeout: Seconds to wait for a first attempt that is under way.
        """
        client = self.client
        if client is not None:
            return client
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self.settled()
        return self.expect()

    def expect(self) -> Client:
        """Return the client, or raise an error that says why there is none."""
        if self.client is None:
            raise ConnectionLost(
                f"server `{self.name}` is not connected: {self._reason or self._state}"
            )
        return self.client

    async def listed(self, kind: OfferKind) -> list[Any]:
        """Return a list of the server: the kept one, or one read from the server."""
        await self.settled()
        if self._state != "ready":
            raise ConnectionLost(self._reason or self._state)
        announced = self._announces(kind)
        return await self.lists[kind].read(self.expect(), announced=announced, timeout=_READING)

    def known(self, kind: OfferKind) -> list[Any] | None:
        """Return a list if it is kept and need not be read; None otherwise."""
        return self.lists[kind].items() if self._state == "ready" else None

    def _announces(self, kind: OfferKind) -> bool:
        client = self.expect()
        about = "resources" if kind == "resource_templates" else kind
        capability = getattr(client.server_capabilities, about)
        if capability is None:
            return True  # nothing is offered, and nothing can change
        if client.era == "legacy":
            return bool(capability.list_changed)
        return bool(getattr(self._granted, f"{about}_list_changed", None))

    # Running

    async def run(self) -> None:
        """Keep the server connected, until this task is cancelled."""
        retries = Retries(self._policy)
        loop = asyncio.get_running_loop()
        if self._wanted.is_set():
            self._enter("connecting")  # also after an earlier run failed
        try:
            while True:
                await self._wanted.wait()
                began, failure = loop.time(), await self._connection()
                if isinstance(failure, AuthorizationFailed):
                    await self._pause(None)  # a person would be asked to log in over and over
                    continue
                retries.worked_for(loop.time() - began if not self._tries else 0.0)
                await self._pause(retries.next_delay())
        finally:
            self._state = "idle"
            self._settled.set()

    async def _connection(self) -> Exception:
        """Connect, stay connected as long as the client can, and return why the connection ended."""
        try:
            async with self._make(self) as client:
                self._begin(client)
                try:
                    await client.given_up()
                except McpearlError as error:
                    self._down(error)  # before closing, which may take its time
                    raise
        except Exception as error:
            if not isinstance(error, McpearlError | OSError | ValueError | TypeError):
                logger.exception("the connection to `%s` failed", self.name)
            if self.client is None:
                self._down(error)
            return error
        finally:
            await self._release()
        return ConnectionLost("the connection ended")

    def _begin(self, client: Client) -> None:
        self.client = client
        self._up(client)

    def _up(self, client: Client) -> None:
        self._tries = 0
        if isinstance(client, MemberClient):
            client.guard(self._breaker())
        self._restarts += 1
        self._up_since = clock.monotonic()
        self._info = client.server_info
        self._version = client.protocol_version
        for kept in self.lists.values():
            kept.changed()
        if client.era == "modern" and (self._following is None or self._following.done()):
            self._following = asyncio.get_running_loop().create_task(self._follow(client))
        self._enter("ready")

    def _breaker(self) -> Breaker | None:
        """Return the breaker of a new connection."""
        if self._failures is None:
            return None
        counts = ConnectionLost, RequestTimeout
        return Breaker(f"server `{self.name}`", self._failures, counts=counts)

    def _down(self, failure: Exception | None) -> None:
        if self._state != "ready":
            self._tries += 1
        reason = brief(self.entry.hide(_reason_of(failure)), _REASON)
        if self._state != "down" or reason != self._reason:
            logger.warning("server `%s`: %s", self.name, reason)
        self._enter("down", reason)

    async def _pause(self, seconds: float | None) -> None:
        self._again.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._again.wait()

    async def _release(self) -> None:
        self.client = None
        following, self._following = self._following, None
        if following is not None:
            following.cancel()
            await asyncio.wait([following])
        for kept in self.lists.values():
            await kept.close()

    # Called by the client

    def entered(self, phase: Phase) -> None:
        """Handle a change of the client's phase, after its first connection."""
        client = self.client
        if client is None:
            return
        if phase is Phase.READY:
            self._up(client)
        elif phase is Phase.FAILED:
            self._down(ConnectionLost(client.tree().last_error or "the connection was lost"))

    def noticed(self, notice: Notice) -> None:
        """Handle a notification of the server: a list may have changed."""
        for kind in _STALE.get(notice.method, ()):
            self.lists[kind].changed()
            self._news[kind].poke(asyncio.get_running_loop())

    async def _follow(self, client: Client) -> None:
        """Subscribe to changes of a modern server's lists, again whenever the stream ends."""
        offered = client.server_capabilities
        wanted = {
            "tools": bool(offered.tools and offered.tools.list_changed),
            "prompts": bool(offered.prompts and offered.prompts.list_changed),
            "resource_list": bool(offered.resources and offered.resources.list_changed),
        }
        retries = Retries(self._policy)
        while any(wanted.values()):
            try:
                async with client.listen(**wanted) as changes:  # type: ignore[arg-type]
                    self._granted = changes.granted
                    if changes.granted is None:
                        return  # the server ended it at once
                    async for _ in changes:
                        pass  # `noticed` is called with each one
            except McpError as error:
                logger.info("server `%s` announces no changes: %s", self.name, error)
                return
            except McpearlError as error:
                if client.state in (Phase.CLOSING, Phase.CLOSED):
                    return  # the host is done with it
                logger.info("server `%s`: the stream of changes ended: %s", self.name, error)
            finally:
                self._unfollowed()
            await asyncio.sleep(retries.next_delay())

    def _unfollowed(self) -> None:
        """Note that changes are no longer announced, so kept lists may be out of date."""
        if self._granted is not None:
            self._granted = None
            for kept in self.lists.values():
                kept.changed()


def _reason_of(failure: Exception | None) -> str:
    """Return why a server is down, for the person who configured it."""
    if isinstance(failure, McpError):
        if isinstance(failure.data, dict) and "status" in failure.data:
            return f"{failure.message}; is this the address of an MCP server?"
        return f"it answered with an error: {failure.message}"
    return str(failure) or type(failure).__name__
