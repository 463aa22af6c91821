"""Calls made up from the schemas of tools, to find arguments that crash them.

Hypothesis makes up the arguments and shrinks those that go wrong. It is synchronous, so it runs in a
thread, and each of its examples is a call on the event loop.
"""

import asyncio
import json
import logging
import re
import traceback
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

from mcpearl.client.client import Client
from mcpearl.client.targets import Reachable
from mcpearl.protocol.errors import (
    ConnectionLost,
    InvalidResult,
    McpearlError,
    McpError,
    RequestTimeout,
)
from mcpearl.runtime.arguments import did_you_mean, refuse_text
from mcpearl.schema import SchemaError
from mcpearl.types.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS
from mcpearl.types.tools import Tool

FindingKind = Literal["crash", "hang", "bad output", "refused", "accepted", "unusable"]

# How servers say that a tool raised something unexpected: mcpearl, FastMCP, the official SDK.
_CRASHED = re.compile(r"Tool `[^`]*` failed|Error (calling|executing) tool ")
_BAD_OUTPUT = re.compile(
    r"the result (does not fit|is or contains|has no JSON form)|returned .* JSON"
)
_REFUSED = re.compile(
    r"Invalid arguments for tool |Input validation error|\d+ validation errors? for "
)
_LONGEST = 2000  # characters of what a server said

_HEADLINES = {
    "crash": "crashed",
    "hang": "did not answer",
    "bad output": "returned what its output schema does not allow",
    "refused": "refused arguments that fit its schema",
    "accepted": "accepted arguments that do not fit its schema",
    "unusable": "has a schema that no arguments can be made for",
}


class Finding(NamedTuple):
    """Something that is wrong with a tool, and the smallest call that was found to show it."""

    tool: str
    kind: FindingKind
    """`crash`, `hang` (no answer in time), `bad output`, `refused` (valid arguments), `accepted` (invalid
    arguments) or `unusable` (the schema)."""
    arguments: dict[str, Any]
    said: str
    """What the server answered, or what it raised."""

    def __str__(self) -> str:
        call = f"await client.call_tool({self.tool!r}, {self.arguments!r})"
        headline = f"tool `{self.tool}` {_HEADLINES[self.kind]}"
        return f"{headline}: {self.said}\n    {call}" if self.said else f"{headline}\n    {call}"


class Report(NamedTuple):
    """What exploring a server has found."""

    findings: list[Finding]
    calls: int
    """How many calls were made."""
    tools: list[str]
    """The tools that were called."""
    left_out: list[str]
    """The tools that were not: they say that they are destructive."""

    def __str__(self) -> str:
        head = f"calls: {self.calls}, tools: {len(self.tools)}, findings: {len(self.findings)}"
        if self.left_out:
            head += f"; not called, since they are destructive: {', '.join(self.left_out)}"
        return "\n\n".join([head, *map(str, self.findings)])

    def check(self) -> None:
        """Raise AssertionError if there are findings."""
        __tracebackhide__ = True  # pytest shows the test instead
        if self.findings:
            raise AssertionError(str(self))


async def explore(
    client: Client,
    tools: Collection[str] | None = None,
    *,
    examples: int = 100,
    invalid: bool = True,
    destructive: bool = False,
    timeout: float = 10.0,
    seed: int = 0,
) -> Report:
    """Call the tools of a server with arguments made up from their schemas, and report what goes wrong.

    It needs Hypothesis: `pip install "mcpearl[testing]"`.

    Args:
        client: A client that is connected to the server.
        tools: The names of the tools to call; by default all.
        examples: How many calls of each tool are tried, for valid and for invalid arguments each.
        invalid: Whether arguments that do not fit the schema are tried too.
        destructive: Whether tools are called that say they are destructive.
        timeout: Seconds after which a call counts as hanging.
        seed: Another number tries other arguments.
    """
    refuse_text("tools", tools)
    offered = [tool async for tool in client.tools()]
    if tools is not None and (unknown := set(tools) - {tool.name for tool in offered}):
        hint = did_you_mean(min(unknown), [tool.name for tool in offered])
        raise ValueError(f"the server has no tool {', '.join(map(repr, sorted(unknown)))}{hint}")
    wanted = [tool for tool in offered if tools is None or tool.name in tools]
    left_out = [] if destructive else [tool.name for tool in wanted if _is_destructive(tool)]
    wanted = [tool for tool in wanted if tool.name not in left_out]
    findings: list[Finding] = []
    calls = 0
    with _quiet() as raised:
        for tool in wanted:
            for valid in (True, False) if invalid else (True,):
                search = _Search(client, tool, raised, valid=valid, timeout=timeout)
                findings += await search.run(examples, seed)
                calls += search.calls
    return Report(_distinct(findings), calls, [tool.name for tool in wanted], left_out)


async def check_tools(
    target: Reachable,
    tools: Collection[str] | None = None,
    *,
    examples: int = 100,
    invalid: bool = True,
    destructive: bool = False,
    timeout: float = 10.0,
    seed: int = 0,
) -> Report:
    """Connect to a server, explore its tools, and raise AssertionError if something is wrong with them.

    >>> async def test_tools():
    ...     await check_tools(app)

    Args:
        target: Whatever `Client` takes.
        tools: The names of the tools to call; by default all.
        examples: How many calls of each tool are tried, for valid and for invalid arguments each.
        invalid: Whether arguments that do not fit the schema are tried too.
        destructive: Whether tools are called that say they are destructive.
        timeout: Seconds after which a call counts as hanging.
        seed: Another number tries other arguments.
    """
    __tracebackhide__ = True
    async with Client(target) as client:
        report = await explore(
            client,
            tools,
            examples=examples,
            invalid=invalid,
            destructive=destructive,
            timeout=timeout,
            seed=seed,
        )
    report.check()
    return report


def _is_destructive(tool: Tool) -> bool:
    return tool.annotations is not None and tool.annotations.destructive_hint is True


def _distinct(findings: list[Finding]) -> list[Finding]:
    """Return the findings, each of them once for a tool."""
    found: dict[tuple[str, str, str], Finding] = {}
    for finding in findings:
        found.setdefault((finding.tool, finding.kind, _signature(finding)), finding)
    return list(found.values())


def _signature(finding: Finding) -> str:
    """Return what tells two findings of one kind apart: what was raised, and where."""
    return re.sub(r"[:'\"].*? (?=\(\S+, line \d+)|: .*$", " ", finding.said) if finding.said else ""


class _LoggedException(logging.Filter):
    """Keeps the last exception that a server in this process logged, and failed calls out of its log."""

    def __init__(self) -> None:
        super().__init__()
        self.last: BaseException | None = None

    def filter(self, record: logging.LogRecord) -> bool:
        if not record.exc_info:
            return not record.getMessage().startswith("tools/call ")
        self.last = record.exc_info[1]
        return False


@contextmanager
def _quiet() -> Iterator[_LoggedException]:
    raised = _LoggedException()
    logger = logging.getLogger("mcpearl.server")
    logger.addFilter(raised)
    try:
        yield raised
    finally:
        logger.removeFilter(raised)


class _Search:
    """Looks for arguments with which one tool goes wrong."""

    def __init__(
        self, client: Client, tool: Tool, raised: _LoggedException, *, valid: bool, timeout: float
    ) -> None:
        self.calls = 0
        self._client = client
        self._tool = tool
        self._raised = raised
        self._valid = valid
        self._timeout = timeout
        self._final: Finding | None = None  # after which no more calls are made
        self._cancelled = False
        self._kinds: dict[tuple[str, str], type[_FoundByHypothesis]] = {}

    async def run(self, examples: int, seed: int) -> list[Finding]:
        loop = asyncio.get_running_loop()
        work = asyncio.ensure_future(asyncio.to_thread(self._search, loop, examples, seed))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            self._cancelled = True
            await asyncio.wait([work])
            raise

    def _search(self, loop: asyncio.AbstractEventLoop, examples: int, seed: int) -> list[Finding]:
        """Run Hypothesis, in a thread."""
        hypothesis = _hypothesis()
        from mcpearl.testing.strategies import fitting, unfitting

        def attempt(arguments: dict[str, Any]) -> None:
            if self._cancelled:
                return
            if self._final is None:
                call = asyncio.run_coroutine_threadsafe(self._try(arguments), loop)
                finding = call.result()
            else:
                finding = self._final
            if finding is not None:
                raise self._as_error(finding)

        try:
            schema = self._tool.input_schema
            made = fitting(schema) if self._valid else unfitting(schema)
            test = hypothesis.given(made)(attempt)
            test = hypothesis.seed(seed)(test)
            test = hypothesis.settings(
                max_examples=examples,
                deadline=None,
                database=None,
                print_blob=False,
                suppress_health_check=list(hypothesis.HealthCheck),
                phases=[hypothesis.Phase.generate, hypothesis.Phase.shrink],
            )(test)
            with hypothesis.reporting.with_reporter(lambda _: None):
                test()
        except _FoundByHypothesis as error:
            return [error.finding]
        except BaseExceptionGroup as group:
            found = [each for each in _leaves(group) if isinstance(each, _FoundByHypothesis)]
            return [each.finding for each in found]
        except SchemaError as error:
            return [Finding(self._tool.name, "unusable", {}, str(error))]
        except hypothesis.errors.Unsatisfiable as error:
            # There may be nothing that does not fit.
            return [Finding(self._tool.name, "unusable", {}, str(error))] if self._valid else []
        return []

    def _as_error(self, finding: Finding) -> "_FoundByHypothesis":
        """Return a finding as an error; errors of one type are one bug for Hypothesis."""
        key = finding.kind, _signature(finding)
        kind = self._kinds.setdefault(key, type("Found", (_FoundByHypothesis,), {}))
        return kind(finding)

    async def _try(self, arguments: dict[str, Any]) -> Finding | None:
        """Call the tool once, and return what is wrong with its answer."""
        self.calls += 1
        self._raised.last = None
        try:
            result = await self._client.call_tool(self._tool.name, arguments, timeout=self._timeout)
        except RequestTimeout:
            self._final = self._found("hang", arguments, f"not within {self._timeout:g} s")
            return self._final
        except ConnectionLost as lost:
            self._final = self._found("crash", arguments, f"the connection was lost: {lost}")
            return self._final
        except InvalidResult as error:
            return self._found("bad output", arguments, str(error))
        except McpError as error:
            return self._refused(error, arguments)
        except McpearlError as error:
            return self._found("crash", arguments, str(error))
        if not result.is_error:
            return None if self._valid else self._found("accepted", arguments, "")
        return self._failed(result.text, arguments)

    def _refused(self, error: McpError, arguments: dict[str, Any]) -> Finding | None:
        if error.code == INTERNAL_ERROR:
            return self._found("crash", arguments, self._story(error.message))
        if error.code == INVALID_PARAMS and self._valid:
            return self._found("refused", arguments, error.message)
        return None

    def _failed(self, text: str, arguments: dict[str, Any]) -> Finding | None:
        """Tell a tool that says no from one that went wrong."""
        if _REFUSED.search(text):
            return self._found("refused", arguments, text) if self._valid else None
        if _CRASHED.match(text):
            return self._found("crash", arguments, self._story(text))
        if _BAD_OUTPUT.search(text):
            return self._found("bad output", arguments, text)
        return None

    def _found(self, kind: FindingKind, arguments: dict[str, Any], said: str) -> Finding:
        plain = json.loads(json.dumps(arguments))
        return Finding(self._tool.name, kind, plain, said[:_LONGEST])

    def _story(self, text: str) -> str:
        """Return what was raised and where, if the server is in this process; else what it said."""
        error = self._raised.last
        if error is None:
            return text
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if "/mcpearl/" not in frame.filename] or frames
        said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        if not own:
            return said
        place = own[-1].filename.removeprefix(f"{Path.cwd()}/")
        return f"{said} ({place}, line {own[-1].lineno}, in {own[-1].name})"


class _FoundByHypothesis(Exception):
    """A finding, for Hypothesis."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.kind)
        self.finding = finding


def _leaves(group: BaseExceptionGroup[Any]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error


def _hypothesis() -> Any:
    try:
        import hypothesis
        import hypothesis.errors
        import hypothesis.reporting
    except ImportError:
        raise ImportError(
            'exploring tools needs Hypothesis: pip install "mcpearl[testing]"'
        ) from None
    return hypothesis
