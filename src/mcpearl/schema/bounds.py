"""Bounds for schemas written by hand: depth, size, and the work they can cause.

The validator remembers what it has checked, so deciding whether a value fits is cheap even for
recursive schemas. Two things are not cheap: references that multiply without descending into the
value, which are refused here, and listing errors under recursion, which is limited here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from mcpearl.schema.errors import SchemaError

__all__ = [
    "MAX_BYTES",
    "MAX_DEPTH",
    "MAX_NODES",
    "MAX_PATTERNS",
    "MAX_PATTERN_SIZE",
    "check_bounds",
    "check_patterns",
    "check_work",
    "explained_depth",
    "subschemas",
    "too_deep",
]

MAX_DEPTH = 64
MAX_NODES = 10_000
MAX_BYTES = 1024 * 1024
MAX_PATTERNS = 100
MAX_PATTERN_SIZE = 256 * 1024
"""Bytes of one compiled pattern: repetitions of repetitions grow without many characters."""

# Keywords whose content is a value, not a schema.
_VALUES = ("enum", "const", "default", "examples")
# Keywords that apply several schemas to the same value: the work multiplies.
_REPEATING = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas")
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
# Limit on the visits to one place while errors are listed.
_MOST_REPEATS = 1_000
# With more targets than this, looking for recursive references would be expensive itself.
_MOST_TARGETS = 100


def check_bounds(schema: Any, where: str) -> None:
    """Refuse a schema that is too deep or too large.

    The traversal does not recurse, so no schema can exhaust the stack.
    """
    nodes = 0
    waiting = [(schema, 1)]
    while waiting:
        node, depth = waiting.pop()
        nodes += 1
        if depth > MAX_DEPTH:
            raise SchemaError(f"{where}: the schema is nested deeper than {MAX_DEPTH}")
        if nodes > MAX_NODES:
            raise SchemaError(f"{where}: the schema has more than {MAX_NODES} nodes")
        if isinstance(node, dict):
            waiting += [(child, depth + 1) for child in node.values()]
        elif isinstance(node, list | tuple):
            waiting += [(child, depth + 1) for child in node]
    try:
        size = len(msgspec.json.encode(schema))
    except (TypeError, ValueError) as error:
        raise SchemaError(f"{where}: the schema is not JSON: {error}") from None
    if size > MAX_BYTES:
        raise SchemaError(f"{where}: the schema is larger than {MAX_BYTES} bytes")


def subschemas(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield every object that may be a schema, skipping the values of value keywords."""
    waiting = [schema]
    while waiting:
        node = waiting.pop()
        if isinstance(node, list | tuple):
            waiting += node
        elif isinstance(node, dict):
            # A property may be named `$schema`; its value is then a schema, not a dialect.
            if not isinstance(node.get("$schema"), dict | bool):
                yield node
            waiting += [child for keyword, child in node.items() if keyword not in _VALUES]


def check_patterns(schema: Any, where: str) -> None:
    """Refuse a schema with too many patterns: each is compiled, which takes its time."""
    count = 0
    for inner in subschemas(schema):
        if isinstance(inner, dict):
            named = inner.get("patternProperties")
            count += ("pattern" in inner) + (len(named) if isinstance(named, dict) else 0)
    if count > MAX_PATTERNS:
        raise SchemaError(f"{where}: the schema has {count} patterns, and may have {MAX_PATTERNS}")


def check_work(schema: Any, where: str) -> None:
    """Limit how many schemas are applied to one value.

    Twenty definitions that each refer to the next one twice cause a million checks of one value.
    """
    targets = _targets(schema)
    # None while a node's parts are being counted. A node met in that state is part of a cycle,
    # which the validator cuts off, so it adds nothing.
    counted: dict[int, int | None] = {}
    waiting: list[Any] = list(subschemas(schema))
    while waiting:
        node = waiting[-1]
        parts = _applied(node, targets)
        if id(node) not in counted:
            counted[id(node)] = None
            waiting += [part for part in parts if id(part) not in counted]
            continue
        waiting.pop()
        if counted[id(node)] is not None:
            continue
        work = 1 + sum(counted[id(part)] or 1 for part in parts)
        if work > MAX_NODES:
            raise SchemaError(
                f"{where}: the schema's references multiply to more than {MAX_NODES} checks"
            )
        counted[id(node)] = work


def _applied(node: dict[str, Any], targets: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the schemas that apply to the same value as `node`."""
    applied: list[Any] = [targets.get(str(node[key])) for key in _REFERENCES if key in node]
    for keyword in _REPEATING:
        found = node.get(keyword)
        if isinstance(found, list):
            applied += found
        elif keyword == "dependentSchemas" and isinstance(found, dict):
            applied += found.values()
        else:
            applied.append(found)
    return [each for each in applied if isinstance(each, dict)]


def _targets(schema: Any) -> dict[str, Any]:
    """Map internal references (pointers, anchors and identifiers) to their targets."""
    targets: dict[str, Any] = {"#": schema}
    waiting: list[tuple[str, Any]] = [("#", schema)] if isinstance(schema, dict) else []
    while waiting:
        pointer, node = waiting.pop()
        children = node.items() if isinstance(node, dict) else enumerate(node)
        for key, child in children:
            escaped = str(key).replace("~", "~0").replace("/", "~1")
            if isinstance(child, dict | list):
                waiting.append((f"{pointer}/{escaped}", child))
                targets[f"{pointer}/{escaped}"] = child
        if isinstance(node, dict):
            for keyword in ("$anchor", "$dynamicAnchor"):
                if isinstance(node.get(keyword), str):
                    targets[f"#{node[keyword]}"] = node
            if isinstance(node.get("$id"), str):
                targets[node["$id"]] = node
    return targets


def explained_depth(schema: Any) -> int | None:
    """Return how deep a value may be for its errors to be listed, or None for any depth.

    The list of errors grows exponentially with the depth if a schema refers to itself repeatedly.
    """
    ways = _recursive_references(schema)
    if ways < 2:
        return None
    depth = 0
    while ways ** (depth + 1) <= _MOST_REPEATS:
        depth += 1
    return depth


def too_deep(value: Any, deepest: int | None) -> bool:
    """Return whether `value` is nested deeper than `deepest`."""
    if deepest is None:
        return False
    waiting = [(value, 0)]
    while waiting:
        node, depth = waiting.pop()
        if depth > deepest:
            return True
        if isinstance(node, dict):
            waiting += [(child, depth + 1) for child in node.values()]
        elif isinstance(node, list | tuple):
            waiting += [(child, depth + 1) for child in node]
    return False


def _recursive_references(schema: Any) -> int:
    """Count the references that lead back to themselves."""
    targets = _targets(schema)
    references = [
        (node, targets.get(node[keyword]))
        for node in subschemas(schema)
        for keyword in _REFERENCES
        if isinstance(node.get(keyword), str)
    ]
    distinct = {id(target): target for _, target in references}
    if len(distinct) > _MOST_TARGETS:
        return len(references)
    reached = {key: _reachable(target, targets) for key, target in distinct.items()}
    return sum(id(node) in reached[id(target)] for node, target in references)


def _reachable(start: Any, targets: dict[str, Any]) -> set[int]:
    seen: set[int] = set()
    waiting = [start]
    while waiting:
        node = waiting.pop()
        if not isinstance(node, dict | list) or id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, list):
            waiting += node
            continue
        waiting += node.values()
        waiting += [targets.get(str(node[keyword])) for keyword in _REFERENCES if keyword in node]
    return seen
