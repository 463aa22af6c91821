"""Roots: the places in a file system a client lets a server work in."""

from typing import Any

import msgspec

from mcpearl.types.base import RequestParams, Result, Wire


class Root(Wire, kw_only=True):
    """One place, as a `file://` URI."""

    uri: str
    name: str | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


class ListRootsRequest(Wire, kw_only=True, tag_field="method", tag="roots/list"):
    """A request for the roots as a server puts it into an `InputRequiredResult`."""

    params: RequestParams | None = None


class ListRootsResult(Result, kw_only=True):
    """The roots of a client."""

    roots: list[Root]
