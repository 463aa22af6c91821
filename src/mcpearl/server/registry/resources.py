"""Resources with fixed URIs, and resource templates."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from mcpearl.protocol.errors import ResourceNotFound
from mcpearl.schema.errors import ArgumentsError
from mcpearl.server.context import Context
from mcpearl.server.registry.functions import HandlerFunction, compile_handler, scopes_of
from mcpearl.server.registry.registration import check_texts, check_uri, icons_of, record_of
from mcpearl.server.registry.results import read_result
from mcpearl.types.base import Annotations, CacheScope, Icon, Result
from mcpearl.types.resources import ReadResourceResult, Resource, ResourceTemplate

if TYPE_CHECKING:
    from mcpearl.runtime.threads import ThreadPool


class _ResourceReader:
    """What fixed and templated resources share: the function, and how to describe its contents."""

    __slots__ = ("_cache_scope", "_function", "_mime_type", "_ttl_ms", "scopes")

    def __init__(
        self,
        function: HandlerFunction,
        mime_type: str | None,
        ttl_ms: int | None,
        cache_scope: CacheScope | None,
        scopes: Iterable[str],
    ) -> None:
        self.scopes = scopes_of(scopes)
        if self.scopes and cache_scope == "public":
            raise ValueError(
                "a resource that needs scopes cannot be cached for all callers; "
                "leave `cache_scope` private"
            )
        self._function = function
        self._mime_type = mime_type
        self._ttl_ms = ttl_ms
        self._cache_scope = cache_scope

    async def _read(self, uri: str, arguments: Any, ctx: Context) -> Result:
        value = await self._function.run(arguments, ctx)
        if isinstance(value, Result) and not isinstance(value, ReadResourceResult):
            return value
        result = read_result(value, uri, self._mime_type)
        if self._ttl_ms is not None and result.ttl_ms is None:
            result.ttl_ms = self._ttl_ms
            result.cache_scope = self._cache_scope or "private"
        return result


class ResourceEntry(_ResourceReader):
    """A resource with a fixed URI."""

    __slots__ = ("definition",)
    template = None

    def __init__(
        self,
        uri: str,
        function: Callable[..., Any],
        pool: "ThreadPool",
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
    ) -> None:
        what = f"resource `{uri}`"
        check_uri(uri, "resource")
        check_texts(name=name, title=title, description=description, mime_type=mime_type)
        signature = compile_handler(function, "resource", name)
        if signature.input_schema.get("required"):
            needed = ", ".join(signature.input_schema["required"])
            raise TypeError(
                f"resource `{uri}`: the function needs {needed}, but the URI has no such variable; "
                f"write it as a template, as in `{uri}/{{{needed.split(', ')[0]}}}`"
            )
        handler = HandlerFunction(function, signature, pool)
        super().__init__(handler, mime_type, ttl_ms, cache_scope, scopes)
        self.definition = Resource(
            uri=uri,
            name=name or signature.name,
            title=title,
            description=description or signature.description,
            mime_type=mime_type,
            annotations=_annotations(annotations, what),
            size=size,
            icons=icons_of(icons, what),
            meta=meta,
        )

    async def read(self, uri: str, variables: dict[str, Any], ctx: Context) -> Result:
        """Read the resource, under the URI it was registered with."""
        arguments = self._function.signature.decode(None)
        return await self._read(self.definition.uri, arguments, ctx)


class TemplateEntry(_ResourceReader):
    """A resource template."""

    __slots__ = ("definition", "template")

    def __init__(
        self,
        uri_template: str,
        function: Callable[..., Any],
        pool: "ThreadPool",
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        mime_type: str | None = None,
        annotations: Annotations | dict[str, Any] | None = None,
        icons: list[Icon] | None = None,
        meta: dict[str, Any] | None = None,
        ttl_ms: int | None = None,
        cache_scope: CacheScope | None = None,
        scopes: Iterable[str] = (),
    ) -> None:
        what = f"resource template `{uri_template}`"
        check_uri(uri_template, "resource template")
        check_texts(name=name, title=title, description=description, mime_type=mime_type)
        signature = compile_handler(function, "resource", name)
        from mcpearl.server.registry.uri_template import (
            UriTemplate,  # its patterns take time to compile
        )

        self.template = UriTemplate(uri_template)
        self._check_variables(uri_template, signature.input_schema)
        handler = HandlerFunction(function, signature, pool)
        super().__init__(handler, mime_type, ttl_ms, cache_scope, scopes)
        self.definition = ResourceTemplate(
            uri_template=uri_template,
            name=name or signature.name,
            title=title,
            description=description or signature.description,
            mime_type=mime_type,
            annotations=_annotations(annotations, what),
            icons=icons_of(icons, what),
            meta=meta,
        )

    def _check_variables(self, uri_template: str, schema: dict[str, Any]) -> None:
        variables = set(self.template.variables)
        parameters = set(schema.get("properties", ()))
        surplus = set(schema.get("required", ())) - variables
        unused = variables - parameters
        if surplus or (unused and not schema.get("additionalProperties", True)):
            wrong = [f"the parameter `{name}` is not a variable" for name in sorted(surplus)]
            wrong += [f"the variable `{name}` is not a parameter" for name in sorted(unused)]
            raise TypeError(
                f"resource template `{uri_template}`: {', and '.join(wrong)} of the function; "
                "give both the same name"
                if len(wrong) > 1
                else f"resource template `{uri_template}`: {wrong[0]} of the function"
            )

    async def read(self, uri: str, variables: dict[str, Any], ctx: Context) -> Result:
        """Read the resource at `uri`, from which `variables` were taken."""
        signature = self._function.signature
        try:
            if all(isinstance(value, str) for value in variables.values()):
                arguments = signature.decode_strings(variables)
            else:
                arguments = signature.bind(variables)
        except ArgumentsError as error:
            # A URI whose variables do not fit does not name a resource.
            raise ResourceNotFound(uri, str(error)) from None
        return await self._read(uri, arguments, ctx)


def _annotations(given: Any, what: str) -> Annotations | None:
    return None if given is None else record_of(Annotations, given, f"{what}: annotations")
