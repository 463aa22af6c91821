"""Resources: data a server offers under URIs, fixed ones and those of a template."""

from typing import Any

import msgspec

from mcpearl.types.base import (
    Annotations,
    CacheableResult,
    Icon,
    InputResponseRequestParams,
    NotificationParams,
    PaginatedResult,
    RequestParams,
    Wire,
)


class Resource(Wire, kw_only=True):
    """One resource a server can be asked to read; `size` is in bytes before any encoding."""

    uri: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    annotations: Annotations | None = None
    size: int | None = None
    icons: list[Icon] | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


class ResourceTemplate(Wire, kw_only=True):
    """A family of resources whose URIs follow an RFC 6570 template."""

    uri_template: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    annotations: Annotations | None = None
    icons: list[Icon] | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


class ResourceContents(Wire, kw_only=True):
    """What a resource holds: `text`, or binary data as base64 in `blob`.

    This is the type contents decode to, whichever of the two they are. To build them,
    `TextResourceContents` and `BlobResourceContents` ask for the member that is needed.
    """

    uri: str
    mime_type: str | None = None
    text: str | None = None
    blob: str | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")

    def __post_init__(self) -> None:
        if self.text is None and self.blob is None:
            raise ValueError("resource contents need `text` or `blob`")


class TextResourceContents(ResourceContents, kw_only=True):
    """Contents that are text."""

    text: str


class BlobResourceContents(ResourceContents, kw_only=True):
    """Contents that are binary, in base64."""

    blob: str


class ListResourcesResult(PaginatedResult, kw_only=True):
    """A page of the resources of a server."""

    resources: list[Resource]


class ListResourceTemplatesResult(PaginatedResult, kw_only=True):
    """A page of the resource templates of a server."""

    resource_templates: list[ResourceTemplate]


class ReadResourceRequestParams(InputResponseRequestParams, kw_only=True):
    """Asks for the contents of a resource."""

    uri: str


class ReadResourceResult(CacheableResult, kw_only=True):
    """The contents of a resource; more than one when the URI stands for several."""

    contents: list[ResourceContents]


class SubscribeRequestParams(RequestParams, kw_only=True):
    """Asks to be told when a resource changes."""

    uri: str


class UnsubscribeRequestParams(RequestParams, kw_only=True):
    """Ends a subscription to a resource."""

    uri: str


class ResourceUpdatedNotificationParams(NotificationParams, kw_only=True):
    """Says that a resource changed and may be read again."""

    uri: str
