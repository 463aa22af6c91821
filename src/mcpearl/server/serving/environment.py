"""A server's settings from the environment. Settings in the program take precedence.

`SETTINGS` is the whole list; the documentation has the same table.
"""

import base64
import binascii
import logging
import os
from collections.abc import Callable, Iterable
from typing import Any

from mcpearl.runtime.arguments import Unusable, did_you_mean

logger = logging.getLogger("mcpearl.server")

PREFIX = "MCPEARL_"


def _text(value: str) -> str:
    return value


def _list(value: str) -> list[str]:
    return [part.strip() for part in value.split(",") if part.strip()]


def _count(value: str) -> int:
    if not (value.isascii() and value.isdigit()):
        raise ValueError("it must be a number")
    return int(value)


def _flag(value: str) -> bool:
    known = {"1": True, "true": True, "yes": True, "on": True}
    known |= {"0": False, "false": False, "no": False, "off": False}
    if value.lower() not in known:
        raise ValueError("it must be 1 or 0")
    return known[value.lower()]


def _flag_or_path(value: str) -> bool | str:
    try:
        return _flag(value)
    except ValueError:
        return value


def _keys(value: str) -> list[bytes]:
    keys = []
    for part in _list(value):
        try:
            key = bytes.fromhex(part) if len(part) == 64 else base64.urlsafe_b64decode(part)
        except (ValueError, binascii.Error):
            key = b""
        if len(key) != 32:
            raise ValueError(
                "each key must have 32 bytes, as 64 hexadecimal digits or in base64; make one with "
                "`openssl rand -hex 32`"
            )
        keys.append(key)
    return keys


# By the name after the prefix: the option of a wire (None for other settings), and its parser.
SETTINGS: dict[str, tuple[str | None, Callable[[str], Any]]] = {
    "TRANSPORT": (None, _text),
    "HOST": ("host", _text),
    "PORT": ("port", _text),
    "PATH": ("path", _text),
    "WORKERS": ("workers", _count),
    "CERTIFICATE": ("certificate", _text),
    "KEY": ("key", _text),
    "CLIENT_CA": ("client_ca", _text),
    "ALLOWED_HOSTS": ("allowed_hosts", _list),
    "ALLOWED_ORIGINS": ("allowed_origins", _list),
    "STATELESS": ("stateless", _flag),
    "HTTP_SSE": ("http_sse", _flag),
    "WEBSOCKET": ("websocket", _text),
    "MAX_SESSIONS": ("max_sessions", _count),
    "MAX_REQUESTS": ("max_requests", _count),
    "MAX_CONNECTIONS": ("max_connections", _count),
    "ACCESS_LOG": ("access_log", _flag_or_path),
    "HEALTH": ("health", _text),
    "METRICS": ("metrics", _text),
    "STATE_KEYS": (None, _keys),
    "STORE": (None, _text),
    "RECEIPTS_KEY": (None, _text),  # read by `mcpearl.receipts.keys`, for clients too
    "LOG_LEVEL": (None, _text),
}


def wire() -> str | None:
    """Return the wire to serve on, `MCPEARL_TRANSPORT`."""
    found: str | None = _read("TRANSPORT")
    return found


def state_keys() -> list[bytes] | None:
    """Return the keys that seal the state of calls, `MCPEARL_STATE_KEYS`."""
    found: list[bytes] | None = _read("STATE_KEYS")
    return found


def store() -> str | None:
    """Return the address of the store, `MCPEARL_STORE`."""
    found: str | None = _read("STORE")
    return found


def log_level() -> int:
    """Return the level of the records that `app.run` writes to stderr, `MCPEARL_LOG_LEVEL`."""
    given = _read("LOG_LEVEL") or "INFO"
    level = logging.getLevelNamesMapping().get(given.upper())
    if level is None:
        raise Unusable(f"{PREFIX}LOG_LEVEL is {given!r}: write DEBUG, INFO, WARNING or ERROR")
    return level


def options(fields: Iterable[str]) -> dict[str, Any]:
    """Return the options of a wire that the environment sets; `fields` are those it has."""
    _notice_unknown()
    has = set(fields)
    found = {}
    for name, (option, _) in SETTINGS.items():
        if option in has and (value := _read(name)) is not None:
            found[option] = value
    return found


def _read(name: str) -> Any:
    value = os.environ.get(PREFIX + name)
    if not value:
        return None
    try:
        return SETTINGS[name][1](value)
    except ValueError as error:
        shown = "" if name in ("STATE_KEYS", "STORE") else f" is {value!r}"
        raise Unusable(f"{PREFIX}{name}{shown}: {error}") from None


def _notice_unknown() -> None:
    for name in os.environ:
        if name.startswith(PREFIX) and name.removeprefix(PREFIX) not in SETTINGS:
            hint = did_you_mean(name.removeprefix(PREFIX), SETTINGS)
            logger.warning("the environment has %s, which is not a setting%s", name, hint)
