"""The records of a call: one before it and one after it, with digests in place of contents.

Everything a caller chooses is cut to a maximum length, so that no record is long. Digests are salted: the
salts of a call are derived from the log's key, and disclosing one of them reveals none of the others. The
scribe, the process that writes, imports this module, so it imports little itself.
"""

from hashlib import sha256, shake_256
from io import BytesIO
from typing import Any

import msgspec
from msgspec import Struct

from mcpearl.runtime.tracing import ids_of

LONGEST_NAME = 256  # characters kept of what a caller chose
_ID = len('{"jsonrpc":"2.0","id":')
_SALT = 16
EACH_BLOCK = 256  # calls whose salts are derived together
_KEPT_BLOCKS = 64
_TOGETHER = 64  # calls whose records are encoded together
_digest = sha256().copy  # copying a state is cheaper than making one
_SHORT = len('{"jsonrpc":"2.0","id":1,"error":{"code":1')  # every error is longer than this

# What is sent from the event loop to the scribe: the columns of one call after those of another.
#   when it began and when it ended, by the monotonic clock; None while it has not ended
#   method, version, id of the request, principal (subject, client, issuer); None if they were sent before
#   params: bytes; or digest, name, task and trace; or the number of a call whose begin was sent before
#   answer: a whole message; or outcome and contents; or outcome, digest and task
# A record that is not of a call is in the column of the params, without anything else.
COLUMNS = 8
_ANSWER = 7


class BeginRecord(Struct, tag="begin", tag_field="kind", omit_defaults=True, gc=False):
    """The record before a call."""

    call: str
    at: float
    method: str
    version: str
    request: int | str
    arguments: str
    name: str | None = None
    task: str | None = None
    trace: str | None = None
    principal: str | None = None
    client: str | None = None
    issuer: str | None = None


class EndRecord(Struct, tag="end", tag_field="kind", omit_defaults=True, gc=False):
    """The record after a call."""

    call: str
    at: float
    duration: float
    outcome: str
    result: str | None = None
    task: str | None = None


class _TraceMeta(Struct, gc=False):
    traceparent: Any = None


class _RecordedParams(Struct, rename="camel", gc=False):
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
_UNREAD = _RecordedParams()
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

    def digest(self, number: int, which: int, contents: bytes) -> str:
        """Return the salted digest of the arguments (0) or the result (1) of a call."""
        salts = self.block(number // EACH_BLOCK)
        return sha256(salts[2 * (number % EACH_BLOCK) + which] + contents).hexdigest()

    def of(self, number: int) -> tuple[bytes, bytes]:
        """Return the two salts of a call."""
        block = self.block(number // EACH_BLOCK)
        place = 2 * (number % EACH_BLOCK)
        return block[place], block[place + 1]

    def block(self, number: int) -> list[bytes]:
        """Return the salts of 256 calls: two for each, one after the other."""
        salts = self._blocks.get(number)
        if salts is None:
            while len(self._blocks) >= _KEPT_BLOCKS:
                del self._blocks[next(iter(self._blocks))]
            size = 2 * EACH_BLOCK * _SALT
            data = shake_256(self._prefix + number.to_bytes(8, "big")).digest(size)
            salts = [data[start : start + _SALT] for start in range(0, size, _SALT)]
            self._blocks[number] = salts
        return salts


class Formatter:
    """Makes the records of one run."""

    def __init__(self, secret: bytes, run: str) -> None:
        self._run = f"{run}-"
        self._salts = Salts(secret, run)

    def lines(self, clock: float, number: int, columns: list[Any]) -> list[bytes]:
        """Return the records of calls, one line each.

        Args:
            clock: The time of day at which the monotonic clock was 0.
            number: How many calls began before these.
            columns: What was noted of the calls; see `COLUMNS`.
        """
        plain = not _is_any_marked(columns[_ANSWER::COLUMNS])
        lines: list[bytes] = []
        # Few at a time, so that what was made of a call is still in the cache of the processor.
        for start in range(0, len(columns), _TOGETHER * COLUMNS):
            some = columns[start : start + _TOGETHER * COLUMNS]
            number, records = self._records(clock, number, some, plain=plain)
            lines += BytesIO(encode_lines(records)).readlines()
        return lines

    def _records(
        self, clock: float, number: int, columns: list[Any], *, plain: bool
    ) -> tuple[int, list[Any]]:
        """Return how many calls began up to here, and the records.

        `plain` says that no result tells more of its call than that it succeeded.
        """
        # Calls per second depend on this loop, so what every call needs is written out in it.
        records: list[Any] = []
        add, run, digest, read_params = records.append, self._run, _digest, _read_params
        salts: list[bytes] = []
        first, last = 0, -1  # the salts of these calls
        each = iter(columns)
        for began, ended, method, version, id, principal, params, answer in zip(
            *[each] * COLUMNS, strict=True
        ):
            if method is not None:
                of = number = number + 1
            elif ended is not None:
                of = params
            else:
                add(params)
                continue
            if not first <= of <= last:
                salts = self._salts.block(of // EACH_BLOCK)
                first = of - of % EACH_BLOCK
                last = first + EACH_BLOCK - 1
            place = 2 * (of - first)
            call = f"{run}{of}"
            if method is not None:
                if type(params) is list:  # large ones were digested on the event loop
                    arguments, name, task, trace = params
                else:
                    state = digest()
                    state.update(salts[place] + params)
                    arguments = state.hexdigest()
                    try:
                        read = read_params(params)
                    except _UNREADABLE:
                        read = _UNREAD
                    name, task, meta = read.name, read.task_id, read.meta
                    if type(name) is not str or len(name) > LONGEST_NAME:
                        name = _name(read)
                    if task is not None:
                        task = _short(task)
                    trace = None
                    if meta is not None and meta.traceparent is not None:
                        trace = _trace_id(meta.traceparent)
                if type(id) is not int:
                    id = str(id)[:LONGEST_NAME]
                begin = BeginRecord(
                    call, began + clock, method, version, id, arguments, name, task, trace
                )
                if principal is not None:
                    begin.principal, begin.client, begin.issuer = map(_short, principal)
                add(begin)
            if ended is not None:
                task = result = None
                if type(answer) is bytes:
                    found = answer.find(b',"result":', _ID, _SHORT)
                    if found > 0:
                        outcome, contents = "result", answer[found + 10 : -1]
                    else:
                        outcome, contents = split(answer)
                elif len(answer) == 2:
                    outcome, contents = answer
                else:
                    outcome, result, task = answer
                    contents = b""
                if contents:
                    if outcome == "result" and not plain:
                        outcome, task = about_result(contents)
                    state = digest()
                    state.update(salts[place + 1] + contents)
                    result = state.hexdigest()
                took = int((ended - began) * 1e6) / 1e6
                add(EndRecord(call, ended + clock, took, outcome, result, task))
        return number, records


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


def about_call(params: bytes) -> tuple[str | None, str | None, str | None]:
    """Return the parts of params that are recorded: the name or URI, the task and the trace."""
    try:
        read = _read_params(params)
    except _UNREADABLE:
        return None, None, None
    trace = None if read.meta is None else _trace_id(read.meta.traceparent)
    return _name(read), _short(read.task_id), trace


def _name(read: _RecordedParams) -> str | None:
    return _short(read.uri if read.name is None else read.name)


def _trace_id(parent: Any) -> str | None:
    named = ids_of(parent)
    return None if named is None else named[0]


def _is_marked(data: bytes) -> bool:
    """Whether data may contain a result that says more of its call than that it succeeded."""
    return b'isError":true' in data or b'taskId"' in data or b'input_required"' in data


def _is_any_marked(answers: list[Any]) -> bool:
    """Whether `_is_marked` may hold for any of the answers; all are searched at once, which is faster."""
    try:
        return _is_marked(b"".join(answers))
    except TypeError:  # some are not whole messages
        return True


def about_result(result: bytes) -> tuple[str, str | None]:
    """Return the outcome of a call with this result, and the task that the call became, if any."""
    if not _is_marked(result):
        return "result", None
    try:
        read = _read_result(result)
    except _UNREADABLE:
        return "result", None
    outcome = "result"
    if read.is_error is True:
        outcome = "tool_error"
    elif read.result_type == "input_required":
        outcome = "input_required"
    task = read.task.get("taskId") if isinstance(read.task, dict) else read.task_id
    return outcome, _short(task)


def _short(text: Any) -> str | None:
    return text[:LONGEST_NAME] if isinstance(text, str) else None
