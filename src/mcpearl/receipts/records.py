"""The records of a call: one before it and one after it, with digests in place of contents.

Everything a caller chooses is cut to a maximum length, so that no record is long. Digests are salted: the
salts of a call are derived from the log's key, and disclosing one of them reveals none of the others. The
scribe, the process that writes, imports this module, so it imports little itself.
"""

from hashlib import sha256, shake_256
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

_HEXADECIMAL = frozenset("0123456789abcdef")
LONGEST_NAME = 256  # characters kept of what a caller chose
_ID = len('{"jsonrpc":"2.0","id":')
_SALT = 16
_EACH_BLOCK = 256  # calls whose salts are derived together
_KEPT_BLOCKS = 64
_digest = sha256().copy

# The entries sent from the event loop to the scribe. Contents are bytes, or a digest of them.
# number, time, method, version, id of the request, params, principal (subject, client, issuer)
Began = tuple[int, float, str, str, Any, bytes | str, tuple[Any, ...] | None]
# number, time, duration, outcome, answer; without an outcome, the answer is a whole message
Ended = tuple[int, float, float, str | None, bytes | str]
Entry = Began | Ended | dict[str, Any]


class BeginRecord(Struct, tag="begin", tag_field="kind", omit_defaults=True):
    """The record before a call."""

    call: str
    at: float
    method: str
    version: str
    request: int | str
    arguments: str
    name: str | UnsetType = UNSET
    task: str | UnsetType = UNSET
    trace: str | UnsetType = UNSET
    principal: str | UnsetType = UNSET
    client: str | UnsetType = UNSET
    issuer: str | UnsetType = UNSET


class EndRecord(Struct, tag="end", tag_field="kind", omit_defaults=True):
    """The record after a call."""

    call: str
    at: float
    duration: float
    outcome: str
    result: str | UnsetType = UNSET
    task: str | UnsetType = UNSET


class _TraceMeta(Struct):
    traceparent: Any = None


class _RecordedParams(Struct, rename="camel"):
    """The members of params that are recorded."""

    name: Any = None
    uri: Any = None
    task_id: Any = None
    meta: _TraceMeta | None = msgspec.field(default=None, name="_meta")


class _RecordedResult(Struct, rename="camel"):
    """The members of a result that say how its call ended."""

    is_error: Any = False
    result_type: Any = None
    task_id: Any = None
    task: Any = None


_read_params = msgspec.json.Decoder(_RecordedParams).decode
_read_result = msgspec.json.Decoder(_RecordedResult).decode
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
encode_lines = msgspec.json.Encoder().encode_lines


class Salts:
    """The salts of the calls of one run: 16 bytes for the arguments, 16 for the result.

    Args:
        secret: The secret that they are derived from.
        run: Distinguishes the calls of one process from those of others.
    """

    def __init__(self, secret: bytes, run: str) -> None:
        self._prefix = secret + run.encode()
        self._blocks: dict[int, list[bytes]] = {}

    def digest(self, number: int, which: int, contents: bytes | str) -> str:
        """Return the salted digest of the arguments (0) or the result (1) of a call."""
        if type(contents) is str:
            return contents  # it is the digest, made before
        salts = self._blocks.get(number // _EACH_BLOCK) or self._derive(number // _EACH_BLOCK)
        state = _digest()
        state.update(salts[2 * (number % _EACH_BLOCK) + which] + contents)  # type: ignore[operator]
        return state.hexdigest()

    def of(self, number: int) -> tuple[bytes, bytes]:
        """Return the two salts of a call."""
        block = self._derive(number // _EACH_BLOCK)
        place = 2 * (number % _EACH_BLOCK)
        return block[place], block[place + 1]

    def _derive(self, block: int) -> list[bytes]:
        while len(self._blocks) >= _KEPT_BLOCKS:
            del self._blocks[next(iter(self._blocks))]
        size = 2 * _EACH_BLOCK * _SALT
        salts = shake_256(self._prefix + block.to_bytes(8, "big")).digest(size)
        self._blocks[block] = [salts[start : start + _SALT] for start in range(0, size, _SALT)]
        return self._blocks[block]


class Formatter:
    """Makes records from the entries of one run."""

    def __init__(self, secret: bytes, run: str) -> None:
        self._run = f"{run}-"
        self._digest = Salts(secret, run).digest

    def lines(self, entries: list[Any], encoded: bytes) -> list[bytes]:
        """Return the records of entries, one line each.

        Args:
            entries: The entries.
            encoded: The same in the form they were received in. It is searched once for what tells of
                tasks and failures, which is faster than searching each result.
        """
        records: list[Any] = []
        add, run, digest = records.append, self._run, self._digest
        plain = not _is_marked(encoded)
        for entry in entries:
            if type(entry) is dict:
                add(entry)
            elif len(entry) == 5:
                number, at, took, outcome, answer = entry
                found = task = ""
                if type(answer) is list:  # large ones were digested on the event loop
                    found, task = answer
                else:
                    if outcome is None:
                        outcome, answer = split(answer)
                    if outcome == "result" and not plain:
                        outcome, task = about_result(answer)
                    found = digest(number, 1, answer) if answer else ""
                took = int(took * 1e6) / 1e6
                add(EndRecord(f"{run}{number}", at, took, outcome, found or UNSET, task or UNSET))
            else:
                add(self._begin(*entry))
        return encode_lines(records).splitlines(keepends=True)

    def _begin(
        self,
        number: int,
        at: float,
        method: str,
        version: str,
        id: Any,
        params: bytes | list[Any],
        principal: list[Any] | None,
    ) -> BeginRecord:
        if type(params) is list:
            digest, name, task, trace = params
        else:
            name, task, trace = about_call(params)  # type: ignore[arg-type]
            digest = self._digest(number, 0, params)  # type: ignore[arg-type]
        record = BeginRecord(
            f"{self._run}{number}",
            at,
            method,
            version,
            id if type(id) is int else str(id)[:LONGEST_NAME],
            digest,
            name or UNSET,
            task or UNSET,
            trace or UNSET,
        )
        if principal is not None:
            subject, client, issuer = principal
            record.principal = _short(subject) or UNSET
            record.client = _short(client) or UNSET
            record.issuer = _short(issuer) or UNSET
        return record


def split(message: bytes) -> tuple[str, bytes]:
    """Return `result` or `error` for an answer, and its contents as they are on the wire."""
    place = message.find(b",", _ID)
    if message.startswith(b',"result":', place):
        return "result", message[place + 10 : -1]  # as long as the id contains no comma
    result = message.find(b',"result":')
    error = message.find(b',"error":', 0, None if result < 0 else result)
    if error < 0:
        return "result", message[result + 10 : -1]
    return "error", message[error + 9 : -1]


def about_call(params: bytes) -> tuple[str, str, str]:
    """Return the parts of params that are recorded: the name or URI, the task and the trace."""
    try:
        read = _read_params(params)
    except _UNREADABLE:
        return "", "", ""
    trace = None if read.meta is None else read.meta.traceparent
    name = read.uri if read.name is None else read.name
    return (
        "" if name is None else _short(name),
        "" if read.task_id is None else _short(read.task_id),
        _trace_id(trace) if isinstance(trace, str) else "",
    )


def _trace_id(parent: str) -> str:
    """Return the id of a trace from `traceparent`; empty if it has none."""
    found = parent[3:35]
    return found if len(found) == 32 and _HEXADECIMAL.issuperset(found) else ""


def _is_marked(data: bytes) -> bool:
    """Whether data may contain a result that says more of its call than that it succeeded."""
    return b'isError":true' in data or b'taskId"' in data or b'input_required"' in data


def about_result(result: bytes) -> tuple[str, str]:
    """Return the outcome of a call with this result, and the task that the call became, if any."""
    if not _is_marked(result):
        return "result", ""
    try:
        read = _read_result(result)
    except _UNREADABLE:
        return "result", ""
    outcome = "result"
    if read.is_error is True:
        outcome = "tool_error"
    elif read.result_type == "input_required":
        outcome = "input_required"
    task = read.task.get("taskId") if isinstance(read.task, dict) else read.task_id
    return outcome, _short(task)


def _short(text: Any) -> str:
    return text[:LONGEST_NAME] if isinstance(text, str) else ""
