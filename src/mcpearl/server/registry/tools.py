"""Tools: functions with their schemas, called with decoded arguments."""

import asyncio
import logging
import string
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin

import msgspec
from msgspec import UNSET, Raw, UnsetType

from mcpearl.protocol.errors import McpError, ToolError
from mcpearl.protocol.events import Encoded
from mcpearl.schema.errors import ArgumentsError, OutputError
from mcpearl.schema.output import Output, compile_output
from mcpearl.server.context import Context
from mcpearl.server.registry.encoded import encoded_tool_result, to_json
from mcpearl.server.registry.functions import PLAIN, HandlerFunction, compile_handler, scopes_of
from mcpearl.server.registry.registration import (
    check_input_schema,
    check_texts,
    icons_of,
    record_of,
)
from mcpearl.types.base import Icon, Result
from mcpearl.types.jsonrpc import PARSE_ERROR
from mcpearl.types.tools import Tool, ToolAnnotations, ToolExecution

if TYPE_CHECKING:
    from mcpearl.runtime.rate import Meter
    from mcpearl.runtime.threads import ThreadPool
    from mcpearl.schema.given import Validator
    from mcpearl.server.tasks.options import TaskOption, Tasks
    from mcpearl.transports.mirrored_headers import ParameterPath
    from mcpearl.types.tool_calls import CallToolResult

logger = logging.getLogger("mcpearl.server")
_NAME_CHARACTERS = frozenset(string.ascii_letters + string.digits + "_.-")
_LONGEST_NAME = 128


class ToolEntry:
    """A registered tool."""

    __slots__ = (
        "_decode",
        "_function",
        "_given_output",
        "_is_open",
        "_output",
        "_plain",
        "_to_result",
        "at_once",
        "definition",
        "mirrored",
        "name",
        "scopes",
        "tasks",
        "timeout",
    )

    meter: "Meter | None" = None  # counts calls against a rate, where the tool has one

    def __init__(
        self,
        function: Callable[..., Any],
        pool: "ThreadPool",
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        annotations: ToolAnnotations | dict[str, Any] | None = None,
        icons: list[Icon] | None = None,
        meta: dict[str, Any] | None = None,
        input_schema: dict[str, Any] | None = None,
        output_schema: dict[str, Any] | None = None,
        timeout: float | None = None,
        lenient: bool = False,
        scopes: Iterable[str] = (),
        task: "TaskOption" = None,
    ) -> None:
        check_texts(name=name, title=title, description=description)
        signature = compile_handler(function, "tool", name)
        name = name or signature.name
        if not 0 < len(name) <= _LONGEST_NAME or not _NAME_CHARACTERS.issuperset(name):
            logger.warning(
                "clients may refuse the tool name %r; use 1 to 128 letters, digits, `_`, `-`, `.`",
                name,
            )
        self.name = name
        self._function = HandlerFunction(function, signature, pool)
        self._decode: Callable[[bytes | Raw | None], Any] = (
            signature.decode_lenient if lenient else signature.decode
        )
        if input_schema is not None:
            if lenient:
                raise TypeError(
                    f"tool `{name}`: `lenient` goes by the function's own types, and this tool has "
                    "an `input_schema`, which is applied as it is; leave out one of them"
                )
            check_input_schema(input_schema, signature.input_schema, f"tool `{name}`")
            self._decode = _GivenInput(input_schema, signature, name).decode
        self._output: Output | None = None
        self._given_output: Validator | None = None
        self._is_open = False  # whether values may be content, of any kind
        # Makes a result of a value; loaded when it is first needed.
        self._to_result: Callable[[Any, Output | None, str], CallToolResult] | None = None
        returns = self._function.returns
        declared = _declared_content(returns)
        if output_schema is None and declared is not None:
            output = compile_output(declared, where="tool", name=name)
            output_schema = None if output is None else output.schema
        if output_schema is not None:
            self._given_output = _given(output_schema, f"output schema of tool `{name}`")
        elif declared is None:
            self._output = compile_output(returns, where="tool", name=name, is_content=_is_content)
            output_schema = None if self._output is None else self._output.schema
        if _may_hold_content(returns) and self._output is not None:
            # A schema would promise structured content, and content blocks are not structured.
            self._is_open, output_schema = True, None
        # Encodes a value at once, if nothing reads the result before it is sent.
        self._plain = None if self._is_open else self._output
        if annotations is not None:
            annotations = record_of(ToolAnnotations, annotations, f"tool `{name}`: annotations")
        self.timeout = timeout
        self.scopes = scopes_of(scopes)
        self.tasks: Tasks | None = None
        execution: ToolExecution | None = None
        if task is not None and task is not False:
            from mcpearl.server.tasks.options import execution_of, tasks_of

            self.tasks = tasks_of(task)
            execution = execution_of(self.tasks)
        self.definition = Tool(
            name=name,
            title=title,
            description=description or signature.description,
            input_schema=input_schema or signature.input_schema,
            output_schema=output_schema,
            annotations=annotations,
            execution=execution,
            icons=icons_of(icons, f"tool `{name}`"),
            meta=meta,
        )
        self.mirrored = _mirrored(self.definition)
        becomes_task = self.tasks is not None and self.tasks.after is None
        self.at_once = self._function.at_once and timeout is None and not becomes_task
        """Whether calls of the tool return without waiting; see `Dispatcher.at_once`."""

    async def call(self, raw: Raw | UnsetType, ctx: Context) -> Result | Encoded:
        """Call the tool with raw arguments."""
        decode, run = self._decode, self._function.run
        try:
            arguments = decode(None if raw is UNSET else raw)
        except ArgumentsError:
            raise
        except msgspec.DecodeError as error:
            raise McpError(PARSE_ERROR, f"The arguments are not JSON: {error}") from None
        if self.timeout is None:
            value = await run(arguments, ctx)
        else:
            value = await self._within(self.timeout, arguments, ctx)
        if type(value) not in PLAIN and isinstance(value, Result):
            return self._checked(value)
        if self._given_output is not None:
            return self._structured(value)
        if self._plain is not None and ctx.takes_encoded():
            return encoded_tool_result(value, self._plain)
        to_result = self._to_result or self._find_to_result()
        return to_result(value, self._output, self.name)

    def _find_to_result(self) -> "Callable[[Any, Output | None, str], CallToolResult]":
        from mcpearl.server.registry.results import open_result, tool_result

        self._to_result = open_result if self._is_open else tool_result
        return self._to_result

    async def _within(self, timeout: float, arguments: Any, ctx: Context) -> Any:
        limit = asyncio.timeout(timeout)
        try:
            async with limit:
                return await self._function.run(arguments, ctx)
        except TimeoutError:
            if not limit.expired():
                raise  # the tool raised it itself
            raise ToolError(f"Tool `{self.name}` did not finish within {timeout:g} s") from None

    def _structured(self, value: Any) -> Result:
        """Check a value against the handwritten output schema and return it as data and text."""
        assert self._given_output is not None
        to_result = self._to_result or self._find_to_result()
        result = to_result(value, None, self.name)
        result.structured_content = Raw(to_json(value, self.name))
        return self._checked(result)

    def _checked(self, result: Result) -> Result:
        from mcpearl.server.registry.results import whole_result
        from mcpearl.server.registry.returns import ToolResult
        from mcpearl.types.tool_calls import CallToolResult

        name = self.name
        if isinstance(result, ToolResult):
            result = whole_result(result, name)
        if not isinstance(result, CallToolResult) or result.is_error:
            return result
        if self.definition.output_schema is not None and result.structured_content is None:
            raise OutputError(
                f"tool `{name}` has an output schema but returned no structured content"
            )
        if self._given_output is not None:
            try:
                self._given_output.check_json(to_json(result.structured_content, name))
            except ValueError as error:
                raise OutputError(
                    f"tool `{name}` returned a value that does not fit its output schema: {error}"
                ) from None
        return result


def _declared_content(annotation: Any) -> Any:
    """Return the type in `Annotated[CallToolResult, Type]`: that of its structured content."""
    if get_origin(annotation) is not Annotated:
        return None
    from mcpearl.server.registry.returns import ToolResult
    from mcpearl.types.tool_calls import CallToolResult

    result, declared, *_ = get_args(annotation)
    if isinstance(result, type) and issubclass(result, (CallToolResult, ToolResult)):
        return declared
    return None


def _is_content(annotation: Any) -> bool:
    """Return whether a return annotation is content, for which no schema is published."""
    if isinstance(annotation, type) and annotation in PLAIN:
        return annotation is bytes
    from mcpearl.server.registry.results import is_content

    return is_content(annotation)


def _may_hold_content(annotation: Any) -> bool:
    """Return whether a return annotation is a list of any values, which may be content."""
    return (get_origin(annotation) or annotation) in (list, tuple, Sequence) and all(
        part in (Any, object, ...) for part in get_args(annotation)
    )


class _GivenInput:
    """Checks arguments against a handwritten schema, then decodes them by the signature."""

    def __init__(self, schema: dict[str, Any], signature: Any, name: str) -> None:
        self._validator = _given(schema, f"input schema of tool `{name}`")
        self._signature = signature

    def decode(self, raw: bytes | Raw | None) -> Any:
        self._validator.check_json(b"{}" if raw is None else bytes(raw))
        return self._signature.decode(raw)


def _given(schema: dict[str, Any], where: str) -> "Validator":
    from mcpearl.schema.given import compile_schema

    return compile_schema(schema, where=where)


def _mirrored(tool: Tool) -> "dict[ParameterPath, str]":
    """Return the parameters that calls of a tool mirror into headers over HTTP."""
    if "x-mcp-header" not in str(tool.input_schema):
        return {}
    from mcpearl.transports.mirrored_headers import annotated

    try:
        return annotated(tool.input_schema)
    except ValueError as error:
        logger.warning("tool %r: no headers are mirrored: %s", tool.name, error)
        return {}
