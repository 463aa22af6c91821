# Written by `make sync` from client/client.py, client/calling.py, client/reading.py.
"""The client for programs without an event loop."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, TypeVar, Unpack, overload

from mcpearl.client.client import Client
from mcpearl.client.entries import ServerEntry
from mcpearl.client.options import ClientOptions
from mcpearl.client.progress import ProgressCallback
from mcpearl.client.targets import Reachable
from mcpearl.client.tool_result import TypedToolResult
from mcpearl.protocol.events import Notice
from mcpearl.protocol.lifecycle import Phase
from mcpearl.runtime.tree import Node, NodeChange
from mcpearl.sync.face import Face, SyncStream, for_threads
from mcpearl.sync.portal import Portal, threaded
from mcpearl.sync.task import SyncClientTask
from mcpearl.types.base import Implementation, RequestParams, Result
from mcpearl.types.capabilities import ServerCapabilities
from mcpearl.types.completion import Completion, PromptReference, ResourceTemplateReference
from mcpearl.types.logging import LoggingLevel
from mcpearl.types.prompts import GetPromptResult, ListPromptsResult, Prompt
from mcpearl.types.resources import (
    ListResourcesResult,
    ListResourceTemplatesResult,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
)
from mcpearl.types.tasks import Task
from mcpearl.types.tools import ListToolsResult, Tool

R = TypeVar("R", bound=Result)
T = TypeVar("T")


class SyncClient(Face[Client]):
    """A connection to one MCP server, for scripts and notebooks.

    It has the methods of `Client`, which wait. The connection lives on an event loop in a thread of its
    own, so it works where a loop is running already. Callbacks may be plain functions.

    >>> with SyncClient("server.py") as client:
    ...     print(client.call_tool("add", {"a": 1, "b": 2}).data)

    Args:
        target: what to connect to, as for `Client`.
        options: the options of `Client`.
    """

    def __init__(self, target: Reachable, **options: Unpack[ClientOptions]) -> None:
        super().__init__(Client(target, **for_threads(dict(options))))

    @classmethod
    def of(cls, client: Client, portal: Portal) -> "SyncClient":
        """Return the face of a client that a host has.

        Args:
            client: the client.
            portal: the loop it lives on.
        """
        made = cls.__new__(cls)
        Face.__init__(made, client, portal)
        return made

    def given_up(self) -> None:
        """Wait until the connection is lost and will not come back, and raise the reason."""
        self._portal.run(self._inner.given_up())

    @property
    def state(self) -> Phase:
        """The phase the client is in, such as `ready`, or `failed` while it reconnects."""
        return self._inner.state

    @property
    def is_over(self) -> bool:
        """Whether the client is closed, or its connection is lost and will not come back."""
        return self._inner.is_over

    def tree(self) -> Node:
        """Return the connection and its subscriptions: states, restarts, the last error, uptime."""
        return self._portal.call(self._inner.tree)

    def tree_changes(self, limit: int = 1000) -> SyncStream[NodeChange]:
        """Return an iterator over the changes of the connection from now on, for `for`.

        Args:
            limit: how many changes may wait to be read; then the oldest are dropped.
        """
        return SyncStream(self._portal.call(lambda: self._inner.tree_changes(limit)), self._portal)

    @property
    def entry(self) -> ServerEntry:
        """How the server is reached, for others that connect to it: `app.mount("x", host["x"])`.

        They get connections of their own, or start the same command. It is not available for a client
        that was made for a transport, which can be opened only once.
        """
        return self._inner.entry

    @property
    def server_info(self) -> Implementation | None:
        """The server's name and version."""
        return self._inner.server_info

    @property
    def server_capabilities(self) -> ServerCapabilities:
        """The capabilities that the server announced."""
        return self._inner.server_capabilities

    @property
    def instructions(self) -> str | None:
        """How a model should use the server, in the server's words."""
        return self._inner.instructions

    @property
    def protocol_version(self) -> str:
        """The protocol version that was agreed on."""
        return self._inner.protocol_version

    @property
    def era(self) -> Literal["legacy", "modern"]:
        """`legacy` if the server keeps a session, `modern` if each request stands for itself."""
        return self._inner.era

    def request(
        self,
        method: str,
        params: Mapping[str, Any] | RequestParams | None = None,
        kind: type[R] = Result,  # type: ignore[assignment]
        *,
        timeout: float | None = None,
    ) -> R:
        """Send a request for which there is no method here, such as one of an extension.

        Args:
            method: the method.
            params: its params.
            kind: the type of its result; members that the type does not have are kept in `extra`.
            timeout: seconds for the call; by default the client's.
        """
        return self._portal.run(self._inner.request(method, params, kind, timeout=timeout))

    def ping(self, timeout: float | None = None) -> None:
        """Return when the server has answered a ping, or `server/discover` in the modern era.

        Args:
            timeout: seconds for the answer; by default the client's.
        """
        self._portal.run(self._inner.ping(timeout))

    def set_log_level(self, level: LoggingLevel) -> None:
        """Choose which log messages the server sends from now on.

        Args:
            level: the lowest level to send.
        """
        self._portal.run(self._inner.set_log_level(level))

    def notify_roots_changed(self) -> None:
        """Tell a legacy server that the roots changed; a modern one asks when it needs them."""
        self._portal.call(self._inner.notify_roots_changed)

    def on(self, method: str, handler: Callable[[Any], Any] | None) -> None:
        """Call a function with each notification of one kind, or with requests of an extension.

        The handler replaces `on_log` or `on_notification` for its method, and stays set when the client
        reconnects. It is called with the params, which are a dict if the specification does not define
        the method. The handler of a request returns its result: a dict, or None for an empty one.

        Args:
            method: the method, such as `notifications/tools/list_changed`.
            handler: a function, which may be async; None removes the current one.
        """
        self._portal.call(lambda: self._inner.on(method, threaded(handler)))

    def list_tools(self, cursor: str | None = None) -> ListToolsResult:
        """Return one page of the tools.

        Args:
            cursor: `next_cursor` of the previous page; None for the first page.
        """
        return self._portal.run(self._inner.list_tools(cursor))

    def tools(self) -> Iterator[Tool]:
        """Iterate over all tools, page by page."""
        return self._portal.iterate(self._inner.tools())

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
        """Call a tool and return its result.

        Args:
            name: the tool's name.
            arguments: the arguments by name: a dict, or an object with fields, such as a dataclass or
                a pydantic model. Values may also be such objects, dates or paths.
            returns: the type of `result.data`; by default the output schema decides.
            timeout: seconds for the call, including repeated requests; by default the client's.
            max_timeout: seconds for the call in all; with it, progress restarts `timeout`.
            on_progress: called with each progress notification; by default the client's callback.
            meta: members of `_meta` in the request.
            raise_on_error: whether to raise `ToolError` if the tool fails, instead of returning a
                result with `is_error`.
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

    def start_task(
        self,
        name: str,
        arguments: Any = None,
        *,
        ttl: float | None = None,
        timeout: float | None = None,
        on_progress: ProgressCallback | None = None,
        meta: dict[str, Any] | None = None,
    ) -> SyncClientTask:
        """Call a tool that runs as a task, and return the task without waiting for its end.

        A modern server decides by itself which calls become tasks. If it answers at once instead, the
        handle has the result already.

        Args:
            name: the tool's name.
            arguments: the arguments by name, as in `call_tool`.
            ttl: seconds for which a server of 2025-11-25 is asked to keep the task; a modern server
                decides this by itself.
            timeout: seconds for the server to accept the call; by default the client's.
            on_progress: called with each progress notification; a modern task sends none, and reports
                its progress in its status message.
            meta: members of `_meta` in the request.
        """
        return SyncClientTask(
            self._portal.run(
                self._inner.start_task(
                    name,
                    arguments,
                    ttl=ttl,
                    timeout=timeout,
                    on_progress=threaded(on_progress),
                    meta=meta,
                )
            ),
            self._portal,
        )

    def task(self, id: str) -> SyncClientTask:
        """Return the handle of a task that was started before, perhaps by another client.

        Args:
            id: the task's `id`.
        """
        return SyncClientTask(self._portal.call(lambda: self._inner.task(id)), self._portal)

    def tasks(self) -> Iterator[Task]:
        """Iterate over the states of all tasks at a server of 2025-11-25; later ones cannot list them."""
        return self._portal.iterate(self._inner.tasks())

    def list_resources(self, cursor: str | None = None) -> ListResourcesResult:
        """Return one page of the resources.

        Args:
            cursor: `next_cursor` of the previous page; None for the first page.
        """
        return self._portal.run(self._inner.list_resources(cursor))

    def resources(self) -> Iterator[Resource]:
        """Iterate over all resources, page by page."""
        return self._portal.iterate(self._inner.resources())

    def list_resource_templates(self, cursor: str | None = None) -> ListResourceTemplatesResult:
        """Return one page of the resource templates.

        Args:
            cursor: `next_cursor` of the previous page; None for the first page.
        """
        return self._portal.run(self._inner.list_resource_templates(cursor))

    def resource_templates(self) -> Iterator[ResourceTemplate]:
        """Iterate over all resource templates, page by page."""
        return self._portal.iterate(self._inner.resource_templates())

    def read_resource(
        self,
        uri: str,
        *,
        timeout: float | None = None,
        max_timeout: float | None = None,
        on_progress: ProgressCallback | None = None,
        meta: dict[str, Any] | None = None,
    ) -> ReadResourceResult:
        """Read a resource.

        Args:
            uri: the resource's URI.
            timeout: seconds for the call, including repeated requests; by default the client's.
            max_timeout: seconds for the call in all; with it, progress restarts `timeout`.
            on_progress: called with each progress notification; by default the client's callback.
            meta: members of `_meta` in the request.
        """
        return self._portal.run(
            self._inner.read_resource(
                uri,
                timeout=timeout,
                max_timeout=max_timeout,
                on_progress=threaded(on_progress),
                meta=meta,
            )
        )

    def subscribe(self, uri: str) -> None:
        """Subscribe to a resource: each change calls `on_notification`, and drops the cached content.

        Args:
            uri: the resource's URI.
        """
        self._portal.run(self._inner.subscribe(uri))

    def unsubscribe(self, uri: str) -> None:
        """End a subscription.

        Args:
            uri: the resource's URI.
        """
        self._portal.run(self._inner.unsubscribe(uri))

    def listen(
        self,
        *,
        tools: bool = False,
        prompts: bool = False,
        resource_list: bool = False,
        resources: list[str] | None = None,
    ) -> SyncStream[Notice]:
        """Return a stream of changes on a modern server, to be opened with `with`.

        Args:
            tools: whether changes of the list of tools are wanted.
            prompts: whether changes of the list of prompts are wanted.
            resource_list: whether changes of the list of resources are wanted.
            resources: URIs of resources whose changes are wanted.
        """
        return SyncStream(
            self._portal.call(
                lambda: self._inner.listen(
                    tools=tools, prompts=prompts, resource_list=resource_list, resources=resources
                )
            ),
            self._portal,
        )

    def list_prompts(self, cursor: str | None = None) -> ListPromptsResult:
        """Return one page of the prompts.

        Args:
            cursor: `next_cursor` of the previous page; None for the first page.
        """
        return self._portal.run(self._inner.list_prompts(cursor))

    def prompts(self) -> Iterator[Prompt]:
        """Iterate over all prompts, page by page."""
        return self._portal.iterate(self._inner.prompts())

    def get_prompt(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        max_timeout: float | None = None,
        on_progress: ProgressCallback | None = None,
        meta: dict[str, Any] | None = None,
    ) -> GetPromptResult:
        """Return a prompt with its arguments filled in.

        Args:
            name: the prompt's name.
            arguments: values by name; a value that is not text is sent as JSON.
            timeout: seconds for the call, including repeated requests; by default the client's.
            max_timeout: seconds for the call in all; with it, progress restarts `timeout`.
            on_progress: called with each progress notification; by default the client's callback.
            meta: members of `_meta` in the request.
        """
        return self._portal.run(
            self._inner.get_prompt(
                name,
                arguments,
                timeout=timeout,
                max_timeout=max_timeout,
                on_progress=threaded(on_progress),
                meta=meta,
            )
        )

    def complete(
        self,
        reference: str | PromptReference | ResourceTemplateReference,
        argument: str,
        value: str,
        context: Mapping[str, str] | None = None,
    ) -> Completion:
        """Return suggestions for an argument of a prompt or a resource template.

        Args:
            reference: the prompt's name, the template's URI, or a reference to either.
            argument: the argument's name.
            value: what the user has typed so far.
            context: values of arguments that are filled in already.
        """
        return self._portal.run(self._inner.complete(reference, argument, value, context))
