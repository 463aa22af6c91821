"""What a client knows about a server's tools from their lists: output schemas, and which may run twice.

Its size is bounded: if a server has more tools than fit, those listed last are known. `tool_calls`
decides when tools are listed.
"""

from itertools import islice
from math import inf
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from mcpearl.client.tool_result import Reader, TypedToolResult
from mcpearl.protocol.errors import InvalidResult
from mcpearl.runtime import clock
from mcpearl.runtime.bounded import BoundedDict
from mcpearl.types.tool_calls import CallToolResult
from mcpearl.types.tools import Tool

if TYPE_CHECKING:
    from mcpearl.schema.given import Validator

_MAX_BYTES = 32 << 20  # of names and schemas
_LONGEST_NAME = 128  # characters; no similar names are looked for beyond that
_MAX_COMPARED = 1000  # tools that are compared with an unknown name
_UNLISTED = 5.0  # seconds after which a tool that was called and not listed may be listed by now


class _Known(Struct, eq=False):
    """What is known about one tool."""

    repeatable: bool
    schema: bytes | None  # of its output, as JSON
    seen_in: int  # the generation of lists that had it last
    listed: bool = True  # False for a tool that the server has not listed
    doubted: float = inf  # the monotonic time from which on it may have listed it
    task_support: str = "forbidden"  # whether it may, must or cannot run as a task (2025-11-25)
    validator: "Validator | None" = None  # compiled when first needed
    reader: "Reader | None" = None  # makes `data` of results, compiled when first needed


class KnownTools:
    """The tools of one server, as far as they were listed."""

    def __init__(self, max_bytes: int = _MAX_BYTES) -> None:
        self._tools: BoundedDict[_Known] = BoundedDict(max_bytes)
        self.generation = 0
        """Counts how often the list changed, or may have changed."""

    def learn(self, tools: list[Tool]) -> None:
        """Remember the output schemas and hints of listed tools."""
        for tool in tools:
            hints = tool.annotations
            repeatable = hints is not None and bool(hints.idempotent_hint or hints.read_only_hint)
            schema = None if tool.output_schema is None else msgspec.json.encode(tool.output_schema)
            execution = tool.execution
            support = (None if execution is None else execution.task_support) or "forbidden"
            known = self._tools.get(tool.name)
            if known is not None and known.schema == schema:
                known.repeatable, known.listed = repeatable, True
                known.seen_in = self.generation
                known.task_support = support
            else:
                self._put(tool.name, repeatable, schema, support)

    def _put(
        self,
        name: str,
        repeatable: bool,
        schema: bytes | None,
        support: str = "forbidden",
    ) -> None:
        known = _Known(repeatable, schema, self.generation, task_support=support)
        self._tools.put(name, known, 0 if schema is None else len(schema))

    def knows(self, name: str) -> bool:
        """Whether the output schema and hints of a tool are known."""
        known = self._tools.get(name)
        return known is not None and self._holds(known)

    def _holds(self, known: _Known) -> bool:
        if known.seen_in != self.generation:
            return False
        return known.listed or clock.monotonic() < known.doubted

    def settle(self, name: str) -> None:
        """Note that a tool is not listed, so it has no output schema and no hints, for the time being.

        A server that has just started, such as a gateway, may list a tool later than it can be called.
        """
        if not self.knows(name):
            doubted = clock.monotonic() + _UNLISTED
            self._tools.put(name, _Known(False, None, self.generation, False, doubted), 0)

    def is_listed(self, name: str) -> bool:
        """Whether the server listed a tool, as far as that is known."""
        known = self._tools.get(name)
        return known is not None and known.listed

    def may_repeat(self, name: str) -> bool | None:
        """Whether running a tool twice has the effect of running it once; None when it is not known."""
        known = self._tools.get(name)
        return None if known is None else known.repeatable

    def task_support(self, name: str) -> str | None:
        """Whether a tool may, must or cannot run as a task; None when it is not known."""
        known = self._tools.get(name)
        return None if known is None else known.task_support

    def forget(self) -> None:
        """Forget everything: the list changed."""
        self._tools.clear()
        self.generation += 1

    def doubt(self) -> None:
        """Have tools listed again before their schemas are used: the server may have changed."""
        self.generation += 1

    def check(self, name: str, result: CallToolResult) -> bool:
        """Raise `InvalidResult` if a result breaks its tool's output schema.

        Return False if the schema is not known. The result also gets its reader, which makes `data`,
        since every call passes here.
        """
        known = self._tools.get(name)
        if known is None or known.seen_in != self.generation:
            return False
        if known.schema is None:
            return self._holds(known)
        if known.validator is None:
            known.validator = _compile(name, known.schema)
        try:
            known.validator.check(result.structured_content)
        except ValueError as error:
            if result.structured_content is None:  # not checked earlier: a schema may allow null
                raise InvalidResult(
                    f"tool `{name}` has an output schema but its result has no structured content"
                ) from None
            raise InvalidResult(
                f"the structured content of tool `{name}` breaks its output schema: {error}"
            ) from None
        if isinstance(result, TypedToolResult):
            if known.reader is None:
                known.reader = _reader(known.schema)
            result.__dict__["reader"] = known.reader
        return True

    def reader(self, name: str) -> "Reader | None":
        """Return the function that makes `data` of a tool's results; None if its schema is not known."""
        known = self._tools.get(name)
        if known is None or known.schema is None:
            return None
        if known.reader is None:
            known.reader = _reader(known.schema)
        return known.reader

    def is_wrapped(self, name: str) -> bool:
        """Whether the output schema says that a tool's results have their value under `result`."""
        known = self._tools.get(name)
        if known is None or known.schema is None:
            return False
        from mcpearl.client.tool_data import is_wrapped

        return is_wrapped(msgspec.json.decode(known.schema))

    def similar(self, name: str) -> list[str]:
        """Return known tools with names similar to one that is not known."""
        from difflib import get_close_matches

        if len(name) > _LONGEST_NAME:
            return []
        names = [each for each in islice(self._tools, _MAX_COMPARED) if self.is_listed(each)]
        return get_close_matches(name, names, 3)


def _reader(schema: bytes) -> Reader:
    """Return the function that makes `data`; it is compiled when `data` is first read."""
    read: Reader | None = None

    def read_late(content: Any) -> Any:
        nonlocal read
        if read is None:
            from mcpearl.client.tool_data import reader_by_schema

            read = reader_by_schema(msgspec.json.decode(schema))
        return read(content)

    return read_late


def _compile(name: str, schema: bytes) -> "Validator":
    from mcpearl.schema.errors import SchemaError
    from mcpearl.schema.given import compile_schema

    try:
        return compile_schema(msgspec.json.decode(schema), where=f"output schema of tool `{name}`")
    except SchemaError as error:
        raise InvalidResult(f"tool `{name}` announced an unusable schema: {error}") from None
