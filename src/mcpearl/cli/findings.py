"""What hosts and models will stumble over in what a server offers.

The rules are those of hosts and of the interfaces of models behind them; `docs/command.md` says where
each was read. None of them is the protocol's, except where it says so.
"""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import msgspec

from mcpearl.cli.offered import ServerOffer
from mcpearl.types.base import Implementation
from mcpearl.types.tools import Tool

Grade = Literal["error", "warning", "note"]

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_MCP_NAME = re.compile(r"[A-Za-z0-9_./-]{1,128}")
_PROPERTY = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_LONGEST_DESCRIPTION = 1024
_LONGEST_FULL_NAME = 60  # characters of the server's name and the tool's together
_MANY_TOOLS = 40
_MOST_TOOLS = 128
_LARGE_TOOL = 2_000  # tokens
_LARGE_SERVER = 20_000
_DEPTH = 40


class Objection(NamedTuple):
    """Something that a host may refuse, or a model misunderstand."""

    grade: Grade
    about: str
    text: str


def tokens(value: Any) -> int:
    """Return about how many tokens a value takes in the context of a model: a quarter of its bytes."""
    return (len(msgspec.json.encode(value)) + 3) // 4


def findings(
    offered: ServerOffer, info: Implementation | None, instructions: str | None
) -> list[Objection]:
    """Look through everything that a server offers; the worst comes first."""
    found = [
        *_of_server(offered, info, instructions),
        *(each for tool in offered.tools for each in _of_tool(tool)),
        *_of_resources(offered),
        *_of_prompts(offered),
    ]
    order = {"error": 0, "warning": 1, "note": 2}
    return sorted(found, key=lambda each: order[each.grade])


def _of_server(
    offered: ServerOffer, info: Implementation | None, instructions: str | None
) -> Iterator[Objection]:
    if info is None or not info.version or info.version == "0.0.0":
        yield Objection("note", "server", 'it says no version: `Server("name", version="1.0.0")`')
    if not instructions:
        yield Objection("note", "server", "it has no instructions that tell a model what it is for")
    count, size = len(offered.tools), tokens(offered.tools)
    if count > _MOST_TOOLS:
        yield Objection(
            "error", "server", f"{count} tools; models take up to {_MOST_TOOLS} at once"
        )
    elif count > _MANY_TOOLS:
        yield Objection("warning", "server", f"{count} tools; Cursor uses the first {_MANY_TOOLS}")
    if size > _LARGE_SERVER:
        yield Objection(
            "warning", "server", f"the tools take about {size:,} tokens of every conversation"
        )
    for tool in offered.tools:
        if info is not None and len(info.name) + len(tool.name) >= _LONGEST_FULL_NAME:
            text = f"with the name {info.name!r} of the server it is too long for Cursor, which takes 60"
            yield Objection("note", f"tool {tool.name}", text)
    for kind, names in (
        ("tool", [tool.name for tool in offered.tools]),
        ("prompt", [prompt.name for prompt in offered.prompts]),
        ("resource", [resource.uri for resource in offered.resources]),
    ):
        for name, times in Counter(names).items():
            if times > 1:
                yield Objection("error", f"{kind} {name}", f"it is there {times} times")


def _of_tool(tool: Tool) -> Iterator[Objection]:
    about = f"tool {tool.name}"
    if not _MCP_NAME.fullmatch(tool.name):
        yield Objection(
            "error", about, "a name has 1 to 128 of A-Z a-z 0-9 _ - . / in the protocol"
        )
    elif not _NAME.fullmatch(tool.name):
        yield Objection("warning", about, "models take names of 1 to 64 of A-Z a-z 0-9 _ - only")
    if not tool.description:
        yield Objection(
            "warning", about, "it has no description, so a model has to guess what it does"
        )
    elif len(tool.description) > _LONGEST_DESCRIPTION:
        length = len(tool.description)
        yield Objection("warning", about, f"a description of {length:,} characters; 1,024 are safe")
    if (size := tokens(tool)) > _LARGE_TOOL:
        yield Objection("warning", about, f"it takes about {size:,} tokens")
    yield from _of_input(about, tool.input_schema)
    if tool.output_schema is not None:
        yield from _valid(about, tool.output_schema, "outputSchema")
        if tool.output_schema.get("type") != "object":
            text = "outputSchema is not an object, which servers before 2026-07-28 must have"
            yield Objection("note", about, text)


def _of_input(about: str, schema: dict[str, Any]) -> Iterator[Objection]:
    yield from _valid(about, schema, "inputSchema")
    if schema.get("type") != "object":
        yield Objection("error", about, "inputSchema must have type object (the protocol says so)")
    for word in ("anyOf", "oneOf", "allOf", "not", "$ref"):
        if word in schema:
            text = f"`{word}` at the top of inputSchema; Claude and OpenAI refuse that"
            yield Objection("error", about, text)
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return
    undescribed = []
    for name, each in properties.items():
        if not _PROPERTY.fullmatch(name):
            text = f"argument {name!r}: models take names of 1 to 64 of A-Z a-z 0-9 _ - . only"
            yield Objection("error", about, text)
        if isinstance(each, dict) and not each.get("description"):
            undescribed.append(name)
    if undescribed:
        yield Objection("note", about, f"no description of {', '.join(undescribed)}")
    yield from _inside(about, properties, "", 0)


def _valid(about: str, schema: dict[str, Any], what: str) -> Iterator[Objection]:
    from mcpearl.schema.given import compile_schema

    try:
        compile_schema(schema, where=what)
    except (ValueError, TypeError) as error:
        yield Objection("error", about, str(error))


def _inside(about: str, node: Any, path: str, depth: int) -> Iterator[Objection]:
    """Look at the schemas inside of one; `path` says where."""
    if depth > _DEPTH:
        yield Objection("error", about, f"{path[:60]}…: it is nested more than {_DEPTH} deep")
        return
    if isinstance(node, list):
        for at, each in enumerate(node):
            yield from _inside(about, each, f"{path}[{at}]", depth + 1)
    if not isinstance(node, dict):
        return
    if path:
        yield from _of_schema(about, node, path)
    for name, each in node.items():
        if name not in ("default", "enum", "const", "examples"):
            yield from _inside(about, each, f"{path}.{name}" if path else name, depth + 1)


def _of_schema(about: str, schema: dict[str, Any], path: str) -> Iterator[Objection]:
    kind = schema.get("type")
    if kind == "array" and "items" not in schema and "prefixItems" not in schema:
        yield Objection(
            "warning", about, f"{path}: an array without `items`; OpenAI and Gemini refuse it"
        )
    if isinstance(kind, list) and len([each for each in kind if each != "null"]) > 1:
        yield Objection("warning", about, f"{path}: several types in one `type`; Gemini refuses it")
    options = schema.get("enum")
    if isinstance(options, list) and not all(isinstance(each, str) for each in options):
        yield Objection("warning", about, f"{path}: an enum of more than text; Gemini refuses it")
    reference = schema.get("$ref")
    if isinstance(reference, str) and not reference.startswith("#"):
        yield Objection(
            "error", about, f"{path}: `$ref` to {reference[:60]!r}; hosts fetch nothing"
        )


def _of_resources(offered: ServerOffer) -> Iterator[Objection]:
    for resource in offered.resources:
        if "://" not in resource.uri and ":" not in resource.uri:
            yield Objection(
                "error", f"resource {resource.uri}", "it is not a URI: it has no scheme"
            )
        if not resource.description and not resource.title:
            yield Objection("note", f"resource {resource.uri}", "it has no description")


def _of_prompts(offered: ServerOffer) -> Iterator[Objection]:
    for prompt in offered.prompts:
        if not prompt.description:
            yield Objection("note", f"prompt {prompt.name}", "it has no description")
