"""The headers of Streamable HTTP that repeat parts of a message, so that proxies need not parse it.

`Mcp-Method` and `Mcp-Name` are sent with every message that has them; `Mcp-Param-*` repeat parameters
that a tool's schema marks with `x-mcp-header`. Values that a header cannot carry are encoded in Base64.
The client writes the headers with this module, the server compares them with the message.
"""

import binascii
import logging
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from mcpearl.runtime.bounded import BoundedDict
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
"""The member of the params that `Mcp-Name` repeats, by method."""

ParameterPath = tuple[str, ...]

_PREFIX, _SUFFIX = "=?base64?", "?="
_TOKEN = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_PRIMITIVES = ("string", "integer", "boolean")

# Keywords whose values are further schemas: one, a list, or by name.
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
    """Return `text` as a header value, Base64-encoded if it could not be sent unchanged.

    >>> encode_value("us-west1"), encode_value(" padded ")
    ('us-west1', '=?base64?IHBhZGRlZCA=?=')
    """
    plain = text.isascii() and text.isprintable() and text.strip(" ") == text
    if plain and not (text.startswith(_PREFIX) and text.endswith(_SUFFIX)):
        return text
    return f"{_PREFIX}{b64encode(text.encode('utf-8', 'replace')).decode()}{_SUFFIX}"


def decode_value(value: str) -> str:
    """Return the text of a header value. Raises `ValueError` if it is badly encoded."""
    if not value.startswith(_PREFIX) or not value.endswith(_SUFFIX):
        return value
    try:
        return b64decode(value[len(_PREFIX) : -len(_SUFFIX)], validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        raise ValueError(f"not Base64 of UTF-8: {value[:64]!r}") from None


class ToolHeaders:
    """The headers of the tools of one server, as their schemas last said.

    Bounded: the tools learned longest ago are forgotten first. A call of a forgotten tool lacks its
    headers; a server that checks them answers with an error, and the client lists the tools again.
    """

    def __init__(self, max_bytes: int = 8 << 20) -> None:
        # By tool; only tools that have such headers.
        self._paths: BoundedDict[dict[ParameterPath, str]] = BoundedDict(max_bytes)

    def learn(self, tools: list[Tool]) -> list[Tool]:
        """Remember the mirrored parameters of tools. Return the tools with valid annotations."""
        return [tool for tool in tools if self._learn(tool)]

    def _learn(self, tool: Tool) -> bool:
        self._paths.pop(tool.name)
        try:
            paths = annotated(tool.input_schema)
        except ValueError as error:
            logger.warning("ignored tool %r: %s", tool.name[:128], error)
            return False
        if paths:
            names = (len(name) for path, header in paths.items() for name in (*path, header))
            self._paths.put(tool.name, paths, sum(names))
        return True

    def mirrors(self, tool: str) -> bool:
        """Return whether calls of this tool have `Mcp-Param-*` headers."""
        return self._paths.get(tool) is not None

    def of(self, tool: str, arguments: Any) -> list[tuple[str, str]]:
        """Return the headers of one call. An absent or null value has none."""
        found = (
            (PARAM + header, text_at(arguments, path))
            for path, header in (self._paths.get(tool) or {}).items()
        )
        return [(name, encode_value(text)) for name, text in found if text is not None]


class MirroredByDefinition(Mapping[str, dict[ParameterPath, str]]):
    """The parameters to mirror, by tool, found in definitions that are looked up when asked for.

    Args:
        find: Returns the definition of a tool, or None if it is not known.
    """

    def __init__(self, find: Callable[[str], Tool | None]) -> None:
        self._find = find
        self._seen: dict[str, tuple[Tool, dict[ParameterPath, str]]] = {}

    def __getitem__(self, name: str) -> dict[ParameterPath, str]:
        tool = self._find(name)
        if tool is None:
            raise KeyError(name)
        seen, paths = self._seen.get(name, (None, {}))
        if seen is not tool:
            try:
                paths = annotated(tool.input_schema)
            except ValueError as error:
                logger.warning("tool %r: no headers are mirrored: %s", name[:128], error)
                paths = {}
            self._seen[name] = tool, paths
        if not paths:
            raise KeyError(name)
        return paths

    def __iter__(self) -> Iterator[str]:
        return iter(())  # not all tools are known

    def __len__(self) -> int:
        return 0


def annotated(schema: Any) -> dict[ParameterPath, str]:
    """Return the header of each mirrored parameter, by path. Raises `ValueError`."""
    found: dict[ParameterPath, str] = {}
    taken: set[str] = set()
    for path, inner in _schemas(schema):
        if ANNOTATION not in inner:
            continue
        header, kind = inner[ANNOTATION], inner.get("type")
        if not path:
            raise ValueError(f"`{ANNOTATION}` is only allowed where `properties` alone lead")
        where = ".".join(path)[:128]
        if not isinstance(header, str) or not re.fullmatch(_TOKEN, header):
            raise ValueError(f"`{ANNOTATION}` of `{where}` is not a header name: {header!r:.64}")
        if kind not in _PRIMITIVES:
            raise ValueError(
                f"`{ANNOTATION}` of `{where}` needs type string, integer or boolean, not {kind!r:.64}"
            )
        if header.lower() in taken:
            raise ValueError(f"`{ANNOTATION}` of `{where}` is used twice: {header!r:.64}")
        taken.add(header.lower())
        found[path] = header
    return found


def _schemas(root: Any) -> Iterator[tuple[ParameterPath | None, Mapping[str, Any]]]:
    """Yield every schema inside `root`; the path is None if not only `properties` lead to it."""
    waiting: list[tuple[ParameterPath | None, Any]] = [((), root)]
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


def text_at(arguments: Any, path: ParameterPath) -> str | None:
    """Return the argument at a path as text for its header; None if it is absent or null."""
    return _text(_value_at(arguments, path))


def _value_at(arguments: Any, path: ParameterPath) -> Any:
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
