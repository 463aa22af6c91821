"""The client people write with: connect to any server, call it, and be called back."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from mcpearl._version import __version__
from mcpearl.client.cache import ResponseCache
from mcpearl.client.callbacks import (
    Callbacks,
    ElicitationCallback,
    Roots,
    SamplingCallback,
)
from mcpearl.client.connection import ClientConnection, ProgressCallback, Told
from mcpearl.client.handshake import Handshake
from mcpearl.client.known_tools import KnownTools
from mcpearl.client.link import Link, StateCallback
from mcpearl.client.pages import CacheView, get_page, walk
from mcpearl.client.reconnect import Reconnect
from mcpearl.client.requests import Requests
from mcpearl.client.subscription import Subscription, not_modern
from mcpearl.client.subscriptions import Subscriptions
from mcpearl.client.targets import ReachOptions, Target, find_route
from mcpearl.protocol.client_end import ClientEnd
from mcpearl.protocol.errors import ConnectionLost, McpearlError, McpError, ToolError
from mcpearl.protocol.events import Notice
from mcpearl.protocol.lifecycle import Phase
from mcpearl.protocol.limits import Limits
from mcpearl.runtime.liveness import Keepalive
from mcpearl.transports.transport import Transport
from mcpearl.types.base import EmptyResult, Implementation, PaginatedResult, RequestParams, Result
from mcpearl.types.capabilities import ServerCapabilities
from mcpearl.types.completion import (
    CompleteRequestParams,
    CompleteResult,
    Completion,
    CompletionArgument,
    CompletionContext,
    PromptReference,
    ResourceTemplateReference,
)
from mcpearl.types.content import TextContent
from mcpearl.types.jsonrpc import HEADER_MISMATCH
from mcpearl.types.logging import (
    LoggingLevel,
    LoggingMessageNotificationParams,
    SetLevelRequestParams,
)
from mcpearl.types.prompts import (
    GetPromptRequestParams,
    GetPromptResult,
    ListPromptsResult,
    Prompt,
)
from mcpearl.types.resources import (
    ListResourcesResult,
    ListResourceTemplatesResult,
    ReadResourceRequestParams,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    SubscribeRequestParams,
    UnsubscribeRequestParams,
)
from mcpearl.types.subscriptions import SubscriptionFilter
from mcpearl.types.tools import CallToolRequestParams, CallToolResult, ListToolsResult, Tool

if TYPE_CHECKING:
    from ssl import SSLContext

    from mcpearl.net.tls import Tls

logger = logging.getLogger("mcpearl.client")
P = TypeVar("P", bound=PaginatedResult)


class Client:
    """A connection to one MCP server, of either era.

    >>> async with Client("server.py") as client:
    ...     result = await client.call_tool("add", {"a": 1, "b": 2})

    The target is a `Server` (in memory), the path of a `.py` or `.js` file, a command as a list, a
    host's configuration (`{"command": …, "args": …, "env": …}`), a URL, or a transport.
    `auth` says how to get into a server at a URL: `"oauth"` to log in with the browser, or one of
    the ways in `mcpearl.auth`.
    """

    def __init__(
        self,
        target: Any,
        *,
        sampling: SamplingCallback | None = None,
        elicitation: ElicitationCallback | None = None,
        roots: Roots | None = None,
        on_log: Callable[[LoggingMessageNotificationParams], Any] | None = None,
        on_progress: ProgressCallback | None = None,
        on_notification: Callable[[Notice], Any] | None = None,
        on_state: StateCallback | None = None,
        protocol: str = "auto",
        timeout: float = 60.0,
        max_timeout: float = 600.0,
        connect_timeout: float = 10.0,
        callback_timeout: float = 300.0,
        reconnect: bool | Reconnect | None = None,
        keepalive: Keepalive | None = Keepalive(),  # noqa: B008 (it cannot be changed)
        max_rounds: int = 16,
        log_level: LoggingLevel | None = None,
        validate_output: bool = True,
        cache: ResponseCache | None = None,
        limits: Limits | None = None,
        info: Implementation | None = None,
        env: Mapping[str, str] | None = None,
        inherit_env: bool = False,
        cwd: str | Path | None = None,
        on_stderr: Callable[[str], None] | None = None,
        headers: Mapping[str, str] | None = None,
        tls: "Tls | SSLContext | None" = None,
        framing: str = "newline",
        proxy: str | None = None,
        http2: bool | None = None,
        auth: Any = None,
    ) -> None:
        options = ReachOptions(
            env,
            inherit_env,
            cwd,
            on_stderr,
            headers,
            tls,
            framing,
            proxy,
            http2,
            keepalive,
            auth,
        )
        self._route = find_route(target, options)
        known_as = self._route.identity if self._route.restartable else None
        self._handshake = Handshake(known_as, protocol, connect_timeout, log_level)
        self._callbacks = Callbacks(sampling, elicitation, roots, callback_timeout)
        self._on_log = on_log
        self._on_notification = on_notification
        self._timeout = timeout
        self._log_level = log_level
        self._limits = limits or Limits()
        self._info = info or Implementation(name="mcpearl", version=__version__)
        self._kept = CacheView(ResponseCache() if cache is None else cache, self._route.identity)
        self._tools = KnownTools()
        self._validates = validate_output
        self._learning = asyncio.Lock()  # held by the one call that lists the tools
        self._link = Link(
            self._route,
            self._handshake,
            self._limits,
            _policy(reconnect, self._route),
            keepalive,
            begin=self._begin,
            restore=self._restore,
            given_up=lambda lost: self._following.end(lost),
            on_state=on_state,
        )
        self._following = Subscriptions(self._link, timeout)
        self._asking = Requests(
            self._link,
            self._callbacks,
            self._tools,
            self._learn,
            timeout=timeout,
            max_timeout=max_timeout,
            max_rounds=max_rounds,
            on_progress=on_progress,
        )

    # Connecting

    async def connect(self) -> None:
        """Reach the server and agree on a version. `async with` does this and `close`."""
        self._learning = asyncio.Lock()
        await self._link.connect()

    def _begin(self, transport: Transport) -> ClientConnection:
        end = ClientEnd(self._info, self._callbacks.capabilities(), self._limits)
        return ClientConnection(transport, end, self._callbacks, self._noticed, self._link.lost)

    async def _restore(self, connection: ClientConnection) -> None:
        """Make a new connection what the last one was, and forget what may have changed since."""
        if self._link.healing:
            self._kept.clear()
            self._tools.doubt()
        level = self._log_level
        is_legacy = not connection.end.version.modern
        if level is not None and is_legacy and "logging" in self._link.offered:
            params = SetLevelRequestParams(level=level)
            await connection.request("logging/setLevel", params, EmptyResult, timeout=self._timeout)
        await self._following.restore(connection)

    async def close(self) -> None:
        """End the connection, or the search for one, and everything that belongs to it. Idempotent."""
        self._following.end(ConnectionLost("the client was closed"))
        try:
            await self._link.close()
        finally:
            self._callbacks.close()

    async def __aenter__(self) -> "Client":
        await self.connect()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<Client of {self._route.name}, {self.state}>"

    @property
    def state(self) -> Phase:
        """Where the client stands: `ready`, or `failed` while it is trying to reconnect; see `Phase`."""
        return self._link.phase

    # Who is there

    @property
    def server_info(self) -> Implementation | None:
        """Who the server says it is."""
        return self._link.introduced().server_info

    @property
    def server_capabilities(self) -> ServerCapabilities:
        """What the server says it can do."""
        return self._link.introduced().capabilities

    @property
    def instructions(self) -> str | None:
        """How the server says a model should use it."""
        return self._link.introduced().instructions

    @property
    def protocol_version(self) -> str:
        """The version spoken on this connection, or the last one while there is none."""
        return self._link.introduced().version.name

    @property
    def era(self) -> Literal["legacy", "modern"]:
        """Whether there is a session (`legacy`) or each request stands for itself (`modern`)."""
        return self._link.introduced().version.era

    # Tools

    async def list_tools(self, cursor: str | None = None) -> ListToolsResult:
        """Get one page of the tools."""
        result = await self._page("tools/list", cursor, ListToolsResult)
        connection = self._link.connection
        if connection is not None:  # over HTTP, some parameters travel as headers too
            callable_tools = connection.learn_tools(result.tools)
            if callable_tools is not result.tools:
                result = replace(result, tools=callable_tools)
        self._tools.learn(result.tools)
        return result

    async def _page(self, method: str, cursor: str | None, kind: type[P]) -> P:
        self._asking.need(method)
        return await get_page(self._asking, self._kept, method, cursor, kind)

    def tools(self) -> AsyncIterator[Tool]:
        """Walk over all tools, page by page."""
        return walk(self.list_tools, lambda page: page.tools)

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | msgspec.Struct | None = None,
        *,
        timeout: float | None = None,
        on_progress: ProgressCallback | None = None,
        meta: dict[str, Any] | None = None,
        raise_on_error: bool = False,
    ) -> CallToolResult:
        """Call a tool. A tool that failed gives `is_error`; with `raise_on_error`, a `ToolError`."""
        encoded = UNSET if arguments is None else msgspec.Raw(msgspec.json.encode(arguments))
        params = CallToolRequestParams(name=name, arguments=encoded)
        try:
            result = await self._asking.ask_in_rounds(
                "tools/call", params, CallToolResult, timeout, on_progress, meta
            )
        except McpError as error:
            if error.code != HEADER_MISMATCH:
                raise
            self._kept.clear("tools/list")  # the tool wants other headers than it did
            await self._list_all_tools()
            result = await self._asking.ask_in_rounds(
                "tools/call", params, CallToolResult, timeout, on_progress, meta
            )
        if result.is_error:
            if raise_on_error:
                raise ToolError(_text_of(result) or f"tool `{name}` failed")
        elif self._validates:
            if not self._tools.knows(name):
                await self._learn(name)
            self._tools.check(name, result)
        return result

    async def _learn(self, name: str) -> None:
        """List the tools for what they promise. A list that fails costs the check, not the call."""
        async with self._learning:
            if self._tools.knows(name):
                return  # another call has asked meanwhile
            try:
                await self._link.while_up(self._list_all_tools())
            except McpearlError as error:
                logger.warning("nothing is known of tool %s: %s", name, error)
            self._tools.settle(name)

    async def _list_all_tools(self) -> None:
        async for _ in self.tools():  # `list_tools` learns what it sees
            pass

    # Resources

    async def list_resources(self, cursor: str | None = None) -> ListResourcesResult:
        """Get one page of the resources."""
        return await self._page("resources/list", cursor, ListResourcesResult)

    def resources(self) -> AsyncIterator[Resource]:
        """Walk over all resources, page by page."""
        return walk(self.list_resources, lambda page: page.resources)

    async def list_resource_templates(
        self, cursor: str | None = None
    ) -> ListResourceTemplatesResult:
        """Get one page of the resource templates."""
        return await self._page("resources/templates/list", cursor, ListResourceTemplatesResult)

    def resource_templates(self) -> AsyncIterator[ResourceTemplate]:
        """Walk over all resource templates, page by page."""
        return walk(self.list_resource_templates, lambda page: page.resource_templates)

    async def read_resource(
        self,
        uri: str,
        *,
        timeout: float | None = None,
        on_progress: ProgressCallback | None = None,
        meta: dict[str, Any] | None = None,
    ) -> ReadResourceResult:
        """Read a resource."""
        self._asking.need("resources/read")
        kept = self._kept.get("resources/read", uri, ReadResourceResult)
        if kept is not None:
            return kept
        asked_at = self._kept.changes
        rounds: list[int] = []
        result = await self._asking.ask_in_rounds(
            "resources/read",
            ReadResourceRequestParams(uri=uri),
            ReadResourceResult,
            timeout,
            on_progress,
            meta,
            rounds,
        )
        if not rounds:  # what depends on a person's answers is nobody else's
            self._kept.put("resources/read", uri, result, asked_at)
        return result

    async def subscribe(self, uri: str) -> None:
        """Ask to be told when a resource changes: `on_notification` gets it, caches drop it."""
        self._asking.need("resources/subscribe")
        if self.era == "legacy":
            params = SubscribeRequestParams(uri=uri)
            await self._asking.ask("resources/subscribe", params, EmptyResult)
            self._following.add(uri)
        else:
            await self._following.follow(uri)

    async def unsubscribe(self, uri: str) -> None:
        """No longer be told."""
        self._following.remove(uri)
        if self.era == "legacy":
            params = UnsubscribeRequestParams(uri=uri)
            await self._asking.ask("resources/unsubscribe", params, EmptyResult)

    def listen(
        self,
        *,
        tools: bool = False,
        prompts: bool = False,
        resource_list: bool = False,
        resources: list[str] | None = None,
    ) -> Subscription:
        """Follow changes on a modern server, as a stream; see `Subscription`."""
        if self.era == "legacy":
            raise not_modern(self.protocol_version)
        wanted = SubscriptionFilter(
            tools_list_changed=tools or None,
            prompts_list_changed=prompts or None,
            resources_list_changed=resource_list or None,
            resource_subscriptions=resources,
        )
        return self._following.stream(wanted)

    # Prompts and completion

    async def list_prompts(self, cursor: str | None = None) -> ListPromptsResult:
        """Get one page of the prompts."""
        return await self._page("prompts/list", cursor, ListPromptsResult)

    def prompts(self) -> AsyncIterator[Prompt]:
        """Walk over all prompts, page by page."""
        return walk(self.list_prompts, lambda page: page.prompts)

    async def get_prompt(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        on_progress: ProgressCallback | None = None,
        meta: dict[str, Any] | None = None,
    ) -> GetPromptResult:
        """Get a prompt with its arguments filled in; values that are no text are sent as JSON."""
        texts = {key: _as_text(value) for key, value in (arguments or {}).items()}
        params = GetPromptRequestParams(name=name, arguments=texts or None)
        return await self._asking.ask_in_rounds(
            "prompts/get", params, GetPromptResult, timeout, on_progress, meta
        )

    async def complete(
        self,
        reference: str | PromptReference | ResourceTemplateReference,
        argument: str,
        value: str,
        context: Mapping[str, str] | None = None,
    ) -> Completion:
        """Get suggestions for an argument of a prompt (by name) or a template (by its URI)."""
        if isinstance(reference, str):
            reference = (
                ResourceTemplateReference(uri=reference)
                if "://" in reference
                else PromptReference(name=reference)
            )
        params = CompleteRequestParams(
            ref=reference,
            argument=CompletionArgument(name=argument, value=value),
            context=CompletionContext(arguments=dict(context)) if context else None,
        )
        return (await self._asking.ask("completion/complete", params, CompleteResult)).completion

    # The conversation itself

    async def ping(self, timeout: float | None = None) -> None:
        """Ask whether the server is there. Modern servers have no ping; they are asked to discover."""
        method = "ping" if self.era == "legacy" else "server/discover"
        await self._asking.ask(method, RequestParams(), Result, timeout)

    async def set_log_level(self, level: LoggingLevel) -> None:
        """Choose which log messages to get: of the session, or of each request from now on."""
        if self.era == "legacy":
            await self._asking.ask(
                "logging/setLevel", SetLevelRequestParams(level=level), EmptyResult
            )
        elif self._link.connection is not None:
            end = self._link.connection.end
            end.speak_modern(end.version, level)
        self._log_level = self._handshake.log_level = level

    def notify_roots_changed(self) -> None:
        """Tell a legacy server that the roots changed; a modern one asks when it needs them."""
        if self.era == "legacy" and self._link.connection is not None:  # a new session asks anyway
            self._link.connection.notify("notifications/roots/list_changed")

    # Being told

    def _noticed(self, notice: Notice) -> Told | None:
        """Act on a notification at once; give the callback that shall hear of it in its turn."""
        params = notice.params
        self._kept.changed(notice.method, getattr(params, "uri", None))
        if notice.method == "notifications/tools/list_changed":
            self._tools.forget()
        if notice.method == "notifications/message" and self._on_log is not None:
            return self._on_log, params
        if self._on_notification is not None:
            return self._on_notification, notice
        return None


def _policy(reconnect: bool | Reconnect | None, route: Target) -> Reconnect | None:
    if reconnect is None:
        reconnect = route.restartable
    elif reconnect and not route.reopens:
        raise ValueError(
            f"{route.name} can be opened once only, so there is no reconnecting; "
            "give a command, a file or an address instead"
        )
    if isinstance(reconnect, Reconnect):
        return reconnect
    return Reconnect() if reconnect else None


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _text_of(result: CallToolResult) -> str:
    return "\n".join(block.text for block in result.content if isinstance(block, TextContent))
