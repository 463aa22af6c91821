"""The names under which parts are mounted."""

import re
from collections.abc import Container

from mcpearl.runtime.joint_names import SEPARATOR

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def check_name(name: str, taken: Container[str]) -> None:
    """Refuse a name that cannot be a prefix, or is taken."""
    if not isinstance(name, str):
        raise TypeError(
            f"the first argument of `mount` is a name, not {name!r}: `app.mount('weather', other)`"
        )
    if not _NAME.fullmatch(name) or SEPARATOR in name or name.endswith("_"):
        raise ValueError(
            f"a mount's name is 1 to 64 letters, digits, `_` and `-`, without `{SEPARATOR}` and "
            f"without `_` at its end, not {name!r}"
        )
    if name in taken:
        raise ValueError(f"`{name}` is mounted already; `unmount` it first, or choose another name")
