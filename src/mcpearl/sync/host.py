# Written by `make sync` from host/host.py.
"""The host for programs without an event loop."""

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar, Unpack, overload

from mcpearl.client.progress import ProgressCallback
from mcpearl.client.targets import Reachable
from mcpearl.client.tool_result import TypedToolResult
from mcpearl.host.config import ConfigSource, HostConfig
from mcpearl.host.host import Host
from mcpearl.host.options import HostOptions
from mcpearl.host.records import (
    HostChange,
    HostPrompt,
    HostResource,
    HostResourceTemplate,
    HostTool,
    Offers,
    ServerStatus,
)
from mcpearl.runtime.tree import Node, NodeChange
from mcpearl.sync.client import SyncClient
from mcpearl.sync.face import Face, SyncStream, for_threads
from mcpearl.sync.portal import threaded
from mcpearl.types.prompts import GetPromptResult
from mcpearl.types.resources import ReadResourceResult

T = TypeVar("T")


class SyncHost(Face[Host]):
    """The servers of a configuration, for scripts and notebooks.

    It has the methods of `Host`, which wait. Callbacks may be plain functions.

    >>> with SyncHost("mcp.json") as host:
    ...     print([tool.name for tool in host.tools()])

    Args:
        source: a configuration, as for `Host`.
        options: the options of `Host`.
    """

    def __init__(self, source: ConfigSource | HostConfig, **options: Unpack[HostOptions]) -> None:
        super().__init__(Host(source, **for_threads(dict(options))))

    def __getitem__(self, server: str) -> SyncClient:
        """Return the client of a server; raises `ConnectionLost` with the reason if there is none."""
        return SyncClient.of(self._inner[server], self._portal)

    def __contains__(self, server: object) -> bool:
        return server in self._inner

    def __iter__(self) -> Iterator[str]:
        return iter(self._inner)

    def __len__(self) -> int:
        return len(self._inner)

    @property
    def servers(self) -> dict[str, ServerStatus]:
        """The status of each server by name, including those that cannot be used, with the reason."""
        return self._inner.servers

    def tree(self) -> Node:
        """Return the servers and their connections: states, restarts, the last error, uptime."""
        return self._portal.call(self._inner.tree)

    def tree_changes(self, limit: int = 1000) -> SyncStream[NodeChange]:
        """Return an iterator over the servers that change their state in `tree`, for `for`.

        Args:
            limit: how many changes may wait to be taken; then the oldest are dropped.
        """
        return SyncStream(self._portal.call(lambda: self._inner.tree_changes(limit)), self._portal)

    def changes(self, limit: int = 1000) -> SyncStream[HostChange]:
        """Return an iterator over the changes from now on, for `for`.

        Args:
            limit: how many changes may wait to be read; then the oldest are dropped.
        """
        return SyncStream(self._portal.call(lambda: self._inner.changes(limit)), self._portal)

    def client(self, server: str, timeout: float | None = None) -> SyncClient:
        """Return the client of a server; connect to the server first if that has not been done.

        Args:
            server: the server's name.
            timeout: seconds to wait for the connection; by default `patience`.
        """
        return SyncClient.of(self._portal.run(self._inner.client(server, timeout)), self._portal)

    def tools(self, timeout: float | None = None) -> Offers[HostTool]:
        """Return the tools of all servers, under unique names.

        Lists are kept until a server announces a change. `missing` of the result names the servers whose
        tools are not in it.

        Args:
            timeout: seconds to wait for servers; by default `patience`.
        """
        return self._portal.run(self._inner.tools(timeout))

    def prompts(self, timeout: float | None = None) -> Offers[HostPrompt]:
        """Return the prompts of all servers, under unique names.

        Args:
            timeout: seconds to wait for servers; by default `patience`.
        """
        return self._portal.run(self._inner.prompts(timeout))

    def resources(self, timeout: float | None = None) -> Offers[HostResource]:
        """Return the resources of all servers.

        Args:
            timeout: seconds to wait for servers; by default `patience`.
        """
        return self._portal.run(self._inner.resources(timeout))

    def resource_templates(self, timeout: float | None = None) -> Offers[HostResourceTemplate]:
        """Return the resource templates of all servers.

        Args:
            timeout: seconds to wait for servers; by default `patience`.
        """
        return self._portal.run(self._inner.resource_templates(timeout))

    @overload
    def call_tool(
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
    def call_tool(
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

    def call_tool(
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
        return self._portal.run(
            self._inner.call_tool(
                name,
                arguments,
                returns=returns,
                timeout=timeout,
                max_timeout=max_timeout,
                on_progress=threaded(on_progress),
                meta=meta,
                raise_on_error=raise_on_error,
            )
        )

    def get_prompt(
        self, name: str, arguments: Mapping[str, Any] | None = None, *, timeout: float | None = None
    ) -> GetPromptResult:
        """Return a prompt of one of the servers with its arguments filled in.

        Args:
            name: the prompt's name, as `prompts` returns it.
            arguments: values by name; a value that is not text is sent as JSON.
            timeout: seconds for the call; by default the client's.
        """
        return self._portal.run(self._inner.get_prompt(name, arguments, timeout=timeout))

    def read_resource(
        self, uri: str, *, server: str | None = None, timeout: float | None = None
    ) -> ReadResourceResult:
        """Read a resource of one of the servers.

        Args:
            uri: the resource's URI.
            server: the server that has it; by default the first one that lists it, or has a template
                for it.
            timeout: seconds for the call; by default the client's.
        """
        return self._portal.run(self._inner.read_resource(uri, server=server, timeout=timeout))

    def add(self, name: str, target: Reachable) -> None:
        """Begin to connect to one more server. If that fails, it is tried again.

        Args:
            name: the server's name.
            target: an entry as in a configuration, or any other target that `Client` accepts.

        Raises:
            ConfigError: The target is not valid.
        """
        self._portal.run(self._inner.add(name, target))

    def remove(self, name: str) -> None:
        """Disconnect from a server, and forget it; calls that it has not answered fail.

        Args:
            name: the server's name.
        """
        self._portal.run(self._inner.remove(name))

    def replace(self, name: str, target: Reachable) -> None:
        """Replace a server by another one, under the same name.

        Args:
            name: the server's name.
            target: an entry as in a configuration, or any other target that `Client` accepts.
        """
        self._portal.run(self._inner.replace(name, target))

    def update(self, source: ConfigSource | HostConfig) -> None:
        """Replace the servers by those of a configuration. Servers with unchanged entries stay connected.

        Args:
            source: a configuration, as for the host itself.

        Raises:
            ConfigError: The configuration cannot be read; then nothing has changed.
        """
        self._portal.run(self._inner.update(source))

    def retry(self, server: str) -> None:
        """Try to connect at once to a server that is down, without waiting for the next attempt.

        Args:
            server: the server's name.
        """
        self._portal.call(lambda: self._inner.retry(server))
