"""What can be wrong with a signature, a schema, arguments or a result.

Two kinds: faults of the author, raised once at registration (`SignatureError`, `SchemaError`), and
values that do not fit, raised per call (`ArgumentsError`, `SchemaMismatch`, `OutputError`). The
second kind carries a message written for whoever sent the value, often a model.
"""

from __future__ import annotations

__all__ = [
    "ArgumentsError",
    "OutputError",
    "SchemaError",
    "SchemaMismatch",
    "SignatureError",
]


class SignatureError(TypeError):
    """A function's signature has no JSON form; names the function and the parameter."""


class SchemaError(ValueError):
    """A schema given by hand is not valid, not allowed, or too large."""


class ArgumentsError(ValueError):
    """Arguments that do not fit; the message says how to correct them."""

    def __init__(self, message: str, argument: str | None = None) -> None:
        super().__init__(message)
        #: The first argument that is wrong, where one can be named.
        self.argument = argument


class SchemaMismatch(ArgumentsError):
    """A value that does not fit a schema given by hand."""

    def __init__(self, message: str, path: tuple[str | int, ...] = ()) -> None:
        super().__init__(message, str(path[0]) if path else None)
        #: Where in the value the first mismatch is; empty for the value itself.
        self.path = path


class OutputError(ValueError):
    """A handler returned something that does not fit its return annotation."""
