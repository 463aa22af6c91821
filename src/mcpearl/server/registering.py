"""What a server offers: the decorators and methods that register tools, resources and prompts."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, cast, overload

from mcpearl.runtime.threads import ThreadPool
from mcpearl.server.dispatch import Dispatcher
from mcpearl.server.handler import Handler
from mcpearl.server.registry.late_tools import LateTool, can_be_late
from mcpearl.server.registry.options import (
    PromptOptions,
    ResourceOptions,
    TemplateOptions,
    ToolOptions,
)
from mcpearl.server.registry.registration import check_options
from mcpearl.server.registry.registry import Registry
from mcpearl.types.base import Annotations, CacheScope, Icon

if TYPE_CHECKING:
    from mcpearl.runtime.isolation.profile import Isolate
    from mcpearl.server.isolation.isolation import Isolation
    from mcpearl.server.registry.tools import ToolEntry
    from mcpearl.server.tasks.options import TaskOption
else:
    Isolate = Isolation = TaskOption = Any

F = TypeVar("F", bound=Callable[..., Any])
Completer = Callable[..., Any]


class Registering:
    """The part of a `Server` that fills its registry."""

    handler: Handler | Dispatcher
    _registry: Registry
    _pool: ThreadPool
    _tool_timeout: float | None
    _lenient: bool
    _isolate: "bool | Isolate"

    def _have_tasks(self) -> None:
        raise NotImplementedError

    def _have_isolation(self) -> "Isolation":
        raise NotImplementedError

    @overload
    def tool(self, function: F, /, **options: Unpack[ToolOptions]) -> F: ...

    @overload
    def tool(
        self, name: str | None = None, /, **options: Unpack[ToolOptions]
    ) -> Callable[[F], F]: ...

    def tool(self, function: Any = None, /, **options: Unpack[ToolOptions]) -> Any:
        """Serve a function as a tool: its signature is the schema, its docstring the description.

        Args:
            function: The function, when the decorator is used bare; or the tool's name.
            **options: What to announce, and how to run it:
            name: The tool's name; the function's by default.
            title: A name for people.
            description: What a model reads to decide; the docstring by default.
            annotations: Hints for clients, such as `{"readOnlyHint": True}`.
            icons: Images that stand for the tool.
            meta: The `_meta` of its definition.
            input_schema: A JSON Schema for the arguments, checked before the function's own types.
            output_schema: A JSON Schema for what it returns, instead of the return annotation's.
            timeout: Seconds the tool may take.
            lenient: Accept what models send by mistake; by default the server's setting.
            scopes: Scopes a caller's token needs.
            rate: How often each caller may call it; see `RateLimit`.
            concurrency: How many calls of it run at once; more wait.
            queue: How many may wait; one more is refused.
            task: Whether it can run as a task: True, "required", or `Tasks` with more about how.
            isolate: Whether it runs in processes of its own: True, or `Isolate` with their limits.
        """
        check_options("@app.tool", options, ToolOptions.__annotations__)
        if isinstance(function, str):
            options["name"], function = function, None

        def register(function: F) -> F:
            self.add_tool(function, **options)
            return function

        return register if function is None else register(function)

    def add_tool(self, function: Callable[..., Any], **options: Unpack[ToolOptions]) -> None:
        """Add a tool, now or at run time.

        Args:
            function: The function to serve.
            **options: The options of `tool`.
        """
        check_options("app.add_tool", options, ToolOptions.__annotations__)
        options.setdefault("timeout", self._tool_timeout)
        if options.get("input_schema") is None:
            options.setdefault("lenient", self._lenient)
        registry = self._own_registry("add_tool")
        isolate = options.pop("isolate", self._isolate)
        if registry.waits_for_use and not isolate and can_be_late(function, options):
            registry.add_tool(LateTool(function, self._pool, options))
            return
        registry.add_tool(self._compiled_tool(function, options, isolate))

    def _compiled_tool(
        self, function: Callable[..., Any], options: ToolOptions, isolate: "bool | Isolate"
    ) -> "ToolEntry":
        from mcpearl.server.registry.tools import ToolEntry

        kind: Callable[..., ToolEntry] = ToolEntry
        if options.keys() & {"rate", "concurrency", "queue"}:
            from mcpearl.server.registry.limited import LimitedTool

            kind = LimitedTool
        if isolate:
            from mcpearl.server.isolation.tool import isolated

            kind = isolated(kind, isolate, self._have_isolation())
        entry = kind(function, self._pool, **options)
        if entry.tasks is not None:
            self._have_tasks()
        return entry

    def remove_tool(self, name: str) -> bool:
        """Remove a tool; return False when there was none of that name.

        Args:
            name: The tool's name.
        """
        return self._own_registry("remove_tool").remove_tool(name)

    def resource(
        self,
        uri: str,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        mime_type: str | None = None,
        annotations: Annotations | dict[str, Any] | None = None,
        size: int | None = None,
        icons: list[Icon] | None = None,
        meta: dict[str, Any] | None = None,
        ttl_ms: int | None = None,
        cache_scope: CacheScope | None = None,
        scopes: Iterable[str] = (),
    ) -> Callable[[F], F]:
        """Serve a function as a resource, or as a template when the URI has `{variables}`.

        Args:
            uri: The URI, such as `config://app`, or a template, such as `users://{name}`.
            name: The resource's name; the function's by default.
            title: A name for people.
            description: What the resource is; the docstring by default.
            mime_type: The type of its contents; by default it follows from what the function returns.
            annotations: Hints for clients: audience, priority, last modification.
            size: Its size in bytes, where that is known; only for a resource, not a template.
            icons: Images that stand for it.
            meta: The `_meta` of its definition.
            ttl_ms: For how long a client may cache its contents, in milliseconds.
            cache_scope: `public` when a cache may share them between users.
            scopes: Scopes a caller's token needs.
        """
        if callable(uri):
            raise TypeError("`@app.resource` needs the URI: write `@app.resource('config://app')`")
        options: ResourceOptions = {
            "name": name,
            "title": title,
            "description": description,
            "mime_type": mime_type,
            "annotations": annotations,
            "icons": icons,
            "meta": meta,
            "ttl_ms": ttl_ms,
            "cache_scope": cache_scope,
            "scopes": scopes,
            "size": size,
        }

        def register(function: F) -> F:
            self.add_resource(uri, function, **options)
            return function

        return register

    def add_resource(
        self, uri: str, function: Callable[..., Any], **options: Unpack[ResourceOptions]
    ) -> None:
        """Add a resource or template, now or at run time.

        Args:
            uri: The URI, or a template with `{variables}`.
            function: Reads it.
            **options: The options of `resource`.
        """
        check_options("app.add_resource", options, ResourceOptions.__annotations__)
        from mcpearl.server.registry.resources import ResourceEntry, TemplateEntry

        registry = self._own_registry("add_resource")
        size = options.pop("size", None)
        rest = cast("TemplateOptions", options)
        if "{" not in uri:
            entry = ResourceEntry(uri, function, self._pool, size=size, **rest)
            registry.add_resource(entry)
        elif size is None:
            registry.add_template(TemplateEntry(uri, function, self._pool, **rest))
        else:
            raise ValueError(f"`{uri}` is a template, and only a resource has a `size`")

    def remove_resource(self, uri: str) -> bool:
        """Remove a resource or template; return False when there was none.

        Args:
            uri: Its URI, as it was added.
        """
        return self._own_registry("remove_resource").remove_resource(uri)

    @overload
    def prompt(self, function: F, /, **options: Unpack[PromptOptions]) -> F: ...

    @overload
    def prompt(
        self, name: str | None = None, /, **options: Unpack[PromptOptions]
    ) -> Callable[[F], F]: ...

    def prompt(self, function: Any = None, /, **options: Unpack[PromptOptions]) -> Any:
        """Serve a function as a prompt: its parameters are the arguments.

        Args:
            function: The function, when the decorator is used bare; or the prompt's name.
            **options: What to announce:
            name: The prompt's name; the function's by default.
            title: A name for people.
            description: What the prompt is for; the docstring by default.
            icons: Images that stand for it.
            meta: The `_meta` of its definition.
            scopes: Scopes a caller's token needs.
        """
        check_options("@app.prompt", options, PromptOptions.__annotations__)
        if isinstance(function, str):
            options["name"], function = function, None

        def register(function: F) -> F:
            self.add_prompt(function, **options)
            return function

        return register if function is None else register(function)

    def add_prompt(self, function: Callable[..., Any], **options: Unpack[PromptOptions]) -> None:
        """Add a prompt, now or at run time.

        Args:
            function: The function to serve.
            **options: The options of `prompt`.
        """
        from mcpearl.server.registry.prompts import PromptEntry

        check_options("app.add_prompt", options, PromptOptions.__annotations__)
        self._own_registry("add_prompt").add_prompt(PromptEntry(function, self._pool, **options))

    def remove_prompt(self, name: str) -> bool:
        """Remove a prompt; return False when there was none of that name.

        Args:
            name: The prompt's name.
        """
        return self._own_registry("remove_prompt").remove_prompt(name)

    def complete(self, reference: str, argument: str) -> Callable[[Completer], Completer]:
        """Suggest values for an argument of a prompt (by name) or a template (by its URI).

        >>> @app.complete("brief", "city")
        ... def cities(typed: str) -> list[str]:
        ...     return [city for city in CITIES if city.startswith(typed)]

        Args:
            reference: The prompt's name or the template's URI.
            argument: The argument's name.
        """

        def register(completer: Completer) -> Completer:
            self._own_registry("complete").add_completer(reference, argument, completer)
            return completer

        return register

    def _own_registry(self, what: str) -> Registry:
        """Return the registry to fill, for the method `what`."""
        if self.handler is not self._registry:
            raise TypeError(
                f"`{what}` fills the server's own registry, but this server was given a handler; "
                "add it there"
            )
        return self._registry
