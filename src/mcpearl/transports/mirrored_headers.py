"""What Streamable HTTP mirrors from a message into headers, so that intermediaries need no JSON.

`Mcp-Method` and `Mcp-Name` stand on every message that has them; `Mcp-Param-*` come from the
parameters a tool's schema marks with `x-mcp-header`. Values no header can carry are wrapped in
Base64. Both ends use this module: one writes the headers, the other compares them.
"""

import binascii
import logging
import re
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from typing import Any

from mcpearl.types.tools import Tool

logger = logging.getLogger("mcpearl.http")

METHOD = "Mcp-Method"
NAME = "Mcp-Name"
PARAM = "Mcp-Param-"
PROTOCOL_VERSION = "MCP-Protocol-Version"
SESSION_ID = "Mcp-Session-Id"
LAST_EVENT_ID = "Last-Event-ID"

ANNOTATION = "x-mcp-header"
NAMED_BY = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
"""Which member of the params `Mcp-Name` repeats, by method."""

Path = tuple[str, ...]

_PREFIX, _SUFFIX = "=?base64?", "?="
_PLAIN = re.compile(r"(?:[!-~](?:[ -~]*[!-~])?)?")
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_PRIMITIVES = ("string", "integer", "boolean")

# Where a schema holds further schemas: as a value, in a list, or by name.
_HOLDS_ONE = frozenset(
    {
        "additionalItems",
        "additionalProperties",
        "contains",
        "contentSchema",
        "else",
        "if",
        "items",
        "not",
        "propertyNames",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
    }
)
_HOLDS_LIST = frozenset({"allOf", "anyOf", "items", "oneOf", "prefixItems"})
_HOLDS_NAMED = frozenset(
    {"$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties"}
)


def encode_value(text: str) -> str:
    """Give `text` as a header value, wrapped when it could not travel as it is.

    >>> encode_value("us-west1"), encode_value(" padded ")
    ('us-west1', '=?base64?IHBhZGRlZCA=?=')
    """
    if _PLAIN.fullmatch(text) and not (text.startswith(_PREFIX) and text.endswith(_SUFFIX)):
        return text
    return f"{_PREFIX}{b64encode(text.encode('utf-8', 'replace')).decode()}{_SUFFIX}"


def decode_value(value: str) -> str:
    """Give what a header value stands for; `ValueError` when it is wrapped badly."""
    if not value.startswith(_PREFIX) or not value.endswith(_SUFFIX):
        return value
    try:
        return b64decode(value[len(_PREFIX) : -len(_SUFFIX)], validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        raise ValueError(f"not Base64 of UTF-8: {value[:64]!r}") from None


class ToolHeaders:
    """The headers of the tools of one server, as their schemas last said."""

    def __init__(self) -> None:
        self._paths: dict[str, dict[Path, str]] = {}  # by tool, only of those that have any

    def learn(self, tools: list[Tool]) -> list[Tool]:
        """Remember what these tools want mirrored; give those whose annotations are valid."""
        return [tool for tool in tools if self._learn(tool)]

    def _learn(self, tool: Tool) -> bool:
        self._paths.pop(tool.name, None)
        try:
            paths = annotated(tool.input_schema)
        except ValueError as error:
            logger.warning("tool %r is left out: %s", tool.name[:128], error)
            return False
        if paths:
            self._paths[tool.name] = paths
        return True

    def mirrors(self, tool: str) -> bool:
        """Whether calls of this tool carry headers of their own."""
        return tool in self._paths

    def of(self, tool: str, arguments: Any) -> list[tuple[str, str]]:
        """Give the headers of one call. A value that is absent or null has none."""
        found = (
            (PARAM + header, text_at(arguments, path))
            for path, header in self._paths.get(tool, {}).items()
        )
        return [(name, encode_value(text)) for name, text in found if text is not None]


def annotated(schema: Any) -> dict[Path, str]:
    """Find the parameters to mirror: header by path. `ValueError` says which annotation is wrong."""
    found: dict[Path, str] = {}
    taken: set[str] = set()
    for path, inner in _schemas(schema):
        if ANNOTATION not in inner:
            continue
        header, kind = inner[ANNOTATION], inner.get("type")
        if not path:
            raise ValueError(f"`{ANNOTATION}` is where no chain of `properties` leads")
        where = ".".join(path)[:128]
        if not isinstance(header, str) or not _TOKEN.fullmatch(header):
            raise ValueError(f"`{ANNOTATION}` of `{where}` is no header name: {header!r:.64}")
        if kind not in _PRIMITIVES:
            raise ValueError(
                f"`{ANNOTATION}` of `{where}` needs type string, integer or boolean, not {kind!r:.64}"
            )
        if header.lower() in taken:
            raise ValueError(f"`{ANNOTATION}` of `{where}` is taken already: {header!r:.64}")
        taken.add(header.lower())
        found[path] = header
    return found


def _schemas(root: Any) -> Iterator[tuple[Path | None, Mapping[str, Any]]]:
    """Walk over every schema inside `root`; the path is None where `properties` alone do not lead."""
    waiting: list[tuple[Path | None, Any]] = [((), root)]
    while waiting:
        path, schema = waiting.pop()
        if not isinstance(schema, Mapping):
            continue
        yield path, schema
        for keyword, value in schema.items():
            if keyword == "properties" and isinstance(value, Mapping):
                for name, inner in value.items():
                    waiting.append((None if path is None else (*path, name), inner))
            elif isinstance(value, Mapping):
                if keyword in _HOLDS_ONE:
                    waiting.append((None, value))
                elif keyword in _HOLDS_NAMED:
                    waiting.extend((None, inner) for inner in value.values())
            elif keyword in _HOLDS_LIST and isinstance(value, list):
                waiting.extend((None, inner) for inner in value)


def text_at(arguments: Any, path: Path) -> str | None:
    """Return the argument at a path as its header has it; None if it is absent or null."""
    return _text(_value_at(arguments, path))


def _value_at(arguments: Any, path: Path) -> Any:
    for name in path:
        if not isinstance(arguments, Mapping):
            return None
        arguments = arguments.get(name)
    return arguments


def _text(value: Any) -> str | None:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value) if isinstance(value, int | float) else None
