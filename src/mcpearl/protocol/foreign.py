"""Requests whose params cannot be read: a method that their version does not have is refused as such."""

from typing import Any

from msgspec import UNSET, Struct, UnsetType, field

from mcpearl.protocol import codec
from mcpearl.protocol.routes import Route
from mcpearl.protocol.versions import VERSIONS
from mcpearl.types.base import PROTOCOL_VERSION_KEY, decode


class _VersionMeta(Struct):
    version: Any = field(default=UNSET, name=PROTOCOL_VERSION_KEY)


class _OnlyMeta(Struct):
    meta: _VersionMeta | UnsetType = field(default=UNSET, name="_meta")


def refuse_foreign(route: Route, params: Any) -> None:
    """Refuse a method that its version does not have, even if its params are not valid."""
    try:
        meta = decode(_OnlyMeta, params).meta
    except codec.UNREADABLE:
        return
    if meta is not UNSET and isinstance(meta.version, str) and meta.version in VERSIONS:
        route.check_version(VERSIONS[meta.version])
