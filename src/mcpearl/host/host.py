"""Many servers in one program: connects to all of them, and uses them as if they were one."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, Literal, TypeVar, Unpack, overload

from mcpearl.client.client import Client
from mcpearl.client.entries import ConfigError, ServerEntry, read_entry, surroundings
from mcpearl.client.options import SharedOptions
from mcpearl.client.progress import ProgressCallback
from mcpearl.client.reconnect import Reconnect
from mcpearl.client.targets import Reachable, ReachOptions, find_target
from mcpearl.client.tool_result import TypedToolResult
from mcpearl.host.callbacks import roots_of, told
from mcpearl.host.config import ConfigSource, HostConfig, read_config
from mcpearl.host.fleet import Fleet
from mcpearl.host.member import Member
from mcpearl.host.member_client import MemberClient
from mcpearl.host.records import (
    HostChange,
    HostPrompt,
    HostResource,
    HostResourceTemplate,
    HostTool,
    Offers,
    ServerStatus,
)
from mcpearl.protocol.errors import LimitReached
from mcpearl.protocol.events import Notice
from mcpearl.runtime.feed import Audience, Feed
from mcpearl.runtime.tree import Changes, Node
from mcpearl.types.prompts import GetPromptResult
from mcpearl.types.resources import ReadResourceResult

T = TypeVar("T")
_TAKES_TOKENS = ("http://", "https://", "ws://", "wss://")


class Host:
    """Connects to all servers of a configuration.

    >>> async with Host("mcp.json") as host:
    ...     for tool in await host.tools():
    ...         print(tool.name, tool.server)
    ...     result = await host.call_tool("weather__forecast", {"city": "Oslo"})

    A server that is down is shown in `servers` with the reason and tried again; the others are not
    affected. A callback that takes a second argument is passed the name of the server that asks.

    Args:
        source: the path or the text of a configuration file (Claude Desktop, Claude Code, VS Code,
            Cursor), or an object: `{"mcpServers": {…}}`, or servers by name, each any target that
            `Client` accepts, such as `{"weather": "https://…", "own": app}`.
        sampling: called when a server wants a message from a model.
        elicitation: called when a server wants input from the user.
        roots: the directories that servers may work in, or a function that returns them.
        on_log: called with each log message.
        on_progress: called with the progress of calls that have no callback of their own.
        on_notification: called with every other notification.
        on_stderr: called with each line a server process writes to stderr; by default the lines go to
            this process's stderr.
        on_change: called with each `HostChange`: when a server's state changes, or what it offers.
        auth: how to authorize at each server, by name, as for `Client`; or `"oauth"` to log in with
            the browser at every address that requires it.
        reconnect: when to connect again to a server that is down.
        lazy: whether to connect to a server only when it is first needed.
        patience: seconds that lists and `connect` wait for slow servers.
        failures: how many requests to a connected server have to fail in a row, because they time out or
            the connection is lost, until it is left alone for a while; None for any number.
        max_servers: how many servers there may be.
        max_offers: how many tools, resources or prompts one server may have.
        options: further options of all clients; `Client` describes them.
    """

    def __init__(
        self,
        source: ConfigSource | HostConfig,
        *,
        sampling: Callable[..., Any] | None = None,
        elicitation: Callable[..., Any] | None = None,
        roots: Any = None,
        on_log: Callable[..., Any] | None = None,
        on_progress: Callable[..., Any] | None = None,
        on_notification: Callable[..., Any] | None = None,
        on_stderr: Callable[..., Any] | None = None,
        on_change: Callable[[HostChange], None] | None = None,
        auth: Mapping[str, Any] | Literal["oauth"] | None = None,
        reconnect: Reconnect | None = None,
        lazy: bool = False,
        patience: float = 10.0,
        failures: int | None = 5,
        max_servers: int = 256,
        max_offers: int = 50_000,
        **options: Unpack[SharedOptions],
    ) -> None:
        if failures is not None and failures < 1:
            raise ValueError("`failures` is a number from 1, or None")
        self._config = source if isinstance(source, HostConfig) else read_config(source)
        self._callbacks: dict[str, Callable[..., Any] | None] = {
            "sampling": sampling,
            "elicitation": elicitation,
            "on_log": on_log,
            "on_progress": on_progress,
            "on_stderr": on_stderr,
        }
        self._roots = roots
        self._on_notification = on_notification
        self._auth = auth
        self._options = options
        self._reconnect = reconnect or Reconnect()
        self._patience = patience
        self._audience: Audience[HostChange] = Audience()
        if on_change is not None:
            self._audience.call(on_change)
        self._unused: dict[str, ServerStatus] = {}  # disabled, invalid, or too many
        self._changing = asyncio.Lock()
        self._fleet = Fleet(
            self._client,
            self._reconnect,
            self._audience.tell,
            lazy=lazy,
            failures=failures,
            max_servers=max_servers,
            max_offers=max_offers,
        )

    # Connecting

    async def connect(self) -> None:
        """Connect to all servers at the same time. `async with` calls this, and later `close`.

        Returns when an attempt to connect to each server has ended, or after `patience` seconds. A server
        that cannot be reached is not an error.
        """
        await self._fleet.start()
        try:
            await self.update(self._config)
            if not self._fleet.lazy:
                await self._fleet.settled(self._patience)
        except BaseException:
            await self._fleet.stop()
            raise

    async def close(self) -> None:
        """Disconnect from all servers, and end their processes. Idempotent."""
        await self._fleet.stop()

    async def __aenter__(self) -> "Host":
        await self.connect()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def _client(self, member: Member) -> MemberClient:
        """Make the client of a server."""
        name = member.name
        callbacks: dict[str, Any] = {
            each: told(callback, name) for each, callback in self._callbacks.items()
        }
        heard = told(self._on_notification, name)

        def noticed(notice: Notice) -> Any:
            member.noticed(notice)
            return None if heard is None else heard(notice)

        return MemberClient(
            member.entry,
            **callbacks,
            roots=roots_of(self._roots, name),
            on_notification=noticed,
            on_state=member.entered,
            reconnect=self._reconnect
            if find_target(member.entry, ReachOptions()).reopens
            else None,
            auth=self._auth_of(member.entry),
            **self._options,
        )

    def _auth_of(self, entry: ServerEntry) -> Any:
        if isinstance(self._auth, Mapping):
            return self._auth.get(entry.name)
        # `"oauth"` logs in at each address separately, so no server gets the token of another.
        return self._auth if (entry.url or "").startswith(_TAKES_TOKENS) else None

    # Inspecting

    @property
    def servers(self) -> dict[str, ServerStatus]:
        """The status of each server by name, including those that cannot be used, with the reason."""
        # Copied first: another thread may read this while servers are added and removed.
        up = {name: member.status() for name, member in list(self._fleet.members.items())}
        return {**up, **self._unused}

    def tree(self) -> Node:
        """Return the servers and their connections: states, restarts, the last error, uptime."""
        return self._fleet.node()

    def tree_changes(self, limit: int = 1000) -> Changes:
        """Return an iterator over the servers that change their state in `tree`, for `async for`.

        Args:
            limit: how many changes may wait to be taken; then the oldest are dropped.
        """
        return self._fleet.followers.iterate(limit)

    def changes(self, limit: int = 1000) -> Feed[HostChange]:
        """Return an iterator over the changes from now on, for `async for`.

        Args:
            limit: how many changes may wait to be read; then the oldest are dropped.
        """
        return self._audience.iterate(limit)

    def __getitem__(self, server: str) -> Client:
        """Return the client of a server; raise `ConnectionLost` with the reason if there is none.

        Its requests count for `failures` as those of the host do, and are refused with them.
        """
        return self._fleet.member(server).expect()

    def __contains__(self, server: object) -> bool:
        return server in self._fleet.members

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._fleet.members))

    def __len__(self) -> int:
        return len(self._fleet.members)

    def __repr__(self) -> str:
        ready = sum(1 for each in self.servers.values() if each.state == "ready")
        return f"<Host of {len(self)} servers, {ready} ready>"

    async def client(self, server: str, timeout: float | None = None) -> Client:
        """Return the client of a server; connect to the server first if that has not been done.

        Args:
            server: the server's name.
            timeout: seconds to wait for the connection; by default `patience`.
        """
        return await self._fleet.member(server).connected(self._seconds(timeout))

    def _seconds(self, timeout: float | None) -> float:
        return self._patience if timeout is None else timeout

    # What the servers offer

    async def tools(self, timeout: float | None = None) -> Offers[HostTool]:
        """Return the tools of all servers, under unique names.

        Lists are kept until a server announces a change. `missing` of the result names the servers whose
        tools are not in it.

        Args:
            timeout: seconds to wait for servers; by default `patience`.
        """
        return await self._fleet.offers("tools", self._seconds(timeout))

    async def prompts(self, timeout: float | None = None) -> Offers[HostPrompt]:
        """Return the prompts of all servers, under unique names.

        Args:
            timeout: seconds to wait for servers; by default `patience`.
        """
        return await self._fleet.offers("prompts", self._seconds(timeout))

    async def resources(self, timeout: float | None = None) -> Offers[HostResource]:
        """Return the resources of all servers.

        Args:
            timeout: seconds to wait for servers; by default `patience`.
        """
        return await self._fleet.offers("resources", self._seconds(timeout))

    async def resource_templates(
        self, timeout: float | None = None
    ) -> Offers[HostResourceTemplate]:
        """Return the resource templates of all servers.

        Args:
            timeout: seconds to wait for servers; by default `patience`.
        """
        return await self._fleet.offers("resource_templates", self._seconds(timeout))

    # Using what they offer

    @overload
    async def call_tool(
        self,
        name: str,
        arguments: Any = None,
        *,
        returns: type[T],
        timeout: float | None = None,
        max_timeout: float | None = None,
        on_progress: ProgressCallback | None = None,
        meta: dict[str, Any] | None = None,
        raise_on_error: bool = False,
    ) -> TypedToolResult[T]: ...

    @overload
    async def call_tool(
        self,
        name: str,
        arguments: Any = None,
        *,
        returns: Any = None,
        timeout: float | None = None,
        max_timeout: float | None = None,
        on_progress: ProgressCallback | None = None,
        meta: dict[str, Any] | None = None,
        raise_on_error: bool = False,
    ) -> TypedToolResult[Any]: ...

    async def call_tool(
        self,
        name: str,
        arguments: Any = None,
        *,
        returns: Any = None,
        timeout: float | None = None,
        max_timeout: float | None = None,
        on_progress: ProgressCallback | None = None,
        meta: dict[str, Any] | None = None,
        raise_on_error: bool = False,
    ) -> TypedToolResult[Any]:
        """Call a tool of one of the servers.

        Args:
            name: the tool's name, as `tools` returns it.
            arguments: the arguments by name, as for `Client.call_tool`.
            returns: the type of `result.data`; by default the output schema decides.
            timeout: seconds for the call; by default the client's.
            max_timeout: seconds for the call in all; with it, progress restarts `timeout`.
            on_progress: called with each progress notification; by default the host's callback.
            meta: members of `_meta` in the request.
            raise_on_error: whether to raise `ToolError` if the tool fails.
        """
        member, own = await self._fleet.find("tools", name, self._patience)
        client = await member.connected(self._seconds(timeout))
        return await client.call_tool(
            own,
            arguments,
            returns=returns,
            timeout=timeout,
            max_timeout=max_timeout,
            on_progress=on_progress,
            meta=meta,
            raise_on_error=raise_on_error,
        )

    async def get_prompt(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
    ) -> GetPromptResult:
        """Return a prompt of one of the servers with its arguments filled in.

        Args:
            name: the prompt's name, as `prompts` returns it.
            arguments: values by name; a value that is not text is sent as JSON.
            timeout: seconds for the call; by default the client's.
        """
        member, own = await self._fleet.find("prompts", name, self._patience)
        client = await member.connected(self._seconds(timeout))
        return await client.get_prompt(own, arguments, timeout=timeout)

    async def read_resource(
        self, uri: str, *, server: str | None = None, timeout: float | None = None
    ) -> ReadResourceResult:
        """Read a resource of one of the servers.

        Args:
            uri: the resource's URI.
            server: the server that has it; by default the first one that lists it, or has a template
                for it.
            timeout: seconds for the call; by default the client's.
        """
        if server is None:
            member = await self._fleet.owner(uri, self._patience)
        else:
            member = self._fleet.member(server)
        client = await member.connected(self._seconds(timeout))
        return await client.read_resource(uri, timeout=timeout)

    # Adding and removing servers

    async def add(self, name: str, target: Reachable) -> None:
        """Begin to connect to one more server. If that fails, it is tried again.

        Args:
            name: the server's name.
            target: an entry as in a configuration, or any other target that `Client` accepts.

        Raises:
            ConfigError: The target is not valid.
        """
        entry = _entry(name, target)
        async with self._changing:
            await self._fleet.add(entry)

    async def remove(self, name: str) -> None:
        """Disconnect from a server, and forget it; calls that it has not answered fail.

        Args:
            name: the server's name.
        """
        async with self._changing:
            await self._fleet.remove(name)

    async def replace(self, name: str, target: Reachable) -> None:
        """Replace a server by another one, under the same name.

        Args:
            name: the server's name.
            target: an entry as in a configuration, or any other target that `Client` accepts.
        """
        entry = _entry(name, target)
        async with self._changing:
            await self._fleet.remove(name)
            await self._fleet.add(entry)

    async def update(self, source: ConfigSource | HostConfig) -> None:
        """Replace the servers by those of a configuration. Servers with unchanged entries stay connected.

        Args:
            source: a configuration, as for the host itself.

        Raises:
            ConfigError: The configuration cannot be read; then nothing has changed.
        """
        config = source if isinstance(source, HostConfig) else read_config(source)
        wanted = {name: each for name, each in config.entries.items() if not each.disabled}
        async with self._changing:
            self._unused = _unused(config)
            members = self._fleet.members
            gone = [n for n, member in members.items() if wanted.get(n) != member.entry]
            await asyncio.gather(*map(self._fleet.remove, gone))
            for name, entry in wanted.items():
                if name not in members:
                    try:
                        await self._fleet.add(entry)
                    except LimitReached as error:
                        self._unused[name] = _invalid(name, str(error))

    def retry(self, server: str) -> None:
        """Try to connect at once to a server that is down, without waiting for the next attempt.

        Args:
            server: the server's name.
        """
        self._fleet.member(server).try_again()


def _entry(name: str, target: Reachable) -> ServerEntry:
    entry = read_entry(name, target, surroundings())
    if entry.disabled:
        raise ConfigError(f"server `{name}` is disabled in its entry")
    find_target(entry, ReachOptions())
    return entry


def _invalid(name: str, reason: str) -> ServerStatus:
    return ServerStatus(name=name, state="invalid", reason=reason)


def _unused(config: HostConfig) -> dict[str, ServerStatus]:
    disabled = [name for name, entry in config.entries.items() if entry.disabled]
    return {
        **{name: ServerStatus(name=name, state="disabled") for name in disabled},
        **{each.server: _invalid(each.server, each.message) for each in config.problems},
    }
