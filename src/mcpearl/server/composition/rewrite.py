"""Changes to what a part offers before clients see it: names, descriptions, arguments, visibility."""

from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import replace

from mcpearl.protocol.errors import McpError
from mcpearl.server.context import Context
from mcpearl.types.jsonrpc import INVALID_PARAMS
from mcpearl.types.prompts import Prompt
from mcpearl.types.resources import Resource, ResourceTemplate
from mcpearl.types.tools import Tool

EntryKind = Literal["tools", "prompts", "resources", "templates"]
Definition = Tool | Prompt | Resource | ResourceTemplate
TAGS_KEY = "mcpearl/tags"
"""In `_meta` of a definition: its tags."""
_arguments = msgspec.json.Decoder(dict[str, Raw])


class Offered(Struct, frozen=True):
    """Something a part offers, as `Rewrite.shown` sees it.

    Args:
        kind: `tools`, `prompts`, `resources` or `templates`.
        name: Its name, or the URI of a resource, at the part.
        tags: Its tags.
        definition: What clients get: a `Tool`, `Prompt`, `Resource` or `ResourceTemplate`.
    """

    kind: EntryKind
    name: str
    tags: frozenset[str]
    definition: Any


class Rewrite(Struct, frozen=True, kw_only=True):
    """Changes to what a mounted part offers. Names are the part's own, and may have wildcards `*`, `?`.

    >>> app.mount("issues", tracker, rewrite=Rewrite(
    ...     rename={"create_issue": "report"},
    ...     fix={"create_issue": {"project": "weather"}},
    ...     hide=["delete_*"],
    ... ))

    Args:
        rename: Other names of tools and prompts.
        describe: Other descriptions.
        hide: Names that are not offered.
        only: The only names that are offered; None for all.
        tags: Tags to add, by pattern.
        hide_tags: Tags whose entries are not offered.
        fix: Values of a tool's arguments that callers neither see nor set.
        drop: Arguments of a tool that callers cannot pass.
        scopes: Scopes a caller's token needs, by pattern, beside those the part asks for.
        shown: Decides for each caller whether an entry is offered to it: a function of an `Offered` and
            the call's `Context`, called for lists and for calls.
    """

    rename: Mapping[str, str] = {}
    describe: Mapping[str, str] = {}
    hide: Iterable[str] = ()
    only: Iterable[str] | None = None
    tags: Mapping[str, Iterable[str]] = {}
    hide_tags: Iterable[str] = ()
    fix: Mapping[str, Mapping[str, Any]] = {}
    drop: Mapping[str, Iterable[str]] = {}
    scopes: Mapping[str, Iterable[str]] = {}
    shown: Callable[[Offered, Context], bool] | None = None

    def __post_init__(self) -> None:
        for name in ("hide", "only", "hide_tags"):
            if isinstance(getattr(self, name), str):
                raise TypeError(f"`Rewrite({name}=…)` takes a list of names, not a text")
        for name in ("tags", "drop", "scopes"):
            for key, value in getattr(self, name).items():
                if isinstance(value, str):
                    raise TypeError(f"`Rewrite({name}={{{key!r}: …}})` takes a list, not a text")
        taken: dict[str, str] = {}
        for inner, outer in self.rename.items():
            if taken.setdefault(outer, inner) != inner:
                raise ValueError(
                    f"`Rewrite(rename=…)` calls both `{taken[outer]}` and `{inner}` `{outer}`"
                )

    @property
    def changes_arguments(self) -> bool:
        """Whether calls of some tool are changed."""
        return bool(self.fix or self.drop)

    def tags_of(self, name: str, definition: Definition) -> frozenset[str]:
        """Return the tags of what the part offers: those of its definition and those added here.

        Args:
            name: The name, or URI, at the part.
            definition: Its definition there.
        """
        tags = set(_own_tags(definition))
        for pattern, more in self.tags.items():
            if fnmatchcase(name, pattern):
                tags.update(more)
        return frozenset(tags)

    def scopes_of(self, name: str) -> frozenset[str]:
        """Return the scopes that callers need in addition.

        Args:
            name: The name, or URI, at the part.
        """
        if not self.scopes:
            return frozenset()
        found = (more for pattern, more in self.scopes.items() if fnmatchcase(name, pattern))
        return frozenset().union(*found)

    def hides(self, name: str, tags: frozenset[str]) -> bool:
        """Whether something is offered to no caller.

        Args:
            name: The name, or URI, at the part.
            tags: Its tags.
        """
        if any(fnmatchcase(name, pattern) for pattern in self.hide):
            return True
        if self.only is not None and not any(fnmatchcase(name, each) for each in self.only):
            return True
        return not tags.isdisjoint(self.hide_tags)

    def unknown(self, names: Iterable[str]) -> list[str]:
        """Return the names written here that are not among those the part has.

        Args:
            names: The names and URIs the part has.
        """
        known = set(names)
        written = {*self.rename, *self.describe, *self.fix, *self.drop}
        return sorted(written - known)

    def applied(self, name: str, outer: str, definition: Definition) -> Definition:
        """Return a definition as clients get it, under its outer name or URI.

        Args:
            name: The name, or URI, at the part.
            outer: The name, or URI, for clients.
            definition: The definition at the part.
        """
        changes: dict[str, Any] = {}
        if isinstance(definition, Resource):
            changes["uri"] = outer
        elif isinstance(definition, ResourceTemplate):
            changes["uri_template"] = outer
        else:
            changes["name"] = outer
        if name in self.describe:
            changes["description"] = self.describe[name]
        if isinstance(definition, Tool) and (name in self.fix or name in self.drop):
            hidden = {*self.fix.get(name, ()), *self.drop.get(name, ())}
            changes["input_schema"] = _without(definition.input_schema, hidden)
        tags = self.tags_of(name, definition) if self.tags else None
        if tags:
            changes["meta"] = {**(definition.meta or {}), TAGS_KEY: sorted(tags)}
        return replace(definition, **changes)

    def arguments(self, name: str, raw: Raw | UnsetType) -> Raw | UnsetType:
        """Return the arguments of a call as the part gets them.

        Args:
            name: The tool's name at the part.
            raw: The arguments as the caller sent them.
        """
        fixed, dropped = self.fix.get(name), self.drop.get(name)
        if fixed is None and dropped is None:
            return raw
        try:
            arguments = {} if raw is UNSET else _arguments.decode(raw)
        except msgspec.DecodeError as error:
            raise McpError(
                INVALID_PARAMS, f"The arguments of `{name}` are not an object: {error}"
            ) from None
        for each in dropped or ():
            arguments.pop(each, None)
        for each, value in (fixed or {}).items():
            arguments[each] = Raw(msgspec.json.encode(value))
        return Raw(msgspec.json.encode(arguments))


UNCHANGED = Rewrite()


def _own_tags(definition: Definition) -> list[str]:
    """Return the tags in a definition's `_meta`: ours, or those that FastMCP writes there."""
    meta = definition.meta
    if not meta:
        return []
    found = meta.get(TAGS_KEY)
    for key in ("fastmcp", "_fastmcp"):
        if found is None and isinstance(meta.get(key), dict):
            found = meta[key].get("tags")
    return [tag for tag in found if isinstance(tag, str)] if isinstance(found, list) else []


def _without(schema: dict[str, Any], names: set[str]) -> dict[str, Any]:
    """Return an input schema without some of its properties."""
    properties, required = schema.get("properties"), schema.get("required")
    changed = dict(schema)
    if isinstance(properties, dict):
        changed["properties"] = {k: v for k, v in properties.items() if k not in names}
    if isinstance(required, list):
        changed["required"] = [each for each in required if each not in names]
        if not changed["required"]:
            del changed["required"]
    return changed
