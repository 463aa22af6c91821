"""Which members of which types exist in which protocol versions.

This is the only place where types differ by version. The tables come first; `narrow` applies them to a
value. A member without a row exists in every version. A type that a version lacks entirely is not sent
in it; `mcpearl.types.methods` says so.

A row is a range of versions: "2025-06-18..", "..2025-11-25" or "first..last".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar, get_args

import msgspec

from mcpearl import types
from mcpearl.protocol.versions import VERSIONS
from mcpearl.types.base import Wire

T = TypeVar("T")

_NEVER: Final = "9999..0000"
_BRACE: Final = ord("{")
_TYPES: Final = f"{types.__name__}."

# `structured_content` of a result has no row: before 2025-06-18 it is a member that results may have
# beside their own, and clients of other SDKs read it there.
# A class's row also applies to its subclasses, unless they have their own. Rows name their
# class: a server loads few of them.
MEMBERS: Final[dict[str, dict[str, str]]] = {
    "Annotations": {"last_modified": "2025-06-18.."},
    "Implementation": {
        "title": "2025-06-18..",
        "description": "2025-11-25..",
        "website_url": "2025-11-25..",
        "icons": "2025-11-25..",
    },
    "ClientCapabilities": {
        "elicitation": "2025-06-18..",
        "tasks": "2025-11-25..2025-11-25",
    },
    "RootsCapability": {"list_changed": "..2025-11-25"},
    "SamplingCapability": {"context": "2025-11-25..", "tools": "2025-11-25.."},
    "ElicitationCapability": {"form": "2025-11-25..", "url": "2025-11-25.."},
    "ServerCapabilities": {
        "completions": "2025-03-26..",
        "tasks": "2025-11-25..2025-11-25",
    },
    "Result": {"result_type": "2026-07-28.."},
    "CacheableResult": {"ttl_ms": "2026-07-28..", "cache_scope": "2026-07-28.."},
    "InputResponseRequestParams": {
        "input_responses": "2026-07-28..",
        "request_state": "2026-07-28..",
    },
    "Tool": {
        "title": "2025-06-18..",
        "output_schema": "2025-06-18..",
        "annotations": "2025-03-26..",
        "execution": "2025-11-25..2025-11-25",
        "icons": "2025-11-25..",
        "meta": "2025-06-18..",
    },
    "CallToolRequestParams": {"task": "2025-11-25..2025-11-25"},
    "Resource": {
        "title": "2025-06-18..",
        "icons": "2025-11-25..",
        "meta": "2025-06-18..",
    },
    "ResourceTemplate": {
        "title": "2025-06-18..",
        "icons": "2025-11-25..",
        "meta": "2025-06-18..",
    },
    "ResourceContents": {"meta": "2025-06-18.."},
    "Prompt": {
        "title": "2025-06-18..",
        "icons": "2025-11-25..",
        "meta": "2025-06-18..",
    },
    "PromptArgument": {"title": "2025-06-18.."},
    "PromptReference": {"title": "2025-06-18.."},
    "TextContent": {"meta": "2025-06-18.."},
    "ImageContent": {"meta": "2025-06-18.."},
    "AudioContent": {"meta": "2025-06-18.."},
    "EmbeddedResource": {"meta": "2025-06-18.."},
    "SamplingMessage": {"meta": "2025-11-25.."},
    "CreateMessageRequestParams": {
        "tools": "2025-11-25..",
        "tool_choice": "2025-11-25..",
        "task": "2025-11-25..2025-11-25",
        "meta": "..2025-11-25",
    },
    "CreateMessageResult": {"result_type": _NEVER},
    "ElicitRequestParams": {
        "mode": "2025-11-25..",
        "url": "2025-11-25..",
        "elicitation_id": "2025-11-25..2025-11-25",
        "task": "2025-11-25..2025-11-25",
        "meta": "..2025-11-25",
    },
    "RequestedSchema": {"schema": "2025-11-25.."},
    "ElicitResult": {"result_type": _NEVER, "meta": "..2025-11-25"},
    "Root": {"meta": "2025-06-18.."},
    "ListRootsResult": {"result_type": _NEVER, "meta": "..2025-11-25"},
    "CompleteRequestParams": {"context": "2025-06-18.."},
    "ProgressNotificationParams": {"message": "2025-03-26.."},
}

# Content blocks that some versions lack. There, a text describing the block replaces it.
BLOCKS: Final[dict[str, str]] = {
    "AudioContent": "2025-03-26..",
    "ResourceLink": "2025-06-18..",
    "ToolUseContent": "2025-11-25..",
    "ToolResultContent": "2025-11-25..",
}


def narrow(value: T, version: str) -> T:
    """Convert `value` to its form in `version`.

    Members that the version lacks are removed, and content blocks that it lacks are replaced by
    text, at any depth. The argument is not changed: the result is a copy, or the same object if
    there was nothing to do.
    """
    plan = _plans[version][type(value)]
    return value if plan is None else plan(value)


def _object_or_none(value: Any) -> Any:
    """Drop structured content that is not an object; older versions allow only objects."""
    if type(value) is msgspec.Raw:
        # Not copied, unless it begins with blanks.
        return value if memoryview(value)[0] == _BRACE or _begins_object(value) else None
    if value is None or isinstance(value, dict):
        return value
    if isinstance(value, str | bytes | int | float | list | tuple | set):
        return None
    return value


def _begins_object(value: msgspec.Raw) -> bool:
    return bytes(value).lstrip().startswith(b"{")


def _object_schema_or_none(schema: dict[str, Any] | None) -> dict[str, Any] | None:
    """Drop an output schema that does not describe an object."""
    return None if schema is None or schema.get("type") != "object" else schema


def _one_block_per_message(messages: list[types.SamplingMessage]) -> list[types.SamplingMessage]:
    """Split messages with several content blocks; older versions allow one block each."""
    if not any(isinstance(message.content, list) for message in messages):
        return messages
    return [
        types.SamplingMessage(role=message.role, content=block)
        for message in messages
        for block in (message.content if isinstance(message.content, list) else [message.content])
    ]


def _one_block(content: Any) -> Any:
    """Combine several content blocks in one text; older versions allow one block."""
    if not isinstance(content, list):
        return content
    if len(content) == 1:
        return content[0]
    return types.TextContent(text="\n".join(map(_in_words, content)))


def _form_without_defaults(properties: dict[str, Any]) -> dict[str, Any]:
    """Drop defaults except of booleans, and move titles of choices to a separate list."""
    plain = {
        name: definition if isinstance(definition, dict) else msgspec.to_builtins(definition)
        for name, definition in properties.items()
    }
    narrowed = {name: _field_without_default(definition) for name, definition in plain.items()}
    return properties if narrowed == plain else narrowed


def _field_without_default(definition: dict[str, Any]) -> dict[str, Any]:
    match definition:
        case {"type": "boolean"}:
            return definition
        case {"type": "string", "oneOf": [*options]}:
            kept = {k: v for k, v in definition.items() if k not in ("oneOf", "default")}
            return kept | {
                "enum": [option["const"] for option in options],
                "enumNames": [option["title"] for option in options],
            }
    return {k: v for k, v in definition.items() if k != "default"}


# Members whose values were more restricted: until which version, and the conversion.
REWRITES: Final[dict[str, dict[str, tuple[str, Callable[[Any], Any]]]]] = {
    "CallToolResult": {"structured_content": ("..2025-11-25", _object_or_none)},
    "ToolResultContent": {"structured_content": ("..2025-11-25", _object_or_none)},
    "Tool": {"output_schema": ("..2025-11-25", _object_schema_or_none)},
    "CreateMessageRequestParams": {"messages": ("..2025-06-18", _one_block_per_message)},
    "CreateMessageResult": {"content": ("..2025-06-18", _one_block)},
    "RequestedSchema": {"properties": ("..2025-06-18", _form_without_defaults)},
}


def _in_words(block: Any) -> str:
    """Describe a content block in text."""
    match block:
        case types.TextContent():
            return block.text
        case types.ResourceLink():
            return f"{block.name}: {block.uri}"
        case types.ImageContent():
            return f"[image, {block.mime_type}]"
        case types.AudioContent():
            return f"[audio, {block.mime_type}]"
        case types.EmbeddedResource():
            return block.resource.text or f"[resource, {block.resource.uri}]"
        case types.ToolUseContent():
            return f"[tool use, {block.name}: {msgspec.json.encode(block.input).decode()}]"
        case types.ToolResultContent():
            return "\n".join(map(_in_words, block.content))
    raise TypeError(f"not a content block: {block!r}")


# --- plans: the tables compiled for one type and one version ---

_Plan = Callable[[Any], Any]


class _Plans(dict[type, _Plan | None]):
    """The plans of one version, compiled on first use; None if there is nothing to do."""

    def __init__(self, version: str) -> None:
        self._version = version

    def __missing__(self, type_: type) -> _Plan | None:
        plan = self._make(type_) if issubclass(type_, Wire) else None
        self[type_] = plan
        return plan

    def _make(self, type_: type[Wire]) -> _Plan | None:
        lineage = _lineage(type_)
        block = next((BLOCKS[name] for name in lineage if name in BLOCKS), "..")
        if not _in_span(self._version, block):
            return self._put_into_words
        drop: list[str] = []
        rewrite: list[tuple[str, Callable[[Any], Any]]] = []
        descend: list[str] = []
        spans, rewrites = _rows(MEMBERS, lineage), _rows(REWRITES, lineage)
        for name, annotation in _members(type_).items():
            if name in spans and not _in_span(self._version, spans[name]):
                drop.append(name)
                continue
            if name in rewrites and _in_span(self._version, rewrites[name][0]):
                rewrite.append((name, rewrites[name][1]))
            if any(self[nested] is not None for nested in _structs_in(annotation)):
                descend.append(name)
        if not (drop or rewrite or descend):
            return None
        return self._plan(drop, rewrite, descend)

    def _plan(
        self,
        drop: list[str],
        rewrite: list[tuple[str, Callable[[Any], Any]]],
        descend: list[str],
    ) -> _Plan:
        """Compile a plan from source: it is run for every answer, and mostly finds nothing to do."""
        names: dict[str, Any] = {"replace": msgspec.structs.replace, "descend": self._descend}
        source = ["def plan(value):", " changes = {}"]
        for name in drop:  # each of them is None by default
            source += [f" if value.{name} is not None:", f"  changes[{name!r}] = None"]
        for name, rewritten in rewrite:
            names[f"rewritten_{name}"] = rewritten
            source += [
                f" before = value.{name}",
                f" after = rewritten_{name}(before)",
                " if after is not before:",
                f"  changes[{name!r}] = after",
            ]
        for name in descend:
            source += [
                f" before = changes[{name!r}] if {name!r} in changes else value.{name}",
                " if before is not None:",
                "  after = descend(before)",
                "  if after is not before:",
                f"   changes[{name!r}] = after",
            ]
        source.append(" return replace(value, **changes) if changes else value")
        # Safe to execute: the names are those of the members of our own types.
        exec("\n".join(source), names)
        plan: _Plan = names["plan"]
        return plan

    def _descend(self, member: Any) -> Any:
        """Narrow a struct, or all in a list or dict. Return the same object if none changes."""
        if type(member) is list:
            for item in member:
                plan = self[type(item)]
                if plan is not None and plan(item) is not item:
                    return [self._descend(item) for item in member]
            return member
        if type(member) is dict:
            narrowed = {key: self._descend(item) for key, item in member.items()}
            same = all(narrowed[key] is item for key, item in member.items())
            return member if same else narrowed
        plan = self[type(member)]
        return member if plan is None else plan(member)

    def _put_into_words(self, block: Any) -> types.TextContent:
        annotations = getattr(block, "annotations", None)
        return narrow(
            types.TextContent(text=_in_words(block), annotations=annotations), self._version
        )


_plans: Final = {version: _Plans(version) for version in VERSIONS}


def _in_span(version: str, span: str) -> bool:
    first, _, last = span.partition("..")
    return first <= version and (not last or version <= last)


def _rows(table: dict[str, dict[str, Any]], lineage: list[str]) -> dict[str, Any]:
    rows: dict[str, Any] = {}
    for name in reversed(lineage):
        if name in table:
            rows |= table[name]
    return rows


def _lineage(type_: type) -> list[str]:
    """Return the names of a type and of its bases, as far as they are types of the specification."""
    return [base.__name__ for base in type_.__mro__ if base.__module__.startswith(_TYPES)]


def _members(type_: type[Wire]) -> dict[str, Any]:
    """Return the members of a type with their annotations, those of its bases first.

    To have msgspec resolve them takes ten times as long, at each start of a server.
    """
    members: dict[str, Any] = {}
    for base in reversed(type_.__mro__):
        if issubclass(base, Wire):
            members |= base.__annotations__
    return members


def _structs_in(annotation: Any) -> list[type[Wire]]:
    if isinstance(annotation, type) and issubclass(annotation, Wire):
        return [annotation]
    return [struct for argument in get_args(annotation) for struct in _structs_in(argument)]
