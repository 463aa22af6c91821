"""The handler behind the decorators of `Server`: tools, resources and prompts, added at any time."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

from mcpearl import types
from mcpearl.protocol.errors import InsufficientScope, McpError, ResourceNotFound
from mcpearl.protocol.events import Caller, Encoded, Notice
from mcpearl.server.handler import Handler
from mcpearl.server.registry.late_tools import LateTool
from mcpearl.server.registry.normal_uri import normal_uri
from mcpearl.server.registry.pagination import Registered
from mcpearl.types.base import Result
from mcpearl.types.capabilities import (
    ListChangedCapability,
    ResourcesCapability,
    ServerCapabilities,
)
from mcpearl.types.jsonrpc import INVALID_PARAMS

if TYPE_CHECKING:
    from mcpearl.runtime.threads import ThreadPool
    from mcpearl.server.context import Context
    from mcpearl.server.registry.prompts import Completer, PromptEntry
    from mcpearl.server.registry.resources import ResourceEntry, TemplateEntry
    from mcpearl.server.registry.tools import ToolEntry
    from mcpearl.server.tasks.options import Tasks
    from mcpearl.transports.mirrored_headers import ParameterPath
    from mcpearl.types.pages import PaginatedResult

    PageT = TypeVar("PageT", bound=PaginatedResult)
    EntryT = TypeVar("EntryT", ToolEntry | LateTool, ResourceEntry, TemplateEntry, PromptEntry)

logger = logging.getLogger("mcpearl.server")
OnDuplicate = Literal["warn", "error", "replace", "ignore"]


class Registry(Handler):
    """The registered tools, resources and prompts; answers requests for them."""

    def __init__(
        self,
        scope: str,
        pool: ThreadPool,
        page_size: int,
        list_ttl_ms: int | None,
        on_duplicate: OnDuplicate,
        changed: Callable[[str], None],
    ) -> None:
        if on_duplicate not in get_args(OnDuplicate):
            known = ", ".join(f"{each!r}" for each in get_args(OnDuplicate))
            raise ValueError(f"`on_duplicate` is one of {known}, not {on_duplicate!r}")
        self._pool = pool
        self._list_ttl_ms = list_ttl_ms
        self._on_duplicate = on_duplicate
        self._changed = changed  # called with the kind of list that changed
        self.tools: Registered[ToolEntry | LateTool] = Registered("tools", scope, page_size)
        # By URI in its normal form: equivalent spellings are one resource.
        self.resources: Registered[ResourceEntry] = Registered("resources", scope, page_size)
        self.templates: Registered[TemplateEntry] = Registered(
            "resources/templates", scope, page_size
        )
        self.prompts: Registered[PromptEntry] = Registered("prompts", scope, page_size)
        self._completers: dict[tuple[str, str], Completer] = {}
        self._by_specificity: list[TemplateEntry] = []
        self.waits_for_use = True  # whether tools may be compiled when they are first needed
        self.scoped = False  # whether any entry has ever needed scopes
        self.tasked = False  # the server gets its extension with the first tool that can be a task
        self.tasks: dict[str, Tasks] = {}  # how tools run as tasks, of those that can
        self.mirrored: dict[str, dict[ParameterPath, str]] = {}
        self.at_once: set[str] = set()
        self.listeners: list[Callable[[Notice, Caller | None], None]] = []  # for notifications

    # Changes

    def add_tool(self, entry: ToolEntry | LateTool) -> None:
        """Add a tool."""
        name = entry.name
        if not self._may_add("tool", name, name in self.tools):
            return
        self.tools.add(name, entry)
        self.mirrored.pop(name, None)
        if entry.mirrored:
            self.mirrored[name] = entry.mirrored
        (self.at_once.add if entry.at_once else self.at_once.discard)(name)
        self.tasks.pop(name, None)
        if entry.tasks is not None:
            self.tasks[name] = entry.tasks
        self.scoped = self.scoped or bool(entry.scopes)
        self._changed("tools")

    def compile_tools(self) -> None:
        """Compile the tools that are not yet; from now on they are compiled when they are added."""
        self.waits_for_use = False
        for entry in self.tools.values():
            if isinstance(entry, LateTool):
                self.tools.replace(entry.name, entry, entry.compiled())

    def compiled_tool(self, name: str) -> ToolEntry | None:
        """Return a tool with its schemas; None when there is none of that name."""
        entry = self.tools.get(name)
        return entry.compiled() if isinstance(entry, LateTool) else entry

    def add_resource(self, entry: ResourceEntry) -> None:
        """Add a resource."""
        uri = normal_uri(entry.definition.uri)
        if not self._may_add("resource", entry.definition.uri, uri in self.resources):
            return
        self.resources.add(uri, entry)
        self.scoped = self.scoped or bool(entry.scopes)
        self._changed("resources")

    def add_template(self, entry: TemplateEntry) -> None:
        """Add a resource template."""
        uri = entry.definition.uri_template
        if not self._may_add("resource template", uri, uri in self.templates):
            return
        self.templates.add(uri, entry)
        self._order_templates()
        self.scoped = self.scoped or bool(entry.scopes)
        self._changed("resources")

    def add_prompt(self, entry: PromptEntry) -> None:
        """Add a prompt."""
        name = entry.definition.name
        if not self._may_add("prompt", name, name in self.prompts):
            return
        self.prompts.add(name, entry)
        self.scoped = self.scoped or bool(entry.scopes)
        self._changed("prompts")

    def add_completer(self, reference: str, argument: str, completer: Completer) -> None:
        """Register `completer` for an argument of a prompt or template."""
        taken = (reference, argument) in self._completers
        if not self._may_add("completion", f"{reference}, {argument}", taken):
            return
        self._completers[reference, argument] = completer
        self._changed("completions")

    def _may_add(self, kind: str, name: str, taken: bool) -> bool:
        """Decide by `on_duplicate` what happens to a second entry with the same name."""
        if not taken or self._on_duplicate == "replace":
            return True
        said = f"{kind} `{name}` is registered already"
        if self._on_duplicate == "error":
            raise ValueError(
                f"{said}; choose another name, remove the first one, or set `on_duplicate`"
            )
        if self._on_duplicate == "ignore":
            return False
        logger.warning(
            "%s, and the new one takes its place; `Server(on_duplicate=…)` decides about this", said
        )
        return True

    def remove_tool(self, name: str) -> bool:
        """Remove a tool. Return whether there was one."""
        self.mirrored.pop(name, None)
        self.at_once.discard(name)
        self.tasks.pop(name, None)
        return self._removed("tools", self.tools.remove(name))

    def remove_resource(self, uri: str) -> bool:
        """Remove a resource or resource template. Return whether there was one."""
        removed = self.resources.remove(normal_uri(uri))
        if self.templates.remove(uri):
            self._order_templates()
            removed = True
        return self._removed("resources", removed)

    def remove_prompt(self, name: str) -> bool:
        """Remove a prompt. Return whether there was one."""
        return self._removed("prompts", self.prompts.remove(name))

    def _removed(self, kind: str, removed: bool) -> bool:
        if removed:
            self._changed(kind)
        return removed

    def _order_templates(self) -> None:
        self._by_specificity = sorted(
            self.templates.values(), key=lambda entry: entry.template.specificity
        )

    def capabilities(self) -> ServerCapabilities:
        """Return the capabilities that follow from the registered entries.

        They are never withdrawn: a list that has become empty can still be requested.
        """
        changed = ListChangedCapability(list_changed=True)
        resources = ResourcesCapability(list_changed=True, subscribe=True)
        return ServerCapabilities(
            tools=changed if self.tools.ever_used else None,
            prompts=changed if self.prompts.ever_used else None,
            resources=resources if self.resources.ever_used or self.templates.ever_used else None,
            completions={} if self._completers else None,
            logging={},
        )

    # Requests

    async def list_tools(self, cursor: str | None, ctx: Context) -> types.ListToolsResult:
        """Return a page of the tools."""
        if self.waits_for_use:
            self.compile_tools()
        entries, following = self._page(self.tools, cursor, ctx)
        tools = [entry.definition for entry in entries]
        return self._cached(types.ListToolsResult(tools=tools, next_cursor=following))

    def call_tool(  # type: ignore[override]
        self, params: types.CallToolRequestParams, ctx: Context
    ) -> Coroutine[Any, Any, Result | Encoded]:
        """Run a tool."""
        entry = self.tools.get(params.name)
        if entry is None:
            raise unknown_tool(params.name)
        if entry.scopes:
            _require("Tool", params.name, entry.scopes, ctx)
        return entry.call(params.arguments, ctx)

    def has(self, method: str, name: str) -> bool:
        """Whether there is a tool (`tools/call`) or a prompt (`prompts/get`) of this name."""
        return name in (self.tools if method == "tools/call" else self.prompts)

    async def list_resources(self, cursor: str | None, ctx: Context) -> types.ListResourcesResult:
        """Return a page of the fixed resources."""
        entries, following = self._page(self.resources, cursor, ctx)
        resources = [entry.definition for entry in entries]
        return self._cached(types.ListResourcesResult(resources=resources, next_cursor=following))

    async def list_resource_templates(
        self, cursor: str | None, ctx: Context
    ) -> types.ListResourceTemplatesResult:
        """Return a page of the templates."""
        entries, following = self._page(self.templates, cursor, ctx)
        templates = [entry.definition for entry in entries]
        return self._cached(
            types.ListResourceTemplatesResult(resource_templates=templates, next_cursor=following)
        )

    async def read_resource(self, uri: str, ctx: Context) -> Result:
        """Read a fixed resource, or one of the most specific template that matches the URI."""
        entry, variables = self._route(uri)
        if entry is None:
            raise ResourceNotFound(uri)
        _require("Resource", uri, entry.scopes, ctx)
        return await entry.read(uri, variables, ctx)

    async def subscribe(self, uri: str, ctx: Context) -> None:
        """Accept a subscription to any resource that could be read."""
        entry, _ = self._route(uri)
        if entry is None:
            raise ResourceNotFound(uri)
        _require("Resource", uri, entry.scopes, ctx)

    def _route(self, uri: str) -> tuple[ResourceEntry | TemplateEntry | None, dict[str, Any]]:
        """Find what answers a read of this URI, and the variables in it."""
        uri = normal_uri(uri)
        entry, variables = self._most_specific(uri)
        if entry is not None and entry.template is not None:
            # The values that the handler gets must not name another resource.
            meant = normal_uri(entry.template.expand(variables))
            if meant != uri and self._most_specific(meant)[0] is not entry:
                return None, {}
        return entry, variables

    def _most_specific(
        self, uri: str
    ) -> tuple[ResourceEntry | TemplateEntry | None, dict[str, Any]]:
        fixed = self.resources.get(uri)
        if fixed is not None:
            return fixed, {}
        for entry in self._by_specificity:
            variables = entry.template.match(uri)
            if variables is not None:
                return entry, variables
        return None, {}

    async def list_prompts(self, cursor: str | None, ctx: Context) -> types.ListPromptsResult:
        """Return a page of the prompts."""
        entries, following = self._page(self.prompts, cursor, ctx)
        prompts = [entry.definition for entry in entries]
        return self._cached(types.ListPromptsResult(prompts=prompts, next_cursor=following))

    async def get_prompt(self, name: str, arguments: dict[str, str], ctx: Context) -> Result:
        """Return the messages of a prompt."""
        entry = self.prompts.get(name)
        if entry is None:
            raise _unknown_prompt(name)
        _require("Prompt", name, entry.scopes, ctx)
        return await entry.get(arguments, ctx)

    async def complete(
        self, params: types.CompleteRequestParams, ctx: Context
    ) -> types.CompleteResult:
        """Return suggestions for an argument; none if there is no completer."""
        reference = params.ref
        if isinstance(reference, types.PromptReference):
            prompt = self.prompts.get(reference.name)
            if prompt is None:
                raise _unknown_prompt(reference.name)
            key = reference.name
            _require("Prompt", key, prompt.scopes, ctx)
        else:
            resource = self.templates.get(reference.uri) or self.resources.get(
                normal_uri(reference.uri)
            )
            if resource is None:
                raise ResourceNotFound(reference.uri)
            key = reference.uri
            _require("Resource", key, resource.scopes, ctx)
        completer = self._completers.get((key, params.argument.name))
        if completer is None:
            return types.CompleteResult(
                completion=types.Completion(values=[], total=0, has_more=False)
            )
        from mcpearl.server.registry.prompts import run_completer

        return await run_completer(completer, params, self._pool, ctx)

    # Scopes

    def scopes_of(self, method: str, name: str) -> frozenset[str]:
        """Return the scopes needed for what a request names; empty if it does not exist."""
        entry: ToolEntry | LateTool | PromptEntry | ResourceEntry | TemplateEntry | None = None
        match method:
            case "tools/call":
                entry = self.tools.get(name)
            case "prompts/get":
                entry = self.prompts.get(name)
            case "resources/read" | "resources/subscribe":
                entry, _ = self._route(name)
        return frozenset() if entry is None else entry.scopes

    def all_scopes(self) -> frozenset[str]:
        """Return all scopes that any entry needs."""
        listings = (self.tools, self.resources, self.templates, self.prompts)
        return frozenset().union(*(entry.scopes for each in listings for entry in each.values()))

    def tool(self, name: str) -> types.Tool | None:
        """Return the definition of a tool; None when there is none of that name."""
        entry = self.tools.get(name)
        return None if entry is None else entry.definition

    def tasks_of(self, name: str) -> Tasks | None:
        """Return how a tool runs as a task."""
        return self.tasks.get(name)

    def notified(self, notice: Notice, caller: Caller | None) -> None:
        """Hand a notification to the functions that listen."""
        for listener in self.listeners:
            listener(notice, caller)

    def _page(
        self, listing: Registered[EntryT], cursor: str | None, ctx: Context
    ) -> tuple[list[EntryT], str | None]:
        if not self.scoped:
            return listing.page(cursor)
        return listing.page(cursor, lambda entry: ctx.may_use(entry.scopes))

    def _cached(self, result: PageT) -> PageT:
        if self._list_ttl_ms is not None:
            result.ttl_ms = self._list_ttl_ms
            result.cache_scope = "private" if self.scoped else "public"
        return result


def _require(what: str, name: str, scopes: frozenset[str], ctx: Context) -> None:
    """Raise `InsufficientScope` if the caller lacks scopes. Over HTTP the gate has checked it."""
    if scopes and not ctx.may_use(scopes):
        from mcpearl.server.context import client_name

        raise InsufficientScope(what, client_name(ctx, name), scopes)


def _unknown_prompt(name: str) -> McpError:
    shown = name if len(name) <= 128 else name[:128] + "…"
    return McpError(INVALID_PARAMS, f"Unknown prompt: {shown}", {"name": shown})


def unknown_tool(name: str) -> McpError:
    """Return the error for an unknown tool."""
    shown = name if len(name) <= 128 else name[:128] + "…"
    return McpError(INVALID_PARAMS, f"Unknown tool: {shown}", {"name": shown})
