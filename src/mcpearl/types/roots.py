"""Roots: the directories in which a client lets a server work."""

from typing import Any

import msgspec

from mcpearl.types.base import RequestParams, Result, Wire


class Root(Wire, kw_only=True):
    """A directory, as a `file://` URI."""

    uri: str
    name: str | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


class ListRootsRequest(Wire, kw_only=True, tag_field="method", tag="roots/list"):
    """A request for the roots as contained in an `InputRequiredResult`."""

    params: RequestParams | None = None


class ListRootsResult(Result, kw_only=True):
    """The client's roots."""

    roots: list[Root]
