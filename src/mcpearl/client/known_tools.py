"""What is known of a server's tools from their lists: the outputs they promise, which may be repeated."""

from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from mcpearl.protocol.errors import InvalidResult
from mcpearl.types.tools import CallToolResult, Tool

if TYPE_CHECKING:
    from mcpearl.schema.given import Validator


class KnownTools:
    """The tools of one server, as far as they were listed."""

    def __init__(self) -> None:
        self._schemas: dict[str, dict[str, Any] | None] = {}  # of their outputs
        self._validators: dict[str, Validator | None] = {}
        self._repeatable: dict[str, bool] = {}

    def learn(self, tools: list[Tool]) -> None:
        """Note what listed tools promise."""
        for tool in tools:
            hints = tool.annotations
            self._repeatable[tool.name] = hints is not None and bool(
                hints.idempotent_hint or hints.read_only_hint
            )
            if self._schemas.get(tool.name, ...) != tool.output_schema:
                self._schemas[tool.name] = tool.output_schema
                self._validators.pop(tool.name, None)

    def knows(self, name: str) -> bool:
        """Whether it is known what a tool promises."""
        return name in self._schemas

    def settle(self, name: str) -> None:
        """Note that a tool is not listed, so promises nothing."""
        self._schemas.setdefault(name, None)
        self._repeatable.setdefault(name, False)

    def may_repeat(self, name: str) -> bool | None:
        """Whether running a tool twice does what running it once does; None when it is not known."""
        return self._repeatable.get(name)

    def forget(self) -> None:
        """Forget all: the list changed."""
        self._repeatable.clear()
        self.doubt()

    def doubt(self) -> None:
        """Look again at what tools promise: the server may be another one than before."""
        self._schemas.clear()
        self._validators.clear()

    def check(self, name: str, result: CallToolResult) -> None:
        """Refuse a result that breaks its tool's promise."""
        schema = self._schemas[name]
        if schema is None:
            return
        if result.structured_content is UNSET:
            raise InvalidResult(
                f"tool `{name}` has an output schema but gave no structured content"
            )
        validator = self._validator(name, schema)
        if validator is None:
            return
        try:
            validator.check(result.structured_content)
        except ValueError as error:
            raise InvalidResult(
                f"tool `{name}` gave structured content that breaks its output schema: {error}"
            ) from None

    def _validator(self, name: str, schema: dict[str, Any]) -> "Validator | None":
        if name not in self._validators:
            from mcpearl.schema.errors import SchemaError
            from mcpearl.schema.given import compile_schema

            try:
                validator = compile_schema(schema, where=f"output schema of tool `{name}`")
            except SchemaError as error:
                raise InvalidResult(
                    f"tool `{name}` announced an unusable schema: {error}"
                ) from None
            self._validators[name] = validator
        return self._validators[name]
