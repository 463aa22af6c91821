"""Checks of arguments that a program passes to the public API. The messages say what to write instead."""

from collections.abc import Iterable
from typing import Any


class Unusable(ValueError):
    """A server cannot start with this setting: `app.run` shows the message without a traceback."""


def refuse_text(name: str, given: Any) -> None:
    """Refuse text where a list is meant: iterating over it would yield its characters."""
    if isinstance(given, str | bytes):
        raise TypeError(f"`{name}` must be a list, as in `{name}=[{given!r}]`")


def refuse_less_than_one(name: str, given: Any) -> None:
    """Refuse anything but a whole number over 0."""
    if not isinstance(given, int) or given < 1:
        raise ValueError(f"`{name}` must be a whole number over 0, not {given!r}")


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean …?` if one of the known words is close, otherwise nothing."""
    from difflib import get_close_matches  # only mistakes need it

    names = {name.lower(): name for name in known}
    close = get_close_matches(word.lower(), names, 1)
    return f"; did you mean `{names[close[0]]}`?" if close else ""
