"""Recorded conversations: written by `record`, played back as a server by `playback`, or as a client by
`replay`.

A recording has one JSON object per line: what it is of, then every message with its direction. Headers
of HTTP are not messages: they, and the secrets in them, are never written.
"""

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit, urlunsplit

import msgspec

from mcpearl.client.targets import Reachable, ReachOptions, Tapped, find_target
from mcpearl.transports.tap import Direction, Tap
from mcpearl.transports.transport import Transport

FORMAT = 1
HIDDEN = "***"
"""What is written in the place of a secret."""
_MOST_BYTES = 64 * 1024 * 1024  # of a recording


class Departed(AssertionError):
    """A conversation departed from its recording.

    Args:
        file: The recording.
        line: The line of the recording at which they part.
        what: How they differ.
    """

    def __init__(self, file: Path, line: int, what: str) -> None:
        super().__init__(f"{file.name}, line {line}: {what}")
        self.file = file
        self.line = line


class RecordedMessage(NamedTuple):
    """A message of a recording."""

    line: int
    direction: Literal["sent", "received"]
    """Seen from the client."""
    message: dict[str, Any]


def record(target: Reachable, file: str | Path, *, hide: Collection[str] = ()) -> Tapped:
    """Return a target for `Client` whose conversation is written to a file.

    >>> async with Client(record("https://example.com/mcp", "session.jsonl", hide=["api_key"])) as client:
    ...     await client.call_tool("search", {"query": "pearls", "api_key": key})

    Args:
        target: Whatever `Client` takes.
        file: Where it is written; what was in the file is lost.
        hide: Names of members whose values are secrets; they are written as `***`.
    """
    recorder = _MessageWriter(Path(file), frozenset(hide))
    recorder.begin(_name(target))
    return Tapped(target, recorder.tap)


class _MessageWriter:
    """Writes the messages of a client, of all its connections."""

    def __init__(self, file: Path, hidden: frozenset[str]) -> None:
        self._file = file
        self._hidden = hidden
        self._written = 0

    def begin(self, target: str) -> None:
        head = {"mcpearl": FORMAT, "target": target}
        self._file.write_text(json.dumps(head) + "\n")

    def tap(self, transport: Transport) -> Transport:
        return Tap(transport, self.show)

    def show(self, direction: Direction, message: bytes) -> None:
        try:
            plain: Any = msgspec.json.decode(message)
        except msgspec.DecodeError:
            plain = {"unreadable": message.decode(errors="replace")}
        line = json.dumps({direction: _hide(plain, self._hidden)}, ensure_ascii=False) + "\n"
        self._written += len(line)
        if self._written > _MOST_BYTES:
            raise ValueError(f"{self._file} would be longer than {_MOST_BYTES} bytes")
        with self._file.open("a") as file:  # so that nothing is lost if the test crashes
            file.write(line)


def _hide(value: Any, names: frozenset[str]) -> Any:
    if isinstance(value, dict):
        return {
            name: HIDDEN if name in names else _hide(each, names) for name, each in value.items()
        }
    return [_hide(each, names) for each in value] if isinstance(value, list) else value


def _name(target: Any) -> str:
    """Return the name of a target, without what may be a secret in an address."""
    if isinstance(target, Tapped):
        return _name(target.target)
    if isinstance(target, str) and "://" in target:
        parts = urlsplit(target)
        return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
    if isinstance(target, dict):
        return "a configuration"  # with environment variables and headers
    return find_target(target, ReachOptions()).name


def read_recording(file: str | Path) -> list[RecordedMessage]:
    """Return the messages of a recording.

    Args:
        file: The recording.
    """
    path = Path(file)
    lines = path.read_text().splitlines()
    try:
        head = json.loads(lines[0])
        known = isinstance(head, dict) and head.get("mcpearl") == FORMAT
    except (IndexError, ValueError):
        known = False
    if not known:
        raise ValueError(f"{path} is not a recording of this version; record it anew")
    entries = []
    for number, line in enumerate(lines[1:], 2):
        try:
            ((direction, message),) = json.loads(line).items()
        except (ValueError, AttributeError):
            raise ValueError(f"{path}, line {number}: not a recorded message") from None
        if direction not in ("sent", "received") or not isinstance(message, dict):
            raise ValueError(f"{path}, line {number}: not a recorded message")
        entries.append(RecordedMessage(number, direction, message))
    return entries


# Comparing


def essence(message: dict[str, Any]) -> dict[str, Any]:
    """Return what counts of a message when two conversations are compared.

    Ids and `_meta` are left out, and so is how a client introduces itself: they differ from one run to
    the next.

    Args:
        message: The message.
    """
    method = message.get("method")
    if method in ("initialize", "server/discover", "notifications/cancelled"):
        return {"method": method}
    left: dict[str, Any] = _without_meta(
        {name: each for name, each in message.items() if name not in ("id", "jsonrpc")}
    )
    if method is not None and not left.get("params"):
        left.pop("params", None)
    return left


def _without_meta(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_meta(each) for name, each in value.items() if name != "_meta"}
    return [_without_meta(each) for each in value] if isinstance(value, list) else value


def same(recorded: Any, actual: Any, ignored: Collection[str] = ()) -> bool:
    """Return whether two values are the same; a hidden one is the same as any.

    Args:
        recorded: What the recording has.
        actual: What was said now.
        ignored: Names of members that do not count.
    """
    return difference(recorded, actual, ignored) is None


def difference(
    recorded: Any, actual: Any, ignored: Collection[str] = (), where: str = ""
) -> str | None:
    """Return where two values differ first, and how; None if they do not.

    Args:
        recorded: What the recording has.
        actual: What was said now.
        ignored: Names of members that do not count.
        where: The place of the values.
    """
    if recorded == HIDDEN:
        return None
    if isinstance(recorded, dict) and isinstance(actual, dict):
        for name in [*recorded, *(each for each in actual if each not in recorded)]:
            if name in ignored:
                continue
            place = f"{where}.{name}" if where else name
            if name not in actual:
                return f"`{place}` is missing, and was {shown(recorded[name])}"
            if name not in recorded:
                return f"`{place}` is {shown(actual[name])}, and was not there"
            found = difference(recorded[name], actual[name], ignored, place)
            if found is not None:
                return found
        return None
    if isinstance(recorded, list) and isinstance(actual, list) and len(recorded) == len(actual):
        for number, (one, other) in enumerate(zip(recorded, actual, strict=True)):
            found = difference(one, other, ignored, f"{where}[{number}]")
            if found is not None:
                return found
        return None
    if recorded == actual:
        return None
    return f"`{where}` is {shown(actual)}, and was {shown(recorded)}"


def shown(value: Any) -> str:
    """Return a value as short text.

    Args:
        value: A JSON value.
    """
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 300 else f"{text[:300]}…"


def label(message: dict[str, Any]) -> str:
    """Return what kind of message it is, in words.

    Args:
        message: The message.
    """
    method = message.get("method")
    if method is None:
        return "an error" if "error" in message else "a result"
    params = message.get("params")
    name = params.get("name") or params.get("uri") if isinstance(params, dict) else None
    return f"`{method}`" if name is None else f"`{method}` of `{name}`"
