"""The client people write with: connect to any server, call it, and be called back."""

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

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
from mcpearl.client.handshake import Handshake, Introduction
from mcpearl.client.outputs import OutputChecks
from mcpearl.client.subscriptions import Subscription, not_modern
from mcpearl.client.targets import ReachOptions, find_route
from mcpearl.protocol.capabilities import SERVER_NEEDS
from mcpearl.protocol.client_end import ClientEnd
from mcpearl.protocol.errors import (
    CapabilityMissing,
    ConnectionLost,
    InvalidResult,
    McpearlError,
    McpError,
    ToolError,
)
from mcpearl.protocol.events import Notice
from mcpearl.protocol.limits import Limits
from mcpearl.protocol.offer import paths_of
from mcpearl.transports.memory import memory_pair
from mcpearl.types.base import (
    CacheableResult,
    EmptyResult,
    Implementation,
    InputResponseRequestParams,
    PaginatedRequestParams,
    PaginatedResult,
    RequestParams,
    Result,
    to_builtins,
)
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
from mcpearl.types.input_required import InputRequiredResult
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

    from mcpearl.transports.tls import Tls

logger = logging.getLogger("mcpearl.client")

R = TypeVar("R", bound=Result)
C = TypeVar("C", bound=CacheableResult)
P = TypeVar("P", bound=PaginatedResult)
T = TypeVar("T")
MAX_PAGES = 10_000


class Client:
    """A connection to one MCP server, of either era.

    >>> async with Client("server.py") as client:
    ...     result = await client.call_tool("add", {"a": 1, "b": 2})

    The target is a `Server` (in memory), the path of a `.py` or `.js` file, a command as a list, a
    host's configuration (`{"command": …, "args": …, "env": …}`), or a transport.
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
        protocol: str = "auto",
        timeout: float = 60.0,
        max_timeout: float = 600.0,
        connect_timeout: float = 10.0,
        callback_timeout: float = 300.0,
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
    ) -> None:
        options = ReachOptions(
            env, inherit_env, cwd, on_stderr, headers, tls, framing, proxy, http2
        )
        self._route = find_route(target, options)
        known_as = self._route.identity if self._route.restartable else None
        self._handshake = Handshake(known_as, protocol, connect_timeout, log_level)
        self._callbacks = Callbacks(sampling, elicitation, roots, callback_timeout)
        self._on_log = on_log
        self._on_progress = on_progress
        self._on_notification = on_notification
        self._timeout = timeout
        self._max_timeout = max_timeout
        self._max_rounds = max_rounds
        self._log_level = log_level
        self._limits = limits or Limits()
        self._info = info or Implementation(name="mcpearl", version=__version__)
        self._cache = cache if cache is not None else ResponseCache()
        self._owner = uuid.uuid4().hex  # whose private results are whose, in a shared cache
        self._outputs = OutputChecks() if validate_output else None
        self._learning: asyncio.Lock | None = None  # held by the one call that lists the tools
        self._connection: ClientConnection | None = None
        self._introduction: Introduction | None = None
        self._offered: frozenset[str] = frozenset()
        self._stack: AsyncExitStack | None = None
        self._followed: dict[str, Subscription] = {}  # modern subscriptions by URI

    # Connecting

    async def connect(self) -> None:
        """Reach the server and agree on a version. `async with` does this and `close`."""
        if self._stack is not None:
            raise RuntimeError(f"the client of {self._route.name} is connected already")
        self._stack = stack = AsyncExitStack()
        try:
            try:
                await self._open(stack)
            except ConnectionLost:
                if not (self._route.restartable and self._handshake.ended_by_probe):
                    raise
                await stack.aclose()
                await self._open(stack)
        except BaseException:
            self._connection = None
            try:
                await stack.aclose()
            finally:
                self._stack = None
            raise

    async def _open(self, stack: AsyncExitStack) -> None:
        end = ClientEnd(self._info, self._callbacks.capabilities(), self._limits)
        server = self._route.server
        if server is not None:
            await stack.enter_async_context(server.running())
            transport, other = memory_pair()
            await server.connect(other)
        else:
            assert self._route.transport is not None
            transport = self._route.transport(self._limits)  # type: ignore[assignment]
        connection = ClientConnection(transport, end, self._callbacks, self._noticed)
        stack.push_async_callback(connection.close)
        await transport.open(connection)
        self._introduction = await self._handshake.perform(connection)
        self._offered = paths_of(self._introduction.capabilities)
        self._connection = connection
        self._learning = asyncio.Lock()
        if self._log_level is not None and self.era == "legacy" and "logging" in self._offered:
            await self.set_log_level(self._log_level)

    async def close(self) -> None:
        """End the connection and everything it holds. Idempotent."""
        stack = self._stack
        if stack is None or self._connection is None:
            return
        for subscription in self._followed.values():
            subscription.close()
        self._followed.clear()
        self._connection = None
        try:
            await stack.aclose()
        finally:
            self._stack = None
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
        state = "connected" if self._connection is not None else "not connected"
        return f"<Client of {self._route.name}, {state}>"

    # Who is there

    @property
    def server_info(self) -> Implementation | None:
        """Who the server says it is."""
        return self._introduced().server_info

    @property
    def server_capabilities(self) -> ServerCapabilities:
        """What the server says it can do."""
        return self._introduced().capabilities

    @property
    def instructions(self) -> str | None:
        """How the server says a model should use it."""
        return self._introduced().instructions

    @property
    def protocol_version(self) -> str:
        """The version spoken on this connection."""
        return self._live().end.version.name

    @property
    def era(self) -> Literal["legacy", "modern"]:
        """Whether there is a session (`legacy`) or each request stands for itself (`modern`)."""
        return self._live().end.version.era

    def _introduced(self) -> Introduction:
        self._live()
        assert self._introduction is not None
        return self._introduction

    def _live(self) -> ClientConnection:
        if self._connection is None:
            raise McpearlError(
                f"the client of {self._route.name} is not connected; "
                "use `async with Client(…) as client:`"
            )
        return self._connection

    # Tools

    async def list_tools(self, cursor: str | None = None) -> ListToolsResult:
        """Get one page of the tools."""
        result = await self._page("tools/list", cursor, ListToolsResult)
        learn = getattr(self._live().transport, "learn_tools", None)
        if learn is not None:  # some parameters travel as headers too
            result = replace(result, tools=learn(result.tools))
        if self._outputs is not None:
            self._outputs.learn(result.tools)
        return result

    def tools(self) -> AsyncIterator[Tool]:
        """Walk over all tools, page by page."""
        return _walk(self.list_tools, lambda page: page.tools)

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
            result = await self._ask_in_rounds(
                "tools/call", params, CallToolResult, timeout, on_progress, meta
            )
        except McpError as error:
            if error.code != HEADER_MISMATCH:
                raise
            self._cache.clear("tools/list")  # the tool wants other headers than it did
            async for _ in self.tools():
                pass
            result = await self._ask_in_rounds(
                "tools/call", params, CallToolResult, timeout, on_progress, meta
            )
        if result.is_error:
            if raise_on_error:
                raise ToolError(_text_of(result) or f"tool `{name}` failed")
        elif self._outputs is not None:
            if not self._outputs.knows(name):
                await self._learn_outputs(self._outputs, name)
            self._outputs.check(name, result)
        return result

    async def _learn_outputs(self, outputs: OutputChecks, name: str) -> None:
        """List the tools for what they promise. A list that fails costs the check, not the call."""
        assert self._learning is not None
        async with self._learning:
            if outputs.knows(name):
                return  # another call has asked meanwhile
            try:
                async for _ in self.tools():  # `list_tools` learns what it sees
                    pass
            except McpearlError as error:
                logger.warning("the result of tool %s is not checked: %s", name, error)
            outputs.settle(name)

    # Resources

    async def list_resources(self, cursor: str | None = None) -> ListResourcesResult:
        """Get one page of the resources."""
        return await self._page("resources/list", cursor, ListResourcesResult)

    def resources(self) -> AsyncIterator[Resource]:
        """Walk over all resources, page by page."""
        return _walk(self.list_resources, lambda page: page.resources)

    async def list_resource_templates(
        self, cursor: str | None = None
    ) -> ListResourceTemplatesResult:
        """Get one page of the resource templates."""
        return await self._page("resources/templates/list", cursor, ListResourceTemplatesResult)

    def resource_templates(self) -> AsyncIterator[ResourceTemplate]:
        """Walk over all resource templates, page by page."""
        return _walk(self.list_resource_templates, lambda page: page.resource_templates)

    async def read_resource(
        self,
        uri: str,
        *,
        timeout: float | None = None,
        on_progress: ProgressCallback | None = None,
        meta: dict[str, Any] | None = None,
    ) -> ReadResourceResult:
        """Read a resource."""
        self._need("resources/read")
        kept = self._kept("resources/read", uri, ReadResourceResult)
        if kept is not None:
            return kept
        asked_at = self._cache.changes
        rounds: list[int] = []
        result = await self._ask_in_rounds(
            "resources/read",
            ReadResourceRequestParams(uri=uri),
            ReadResourceResult,
            timeout,
            on_progress,
            meta,
            rounds,
        )
        if not rounds:  # what depends on a person's answers is nobody else's
            self._keep("resources/read", uri, result, asked_at)
        return result

    async def subscribe(self, uri: str) -> None:
        """Ask to be told when a resource changes: `on_notification` gets it, caches drop it."""
        self._need("resources/subscribe")
        if self.era == "legacy":
            params = SubscribeRequestParams(uri=uri)
            await self._ask("resources/subscribe", params, EmptyResult)
            return
        before = self._followed.get(uri)
        if before is not None and not before.ended:
            return
        wanted = SubscriptionFilter(resource_subscriptions=[uri])
        subscription = Subscription(self._live(), wanted, self._timeout, kept=False)
        self._followed[uri] = subscription
        try:
            await subscription.open()
        except BaseException:
            if self._followed.get(uri) is subscription:
                del self._followed[uri]
            raise

    async def unsubscribe(self, uri: str) -> None:
        """No longer be told."""
        if self.era == "legacy":
            params = UnsubscribeRequestParams(uri=uri)
            await self._ask("resources/unsubscribe", params, EmptyResult)
        else:
            subscription = self._followed.pop(uri, None)
            if subscription is not None:
                subscription.close()

    def listen(
        self,
        *,
        tools: bool = False,
        prompts: bool = False,
        resource_list: bool = False,
        resources: list[str] | None = None,
    ) -> Subscription:
        """Follow changes on a modern server, as a stream; see `Subscription`."""
        connection = self._live()
        if self.era == "legacy":
            raise not_modern(self.protocol_version)
        wanted = SubscriptionFilter(
            tools_list_changed=tools or None,
            prompts_list_changed=prompts or None,
            resources_list_changed=resource_list or None,
            resource_subscriptions=resources,
        )
        return Subscription(connection, wanted, self._timeout)

    # Prompts and completion

    async def list_prompts(self, cursor: str | None = None) -> ListPromptsResult:
        """Get one page of the prompts."""
        return await self._page("prompts/list", cursor, ListPromptsResult)

    def prompts(self) -> AsyncIterator[Prompt]:
        """Walk over all prompts, page by page."""
        return _walk(self.list_prompts, lambda page: page.prompts)

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
        return await self._ask_in_rounds(
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
        return (await self._ask("completion/complete", params, CompleteResult)).completion

    # The conversation itself

    async def ping(self, timeout: float | None = None) -> None:
        """Ask whether the server is there. Modern servers have no ping; they are asked to discover."""
        if self.era == "legacy":
            await self._ask("ping", RequestParams(), EmptyResult, timeout)
        else:
            await self._live().request(
                "server/discover",
                RequestParams(),
                Result,
                timeout=self._timeout if timeout is None else timeout,
            )

    async def set_log_level(self, level: LoggingLevel) -> None:
        """Choose which log messages to get: of the session, or of each request from now on."""
        if self.era == "legacy":
            await self._ask("logging/setLevel", SetLevelRequestParams(level=level), EmptyResult)
        else:
            end = self._live().end
            end.speak_modern(end.version, level)
        self._log_level = level

    def notify_roots_changed(self) -> None:
        """Tell a legacy server that the roots changed; a modern one asks when it needs them."""
        if self.era == "legacy":
            self._live().notify("notifications/roots/list_changed")

    # Asking

    async def _ask(
        self, method: str, params: msgspec.Struct, kind: type[R], timeout: float | None = None
    ) -> R:
        self._need(method)
        result = await self._live().request(
            method,
            params,
            kind,
            timeout=self._timeout if timeout is None else timeout,
            max_timeout=self._max_timeout,
        )
        if isinstance(result, InputRequiredResult):
            raise InvalidResult(f"`{method}` was answered `input_required`, which it may not be")
        return result

    async def _ask_in_rounds(
        self,
        method: str,
        params: InputResponseRequestParams,
        kind: type[R],
        timeout: float | None,
        on_progress: ProgressCallback | None,
        meta: dict[str, Any] | None,
        rounds: list[int] | None = None,
    ) -> R:
        """Ask, and answer the server's questions, until there is a result."""
        self._need(method)
        connection = self._live()
        timeout = self._timeout if timeout is None else timeout
        max_timeout = self._max_timeout if timeout <= self._max_timeout else timeout
        for number in range(self._max_rounds + 1):
            result = await connection.request(
                method,
                params,
                kind,
                timeout=timeout,
                max_timeout=max_timeout,
                on_progress=on_progress or self._on_progress,
                meta=meta,
            )
            if not isinstance(result, InputRequiredResult):
                return result
            if number == self._max_rounds:
                break  # nobody is asked what would never be sent
            if rounds is not None:
                rounds.append(number)
            if not result.input_requests:
                await asyncio.sleep(min(0.05 * 2**number, 5.0))  # asked to come again, not to spin
            params = replace(
                params,
                input_responses=await self._answers(result),
                request_state=result.request_state,
            )
        raise InvalidResult(
            f"`{method}` wanted input {self._max_rounds + 1} times; the limit is `max_rounds`"
        )

    async def _answers(self, asked: InputRequiredResult) -> dict[str, dict[str, Any]] | None:
        requests = asked.input_requests
        if requests is None:
            return None
        work = {
            key: asyncio.ensure_future(
                self._callbacks.answer(
                    str(request.__struct_config__.tag), request.params or RequestParams()
                )
            )
            for key, request in requests.items()
        }
        try:
            await asyncio.gather(*work.values())
        finally:
            for task in work.values():
                task.cancel()  # when one fails, the others ask for nothing any more
        return {key: to_builtins(task.result()) for key, task in work.items()}

    async def _page(self, method: str, cursor: str | None, kind: type[P]) -> P:
        self._need(method)
        asked = "" if cursor is None else f"cursor:{cursor}"
        kept = self._kept(method, asked, kind)
        if kept is not None:
            return kept
        asked_at = self._cache.changes
        try:
            result = await self._ask(method, PaginatedRequestParams(cursor=cursor), kind)
        except McpError:
            if cursor is not None:
                # The list behind the cursor is no longer the same.
                self._cache.clear(method, self._route.identity)
            raise
        self._keep(method, asked, result, asked_at)
        return result

    def _kept(self, method: str, asked: str, kind: type[C]) -> C | None:
        if not len(self._cache):
            return None
        server = self._route.identity
        return cast("C | None", self._cache.get(server, method, asked, self._owner))

    def _keep(self, method: str, asked: str, result: CacheableResult, asked_at: int) -> None:
        # What was told to be stale while it was on its way may be just that.
        if result.ttl_ms is not None and asked_at == self._cache.changes:
            self._cache.put(self._route.identity, method, asked, self._owner, result)

    def _need(self, method: str) -> None:
        """Refuse a method the server did not announce, before anything is sent."""
        version = self._live().end.version
        needed = SERVER_NEEDS.get(method)
        if needed is None or needed in self._offered:
            return
        if needed == "completions" and not version.announces_completions:
            return
        raise CapabilityMissing(
            f"the server did not announce the capability `{needed}`, which `{method}` needs"
        )

    # Being told

    def _noticed(self, notice: Notice) -> Told | None:
        """Act on a notification at once; give the callback that shall hear of it in its turn."""
        params = notice.params
        self._cache.changed(self._route.identity, notice.method, getattr(params, "uri", None))
        if notice.method == "notifications/tools/list_changed" and self._outputs is not None:
            self._outputs.forget()
        if notice.method == "notifications/message" and self._on_log is not None:
            return self._on_log, params
        if self._on_notification is not None:
            return self._on_notification, notice
        return None


async def _walk(
    list_page: Callable[[str | None], Awaitable[P]], items: Callable[[P], list[T]]
) -> AsyncIterator[T]:
    cursor: str | None = None
    seen: set[str] = set()
    for _ in range(MAX_PAGES):
        page = await list_page(cursor)
        for item in items(page):
            yield item
        if page.next_cursor is None:
            return
        cursor = page.next_cursor
        if cursor in seen:
            raise InvalidResult("the server gave the same cursor again; the list would never end")
        seen.add(cursor)
    raise InvalidResult(f"the list has more than {MAX_PAGES} pages")


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _text_of(result: CallToolResult) -> str:
    return "\n".join(block.text for block in result.content if isinstance(block, TextContent))
