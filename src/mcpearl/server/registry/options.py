"""The options of `Server.tool`, `Server.resource` and `Server.prompt`."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypedDict

from mcpearl.types.base import Annotations, CacheScope, Icon

if TYPE_CHECKING:
    from mcpearl.runtime.isolation.profile import Isolate
    from mcpearl.runtime.rate import RateLimit
    from mcpearl.server.tasks.options import TaskOption
    from mcpearl.types.tools import ToolAnnotations
else:
    Isolate = RateLimit = TaskOption = ToolAnnotations = Any


class PromptOptions(TypedDict, total=False):
    """Options of a prompt."""

    name: str | None
    title: str | None
    description: str | None
    icons: list[Icon] | None
    meta: dict[str, Any] | None
    scopes: Iterable[str]


class ToolOptions(PromptOptions, total=False):
    """Options of a tool."""

    annotations: ToolAnnotations | dict[str, Any] | None
    input_schema: dict[str, Any] | None
    output_schema: dict[str, Any] | None
    timeout: float | None
    lenient: bool
    rate: RateLimit | None
    concurrency: int | None
    queue: int
    task: TaskOption
    isolate: bool | Isolate


class TemplateOptions(PromptOptions, total=False):
    """Options of a resource template."""

    mime_type: str | None
    annotations: Annotations | dict[str, Any] | None
    ttl_ms: int | None
    cache_scope: CacheScope | None


class ResourceOptions(TemplateOptions, total=False):
    """Options of a resource."""

    size: int | None
