"""Questions of a server, asked at the terminal: forms, links to visit, and text of a model.

Without a terminal, forms are answered with what `--answer` says, and declined if that is not enough.
"""

import asyncio
import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

from mcpearl.cli.arguments import coerce
from mcpearl.cli.output import CommandOutput, clean
from mcpearl.cli.schema_text import type_name
from mcpearl.runtime.arguments import did_you_mean
from mcpearl.types.elicitation import ElicitRequestParams, ElicitResult
from mcpearl.types.sampling import CreateMessageRequestParams

_ATTEMPTS = 3


class Person:
    """Answers questions of a server: with given answers, or at the terminal.

    Args:
        out: where to write.
        answers: values of forms by name, as they would be typed.
    """

    def __init__(self, out: CommandOutput, answers: Mapping[str, str]) -> None:
        self._out = out
        self._answers = answers
        self._fields: list[str] = []  # of all forms there were
        self.present = sys.stdin.isatty() and sys.stderr.isatty()
        self.pause: Callable[[], None] = lambda: None
        """Called before a question, such as to take a bar away."""

    async def elicit(self, params: ElicitRequestParams) -> ElicitResult:
        """Answer a form, or a link to visit."""
        self.pause()
        self._out.note(f"? {params.message}", bold=True)
        if params.url is not None:
            return await self._visit(params.url)
        schema = params.requested_schema
        fields = schema.properties if schema else {}
        self._fields += fields
        if fields and self.present:
            self._out.note("  Ctrl-D declines, Ctrl-C ends the command", dim=True)
        content: dict[str, Any] = {}
        for name, field in fields.items():
            required = bool(schema and name in (schema.required or ()))
            given = await self._field(name, field if isinstance(field, dict) else {}, required)
            if given is None:
                return ElicitResult(action="decline")
            if given is not _LEFT_OUT:
                content[name] = given
        if not content and not self._answers and not await self._confirmed("Accept?"):
            return ElicitResult(action="decline")
        return ElicitResult(action="accept", content=content)

    async def _field(self, name: str, schema: dict[str, Any], required: bool) -> Any:
        """Return the value of a field; `_LEFT_OUT` for its default, None if there is no answer."""
        if name in self._answers:
            return self._given(name, schema)
        if not self.present:
            if not required or "default" in schema:
                return _LEFT_OUT
            self._out.warning(
                f"  declined: no terminal to ask for {name!r}; pass --answer {name}=…"
            )
            return None
        return await self._typed(name, schema, required)

    def _given(self, name: str, schema: dict[str, Any]) -> Any:
        """Return what `--answer` says; None if it does not fit the field."""
        try:
            return coerce(self._answers[name], _with_values(schema), {})
        except ValueError as error:
            self._out.warning(f"  declined: --answer {name}={self._answers[name]}: {error}")
            return None

    def name_unknown_answers(self) -> None:
        """Say which answers were for no field of any form, and which field was likely meant."""
        for name in self._answers:
            if self._fields and name not in self._fields:
                fields = list(dict.fromkeys(self._fields))
                meant = did_you_mean(name, fields) or f"; there were: {', '.join(fields)}"
                self._out.warning(f"--answer {name}: no form has such a field{meant}")

    async def _typed(self, name: str, schema: dict[str, Any], required: bool) -> Any:
        label = clean(schema.get("title") or name)
        about = clean(schema.get("description") or "")
        kind = clean(_options(schema) or type_name(schema))
        default = f", default {_as_typed(schema['default'])}" if "default" in schema else ""
        for _ in range(_ATTEMPTS):
            text = await self._line(
                f"  {label} ({kind}{default}){': ' + about if about else ''} > "
            )
            if text is None:
                return None
            if not text and ("default" in schema or not required):
                return _LEFT_OUT
            try:
                return coerce(text, _with_values(schema), {})
            except ValueError as error:
                self._out.warning(f"  {error}")
        self._out.warning(f"  declined: no value of {label} fitted")
        return None

    async def _visit(self, url: str) -> ElicitResult:
        self._out.note(f"  visit {url}")
        if await self._confirmed("Done?"):
            return ElicitResult(action="accept")
        return ElicitResult(action="decline")

    async def _confirmed(self, question: str) -> bool:
        if not self.present:
            return False
        return ((await self._line(f"  {question} [y/N] > ")) or "").strip().lower() in ("y", "yes")

    async def sample(self, params: CreateMessageRequestParams) -> str | None:
        """Have a person answer for the model; an empty answer refuses."""
        self.pause()
        self._out.note("? the server wants text of a model; you are the model", bold=True)
        for message in params.messages:
            blocks = message.content if isinstance(message.content, list) else [message.content]
            for block in blocks:
                self._out.note(f"  {message.role}: {getattr(block, 'text', f'[{block.type}]')}")
        return await self._line("  assistant > ") or None

    async def _line(self, prompt: str) -> str | None:
        """Read a line from the terminal without blocking the loop; None at its end."""
        sys.stderr.write(prompt)
        sys.stderr.flush()
        loop = asyncio.get_running_loop()
        readable = asyncio.Event()
        loop.add_reader(sys.stdin.fileno(), readable.set)
        try:
            await readable.wait()
        finally:
            loop.remove_reader(sys.stdin.fileno())
        line = sys.stdin.readline()
        if not line:  # Ctrl-D leaves the cursor behind the question
            sys.stderr.write("\n")
            return None
        return line.rstrip("\n")


_LEFT_OUT: Any = object()


def _as_typed(value: Any) -> str:
    """Return how a person would type a value."""
    return clean(value if isinstance(value, str) else json.dumps(value))


def _options(schema: dict[str, Any]) -> str:
    """Return the values of a choice, with their titles."""
    for word in ("oneOf", "anyOf"):
        if isinstance(listed := schema.get(word), list):
            return ", ".join(f"{one.get('const')} = {one.get('title')}" for one in _records(listed))
    if isinstance(names := schema.get("enumNames"), list):
        listed = zip(schema.get("enum") or (), names, strict=False)
        return ", ".join(f"{value} = {title}" for value, title in listed)
    if isinstance(items := schema.get("items"), dict):
        return f"some of {_options(items) or type_name(items)}, with commas"
    return ""


def _records(listed: list[Any]) -> list[dict[str, Any]]:
    """Return the members that are objects; a server may send any."""
    return [each for each in listed if isinstance(each, dict)]


def _with_values(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema whose titled choices are plain values."""
    for word in ("oneOf", "anyOf"):
        if isinstance(listed := schema.get(word), list):
            return {"enum": [one.get("const") for one in _records(listed)]}
    if isinstance(items := schema.get("items"), dict):
        return {**schema, "items": _with_values(items)}
    return schema
