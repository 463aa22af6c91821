"""One thing that was looked at, and how it is."""

from collections.abc import Callable
from typing import Literal, NamedTuple


class Check(NamedTuple):
    """One thing that was looked at."""

    state: Literal["ok", "bad", "absent"]
    what: str
    text: str = ""
    hint: str = ""


TakeCheck = Callable[[Check], None]
"""Called with each check as soon as it is done."""
