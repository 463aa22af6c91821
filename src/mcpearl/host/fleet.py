"""The servers of a host at run time: supervised, added and removed, listed, and found by name."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import asdict

from mcpearl.client.client import Client
from mcpearl.client.entries import ServerEntry
from mcpearl.client.reconnect import Reconnect
from mcpearl.host.kept_list import KeptList
from mcpearl.host.member import RESTARTS, STATES, STOPPING, Member
from mcpearl.host.records import (
    HostChange,
    HostPrompt,
    HostResource,
    HostResourceTemplate,
    HostTool,
    OfferKind,
    Offers,
)
from mcpearl.protocol.errors import ConnectionLost, LimitReached, McpearlError, McpError
from mcpearl.runtime.arguments import did_you_mean
from mcpearl.runtime.child import Child
from mcpearl.runtime.joint_names import NameTable, named_server
from mcpearl.runtime.supervisor import Supervisor
from mcpearl.runtime.tree import Followers, Node, NodeChange
from mcpearl.types.base import Wire
from mcpearl.types.jsonrpc import INVALID_PARAMS


class Fleet:
    """The servers of one host.

    Args:
        make: Makes the client of a member.
        policy: When to connect again.
        tell: Called with each change.
        lazy: Whether to connect to servers only when they are needed.
        failures: Failed requests in a row after which a server is left alone for a while; None for any.
        max_servers: How many servers there may be.
        max_offers: How many items a list of one server may have.
    """

    def __init__(
        self,
        make: Callable[[Member], Client],
        policy: Reconnect,
        tell: Callable[[HostChange], None],
        *,
        lazy: bool,
        failures: int | None,
        max_servers: int,
        max_offers: int,
    ) -> None:
        self.members: dict[str, Member] = {}
        self.names: dict[OfferKind, NameTable] = {"tools": NameTable(), "prompts": NameTable()}
        self._uris: dict[
            str, frozenset[str]
        ] = {}  # of the resources of each server, as last listed
        self._make = make
        self._policy = policy
        self._follower = tell
        self.followers = Followers()
        """The followers of the host's tree."""
        self.lazy = lazy
        self._failures = failures
        self._max_servers = max_servers
        self._max_offers = max_offers
        self._supervisor = Supervisor("host", restarts=RESTARTS, stop_together=True, backoff=policy)

    # Adding and removing

    async def start(self) -> None:
        """Start the supervisor; servers can be added from now on."""
        await self._supervisor.start()

    async def stop(self) -> None:
        """Disconnect from all servers."""
        try:
            await self._supervisor.stop()
        finally:
            for name in list(self.members):
                self._forget(name)

    async def add(self, entry: ServerEntry) -> None:
        """Begin to connect to a server."""
        if entry.name in self.members:
            raise ValueError(f"there is a server `{entry.name}` already; use `replace`")
        if len(self.members) >= self._max_servers:
            raise LimitReached(
                f"server `{entry.name}` is one too many: there are {self._max_servers} already; "
                "raise `Host(max_servers=…)`"
            )
        member = Member(
            entry,
            self._make,
            self._lists(entry.name),
            self._policy,
            self._tell,
            lazy=self.lazy,
            failures=self._failures,
        )
        self.members[entry.name] = member
        try:
            await self._supervisor.add(Child(entry.name, member.run, shutdown=STOPPING))
        except BaseException:
            self._forget(entry.name)
            raise
        self._tell(HostChange(entry.name, "added", member.status()))

    async def remove(self, name: str) -> None:
        """Disconnect from a server, and forget it."""
        member = self.members.get(name)
        if member is None:
            raise self._unknown_server(name)
        self._forget(name)  # so that it is not found while it closes
        await self._supervisor.remove(name)
        self._tell(HostChange(name, "removed", member.status()))

    def _forget(self, name: str) -> None:
        self.members.pop(name, None)
        self._uris.pop(name, None)
        for table in self.names.values():
            table.remove(name)

    def node(self) -> Node:
        """Return the tree of the servers."""
        tree = self._supervisor.tree()
        children = tuple(member.node() for member in self.members.values())
        return Node(name="host", state=tree.state, uptime=tree.uptime, children=children)

    def _tell(self, change: HostChange) -> None:
        self._follower(change)
        if self.followers and change.what in ("added", "state", "removed"):
            status = change.status
            state = "ended" if change.what == "removed" else STATES[status.state]
            self.followers.tell(NodeChange(("host", change.server), state, status.reason))

    async def settled(self, timeout: float) -> None:
        """Wait until each server is connected or an attempt failed, at most `timeout` seconds."""
        waiting = [asyncio.ensure_future(each.settled()) for each in self.members.values()]
        await _within(waiting, timeout)

    # Finding

    def member(self, name: str) -> Member:
        """Return a server by its name."""
        member = self.members.get(name)
        if member is None:
            raise self._unknown_server(name)
        return member

    def _unknown_server(self, name: str) -> KeyError:
        return KeyError(f"there is no server `{name}`{did_you_mean(name, self.members)}")

    async def find(self, kind: OfferKind, joint: str, timeout: float) -> tuple[Member, str]:
        """Return the server that a joint name belongs to, and the item's own name at that server."""
        found = self.names[kind].find(joint) or named_server(joint, self.members)
        if found is None:  # it may be in a list that was not read yet, or that changed
            missing = (await self.offers(kind, timeout)).missing
            found = self.names[kind].find(joint)
            if found is None:
                raise self._unknown(kind, joint, missing)
        return self.members[found[0]], found[1]

    def _unknown(self, kind: OfferKind, joint: str, missing: dict[str, str]) -> McpError:
        known = [
            item.name for member in self.members.values() for item in member.lists[kind].last()
        ]
        message = f"No server has `{joint[:200]}` among its {kind}"
        hint = did_you_mean(joint[:200], known) if len(known) <= 1000 else ""
        if missing:
            hint += f"; without an answer: {', '.join(missing)}"
        return McpError(INVALID_PARAMS, message + hint, {"name": joint[:200]})

    async def owner(self, uri: str, timeout: float) -> Member:
        """Return the server that has a resource: the first that lists it, or has a template for it."""
        found = self._lister(uri)
        if found is None:
            resources = await self.offers("resources", timeout)
            found = self._lister(uri)
            if found is None:
                templates = await self.offers("resource_templates", timeout)
                found = self._matcher(uri, templates)
                if found is None:
                    missing = {**resources.missing, **templates.missing}
                    more = f"; without an answer: {', '.join(missing)}" if missing else ""
                    raise McpError(
                        INVALID_PARAMS,
                        f"No server lists `{uri[:200]}`, or a template for it; "
                        f"pass `server=…` to ask one all the same{more}",
                        {"uri": uri[:200]},
                    )
        return self.members[found]

    def _lister(self, uri: str) -> str | None:
        return next((name for name in self.members if uri in self._uris.get(name, ())), None)

    def _matcher(self, uri: str, templates: "Offers[HostResourceTemplate]") -> str | None:
        from mcpearl.server.registry.uri_template import TemplateError, UriTemplate

        for each in templates:
            try:
                if UriTemplate(each.uri_template).match(uri) is not None:
                    return each.server
            except TemplateError:
                continue  # an invalid template affects only itself
        return None

    # Listing

    async def offers(self, kind: OfferKind, timeout: float) -> "Offers[Any]":
        """Return a list of all servers' items, without servers that have not answered in time."""
        parts: dict[str, list[Any]] = {}
        missing: dict[str, str] = {}
        reading: dict[str, asyncio.Future[list[Any]]] = {}
        for name, member in self.members.items():
            known = member.known(kind)
            if known is not None:
                parts[name] = known
            else:
                reading[name] = asyncio.ensure_future(_read(member, kind))
        await _within(list(reading.values()), timeout)
        for name, future in reading.items():
            if future.cancelled():
                missing[name] = f"no answer within {timeout:g} s"
            elif (error := future.exception()) is not None:
                missing[name] = str(error)
            else:
                parts[name] = future.result()
        items = [item for name in list(self.members) for item in parts.get(name, ())]
        return Offers(items, missing)

    def _lists(self, server: str) -> dict[OfferKind, KeptList]:
        def named(kind: OfferKind, made: type[Wire]) -> Callable[[list[Any]], list[Any]]:
            def make(items: list[Any]) -> list[Any]:
                first = {item.name: item for item in reversed(items)}  # a name stands for one item
                names = self.names[kind].put(server, (item.name for item in items))
                return [
                    made(**{**asdict(item), "name": names[name]}, server=server, own_name=name)
                    for name, item in reversed(first.items())
                ]

            return make

        def placed(made: type[Wire]) -> Callable[[list[Any]], list[Any]]:
            def make(items: list[Any]) -> list[Any]:
                if made is HostResource:
                    self._uris[server] = frozenset(item.uri for item in items)
                return [made(**asdict(item), server=server) for item in items]

            return make

        made: dict[OfferKind, Callable[[list[Any]], list[Any]]] = {
            "tools": named("tools", HostTool),
            "prompts": named("prompts", HostPrompt),
            "resources": placed(HostResource),
            "resource_templates": placed(HostResourceTemplate),
        }
        return {kind: KeptList(kind, self._max_offers, make) for kind, make in made.items()}


async def _read(member: Member, kind: OfferKind) -> list[Any]:
    """Read a list; any failure becomes the reason why this server is missing."""
    try:
        return await member.listed(kind)
    except McpearlError:
        raise
    except Exception as error:  # a list that breaks our code affects only its server
        raise ConnectionLost(f"its {kind} cannot be read: {type(error).__name__}") from error


async def _within(work: "Sequence[asyncio.Future[Any]]", timeout: float) -> None:
    """Wait for all work, at most `timeout` seconds; cancel the rest."""
    if not work:
        return
    try:
        await asyncio.wait(work, timeout=timeout)
    finally:
        late = [each for each in work if not each.done()]
        for each in late:
            each.cancel()
        if late:
            await asyncio.wait(late)
