"""Turns a function's signature into an input schema and a compiled decoder.

Decoding is the validation: raw JSON is decoded directly into typed values, which are passed to the
function. Pydantic decodes signatures that use it, msgspec all others; this is decided once, at
registration.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from mcpearl.schema.docstring import parse_docstring
from mcpearl.schema.errors import ArgumentsError, SignatureError
from mcpearl.schema.inside import uses_pydantic
from mcpearl.schema.parameters import Parameter, Subject, inspect_callable, unpacked
from mcpearl.schema.with_msgspec import Arguments, MsgspecArguments

if TYPE_CHECKING:
    from mcpearl.schema.with_pydantic import PydanticArguments

__all__ = ["Arguments", "Signature", "compile_signature"]


class Signature:
    """A compiled function signature: the schema, the decoder, and the call.

    Args:
        subject: The function, its parameters and its docstring; `compile_signature` reads them.
        injected: The parameters that the caller does not give: `call` takes their values.
    """

    __slots__ = (
        "_compiled",
        "_decode",
        "_mismatch",
        "call",
        "description",
        "filled",
        "injected",
        "input_schema",
        "name",
        "returns",
    )

    #: `call(arguments, injected)` calls the function with decoded arguments. `injected` maps the
    #: names in `self.injected` to values; it is None when nothing is injected.
    call: Callable[[Any, dict[str, Any] | None], Any]

    def __init__(self, subject: Subject, injected: tuple[str, ...]) -> None:
        documented = parse_docstring(subject.doc)
        offered = [each for each in subject.parameters if each.name not in injected]
        named = [each for each in offered if each.kind is not inspect.Parameter.VAR_KEYWORD]
        extra = next((each for each in offered if each.kind is inspect.Parameter.VAR_KEYWORD), None)
        options = None if extra is None else unpacked(extra)
        if options is not None:
            named, extra = [*named, *options], None
        self.name = subject.name
        self.injected = injected
        #: The parameters that are injected, as they were declared.
        self.filled = tuple(each for each in subject.parameters if each.name in injected)
        self.description: str | None = documented.summary or None
        #: The resolved return annotation, for `compile_output`; MISSING if there is none.
        self.returns = subject.returns
        self._compiled = _arguments(named, extra, str(subject))
        self._decode = self._compiled.decode
        self._mismatch = self._compiled.mismatch
        self.input_schema = _input_schema(self._compiled, documented.parameters)
        self.call = _caller(subject, injected, self._compiled.attributes, options)

    def decode(self, arguments: bytes | msgspec.Raw | None) -> Any:
        """Decode raw JSON into arguments for `call`.

        Args:
            arguments: A JSON object; None for no arguments.

        Raises `ArgumentsError` if they do not fit, `msgspec.DecodeError` if they are not JSON.
        """
        if arguments is None:
            arguments = b"{}"
        decode = self._decode  # calling a local name is faster than calling an attribute
        try:
            return decode(arguments)
        except self._mismatch as error:
            from mcpearl.schema.whole_numbers import with_whole_numbers

            return self._decode_again(with_whole_numbers(arguments), arguments, error)
        except RecursionError:
            raise ArgumentsError("the arguments are nested too deeply") from None

    def _decode_again(
        self, whole: bytes | None, arguments: bytes | msgspec.Raw, error: Exception
    ) -> Any:
        if whole is None:
            raise self._compiled.explain(arguments, error, strict=True) from None
        try:
            return self._decode(whole)
        except self._mismatch as again:
            raise self._compiled.explain(whole, again, strict=True) from None

    def decode_lenient(self, arguments: bytes | msgspec.Raw | None) -> Any:
        """Decode raw JSON as `decode` does, but also take what models send by mistake.

        `"3"` is taken for a number and `"true"` for a boolean, where one is expected, and JSON text for
        an array or object.

        Args:
            arguments: A JSON object; None for no arguments.
        """
        if arguments is None:
            arguments = b"{}"
        try:
            return self._decode(arguments)
        except self._mismatch:
            pass
        except RecursionError:
            raise ArgumentsError("the arguments are nested too deeply") from None
        try:
            given = msgspec.json.decode(arguments, type=dict[str, msgspec.Raw])
        except msgspec.ValidationError:
            return self.decode(arguments)  # raises, since it is not an object
        raw = msgspec.json.encode({name: self._read(name, each) for name, each in given.items()})
        from mcpearl.schema.whole_numbers import with_whole_numbers

        raw = with_whole_numbers(raw) or raw
        try:
            return self._compiled.decode_lax(raw)
        except self._mismatch as error:
            raise self._compiled.explain(raw, error, strict=False) from None

    def _read(self, name: str, raw: msgspec.Raw) -> Any:
        if bytes(raw)[:1] != b'"':
            return raw
        return self._as_json(name, msgspec.json.decode(raw, type=str))

    def bind(self, values: dict[str, Any]) -> Any:
        """Decode values that are already parsed.

        Args:
            values: The arguments by name, as JSON types.
        """
        return self.decode(msgspec.json.encode(values))

    def decode_strings(self, values: dict[str, str]) -> Any:
        """Decode arguments that are always text, such as those of prompts and URI templates.

        `"3"` fits an `int`; arrays and objects are written as JSON.

        Args:
            values: The arguments by name.
        """
        raw = msgspec.json.encode(
            {name: self._as_json(name, text) for name, text in values.items()}
        )
        try:
            return self._compiled.decode_lax(raw)
        except self._mismatch as error:
            raise self._compiled.explain(raw, error, strict=False) from None

    def _as_json(self, name: str, text: str) -> str | msgspec.Raw:
        schema = self._compiled.properties.get(name, {})
        if text.lstrip()[:1] not in ("[", "{") or _takes_text(schema, self._compiled.defs):
            return text
        try:
            msgspec.json.decode(text)
        except msgspec.DecodeError:
            return text
        return msgspec.Raw(text)


def compile_signature(
    function: Callable[..., Any],
    *,
    skip: Callable[[Parameter], bool] = lambda parameter: False,
    name: str | None = None,
    where: str = "tool",
) -> Signature:
    """Compile a function's signature. Raises `SignatureError` if it has no JSON form.

    Args:
        function: The function, or any other callable.
        skip: `skip(parameter)` is true for parameters that are injected at the call and not part
            of the schema.
        name: How error messages name the function; by default its own name.
        where: What kind of thing the function is, for error messages.

    >>> def add(a: int, b: int = 1) -> int:
    ...     return a + b
    >>> signature = compile_signature(add)
    >>> signature.call(signature.decode(b'{"a": 2}'), None)
    3
    """
    subject = inspect_callable(function, name=name, where=where)
    kinds = {each.kind for each in subject.parameters}
    if kinds == {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}:
        raise SignatureError(
            f"{subject}: the signature is `(*{subject.parameters[0].name}, "
            f"**{subject.parameters[1].name})`, which says nothing about the arguments; if a "
            "decorator hides the function's own signature, put `@functools.wraps(function)` above "
            "the wrapper inside the decorator"
        )
    for each in subject.parameters:
        if each.kind is inspect.Parameter.VAR_POSITIONAL:
            raise SignatureError(
                f"{subject}: parameter `*{each.name}` has no JSON form, since arguments are passed "
                f"by name; use `{each.name}: list[...]`"
            )
    injected = tuple(each.name for each in subject.parameters if skip(each))
    return Signature(subject, injected)


def _arguments(
    named: list[Parameter], extra: Parameter | None, subject: str
) -> MsgspecArguments | PydanticArguments:
    parameters = named if extra is None else [*named, extra]
    if any(uses_pydantic(each.annotation) or uses_pydantic(each.default) for each in parameters):
        from mcpearl.schema.with_pydantic import PydanticArguments

        return PydanticArguments(named, extra, subject)
    return MsgspecArguments(named, extra, subject)


def _input_schema(
    compiled: MsgspecArguments | PydanticArguments, documented: dict[str, str]
) -> dict[str, Any]:
    for name, each in compiled.properties.items():
        if text := documented.get(name):
            each.setdefault("description", text)
    schema: dict[str, Any] = {"type": "object", "properties": compiled.properties}
    if compiled.required:
        schema["required"] = compiled.required
    if compiled.additional is not True:
        schema["additionalProperties"] = compiled.additional
    if compiled.defs:
        schema["$defs"] = compiled.defs
    return schema


def _caller(
    subject: Subject,
    injected: tuple[str, ...],
    attributes: dict[str, str],
    options: list[Parameter] | None,
) -> Callable[[Any, dict[str, Any] | None], Any]:
    """Compile the call from source, so that it costs no more than a call written by hand."""
    passed = []
    for each in subject.parameters:
        if each.kind is inspect.Parameter.VAR_KEYWORD and options is not None:
            pairs = ", ".join(f"{one.name!r}: a.{attributes[one.name]}" for one in options)
            passed.append(f"**{{k: v for k, v in {{{pairs}}}.items() if v is not UNSET}}")
            continue
        value = f"i[{each.name!r}]" if each.name in injected else f"a.{attributes[each.name]}"
        if each.kind is inspect.Parameter.VAR_KEYWORD:
            passed.append(f"**{value}")
        elif each.kind is inspect.Parameter.KEYWORD_ONLY:
            passed.append(f"{each.name}={value}")
        else:
            passed.append(value)
    # Safe to evaluate: the names come from `inspect`, which accepts identifiers only.
    source = f"lambda a, i: function({', '.join(passed)})"
    call: Callable[[Any, dict[str, Any] | None], Any] = eval(
        source, {"function": subject.function, "UNSET": msgspec.UNSET}
    )
    return call


def _takes_text(schema: dict[str, Any], defs: dict[str, Any]) -> bool:
    if "$ref" in schema:
        return _takes_text(defs[schema["$ref"].rpartition("/")[2]], defs)
    if "anyOf" in schema:
        return any(_takes_text(option, defs) for option in schema["anyOf"])
    return "type" not in schema or schema["type"] == "string"
