"""What is known of a server's tools from their lists: output schemas, and which may run twice.

Bounded: of a server with more tools than fit, the tools listed last are known. How the tools come to
be listed is decided in `tool_calls`.
"""

from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET, Struct

from mcpearl.protocol.errors import InvalidResult
from mcpearl.runtime.bounded import BoundedDict
from mcpearl.types.tools import CallToolResult, Tool

if TYPE_CHECKING:
    from mcpearl.schema.given import Validator

_MAX_BYTES = 32 << 20  # of names and schemas


class _Known(Struct, eq=False):
    """One tool."""

    repeatable: bool
    schema: bytes | None  # of its output, as JSON
    seen_in: int  # the generation of lists that had it last
    task_support: str = "forbidden"  # whether it may, must or cannot run as a task (2025-11-25)
    validator: "Validator | None" = None  # compiled when first needed


class KnownTools:
    """The tools of one server, as far as they were listed."""

    def __init__(self, max_bytes: int = _MAX_BYTES) -> None:
        self._tools: BoundedDict[_Known] = BoundedDict(max_bytes)
        self.generation = 0
        """Counts the times the list changed, or may have changed."""

    def learn(self, tools: list[Tool]) -> None:
        """Note what listed tools promise."""
        for tool in tools:
            hints = tool.annotations
            repeatable = hints is not None and bool(hints.idempotent_hint or hints.read_only_hint)
            schema = None if tool.output_schema is None else msgspec.json.encode(tool.output_schema)
            execution = tool.execution
            support = (None if execution is None else execution.task_support) or "forbidden"
            known = self._tools.get(tool.name)
            if known is not None and known.schema == schema:
                known.repeatable = repeatable
                known.seen_in = self.generation
                known.task_support = support
            else:
                self._put(tool.name, repeatable, schema, support)

    def _put(
        self, name: str, repeatable: bool, schema: bytes | None, support: str = "forbidden"
    ) -> None:
        known = _Known(repeatable, schema, self.generation, support)
        self._tools.put(name, known, 0 if schema is None else len(schema))

    def knows(self, name: str) -> bool:
        """Whether it is known what a tool promises."""
        known = self._tools.get(name)
        return known is not None and known.seen_in == self.generation

    def settle(self, name: str) -> None:
        """Note that a tool is not listed, so it promises nothing."""
        if not self.knows(name):
            self._put(name, False, None)

    def may_repeat(self, name: str) -> bool | None:
        """Whether running a tool twice does what running it once does; None when it is not known."""
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
        """Have output schemas listed again: the server may be another one than before."""
        self.generation += 1

    def check(self, name: str, result: CallToolResult) -> bool:
        """Refuse a result that breaks its tool's output schema; False when that is not known."""
        known = self._tools.get(name)
        if known is None or known.seen_in != self.generation:
            return False
        if known.schema is None:
            return True
        if result.structured_content is UNSET:
            raise InvalidResult(
                f"tool `{name}` has an output schema but its result has no structured content"
            )
        if known.validator is None:
            known.validator = _compile(name, known.schema)
        try:
            known.validator.check(result.structured_content)
        except ValueError as error:
            raise InvalidResult(
                f"the structured content of tool `{name}` breaks its output schema: {error}"
            ) from None
        return True


def _compile(name: str, schema: bytes) -> "Validator":
    from mcpearl.schema.errors import SchemaError
    from mcpearl.schema.given import compile_schema

    try:
        return compile_schema(msgspec.json.decode(schema), where=f"output schema of tool `{name}`")
    except SchemaError as error:
        raise InvalidResult(f"tool `{name}` announced an unusable schema: {error}") from None
