"""Errors about signatures, schemas, arguments and results.

There are two kinds. `SignatureError` and `SchemaError` are mistakes of a handler's author, raised
once at registration. `ArgumentsError`, `SchemaMismatch` and `OutputError` are about a value that
does not fit, raised per call; their messages are written for the sender of the value, often a model.
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
    """A function's signature has no JSON form. The message names function and parameter."""


class SchemaError(ValueError):
    """A schema written by hand is invalid, not allowed, or too large."""


class ArgumentsError(ValueError):
    """Arguments do not fit. The message says how to correct them.

    Args:
        message: Everything that is wrong.
        argument: The first wrong argument, if a single one can be named.
    """

    def __init__(self, message: str, argument: str | None = None) -> None:
        super().__init__(message)
        self.argument = argument


class SchemaMismatch(ArgumentsError):
    """A value does not fit a schema written by hand.

    Args:
        message: Everything that is wrong.
        path: Where in the value the first mismatch is; empty for the whole value.
    """

    def __init__(self, message: str, path: tuple[str | int, ...] = ()) -> None:
        super().__init__(message, str(path[0]) if path else None)
        self.path = path


class OutputError(ValueError):
    """The value a handler returned does not fit its return annotation."""
