"""JSON Schema from and for Python. A bottom layer: it does not know servers or transports.

`compile_signature` turns a function into an input schema and a decoder, `compile_output` turns a
return annotation into an output schema and a checking encoder, and `compile_schema` turns a schema
written by hand into a validator. The modules are imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mcpearl.schema.docstring import Docstring, parse_docstring
    from mcpearl.schema.errors import (
        ArgumentsError,
        OutputError,
        SchemaError,
        SchemaMismatch,
        SignatureError,
    )
    from mcpearl.schema.given import Validator, compile_schema
    from mcpearl.schema.output import Output, compile_output
    from mcpearl.schema.signature import Arguments, Signature, compile_signature

__all__ = [
    "Arguments",
    "ArgumentsError",
    "Docstring",
    "Output",
    "OutputError",
    "SchemaError",
    "SchemaMismatch",
    "Signature",
    "SignatureError",
    "Validator",
    "compile_output",
    "compile_schema",
    "compile_signature",
    "parse_docstring",
]

_HOME = {
    "Arguments": "signature",
    "ArgumentsError": "errors",
    "Docstring": "docstring",
    "Output": "output",
    "OutputError": "errors",
    "SchemaError": "errors",
    "SchemaMismatch": "errors",
    "Signature": "signature",
    "SignatureError": "errors",
    "Validator": "given",
    "compile_output": "output",
    "compile_schema": "given",
    "compile_signature": "signature",
    "parse_docstring": "docstring",
}


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
