"""Resources: data that a server offers under fixed URIs or URI templates."""

from typing import Any

import msgspec

from mcpearl.types.base import (
    Annotations,
    Icon,
    InputResponseRequestParams,
    NotificationParams,
    RequestParams,
    Wire,
)
from mcpearl.types.pages import CacheableResult, Listing, PaginatedResult


class Resource(Wire, kw_only=True):
    """A resource; `size` is in bytes before any encoding."""

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
    """Contents of a resource: `text`, or binary data as base64 in `blob`.

    Contents of either kind are decoded as this type. To build them, use `TextResourceContents` or
    `BlobResourceContents`, which require the respective member.
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
    """Text contents."""

    text: str


class BlobResourceContents(ResourceContents, kw_only=True):
    """Binary contents, in base64."""

    blob: str


class ListResourcesResult(PaginatedResult, Listing[Resource], kw_only=True):
    """A page of the server's resources."""

    resources: list[Resource]

    def _items(self) -> list[Resource]:
        return self.resources


class ListResourceTemplatesResult(PaginatedResult, Listing[ResourceTemplate], kw_only=True):
    """A page of the server's resource templates."""

    resource_templates: list[ResourceTemplate]

    def _items(self) -> list[ResourceTemplate]:
        return self.resource_templates


class ReadResourceRequestParams(InputResponseRequestParams, kw_only=True):
    """Requests the contents of a resource."""

    uri: str


class ReadResourceResult(CacheableResult, Listing[ResourceContents], kw_only=True):
    """The contents of a resource; several if the URI stands for several."""

    contents: list[ResourceContents]

    def _items(self) -> list[ResourceContents]:
        return self.contents


class SubscribeRequestParams(RequestParams, kw_only=True):
    """Subscribes to changes of a resource."""

    uri: str


class UnsubscribeRequestParams(RequestParams, kw_only=True):
    """Ends a subscription to a resource."""

    uri: str


class ResourceUpdatedNotificationParams(NotificationParams, kw_only=True):
    """Reports that a resource has changed and can be read again."""

    uri: str
