"""A task as the value of a key in Redis: what the store sets in front, what its writer set behind.

The front has a fixed layout, which scripts read without the rest and without parsing numbers. The owner
and the holder follow, then what the writer packed. A hash with a field for each member took twice the
time, at the server as well as in this process, and more than twice the memory.
"""

from collections.abc import Callable
from functools import lru_cache
from hashlib import blake2b
from struct import Struct, error
from typing import Final, cast

import msgspec
from msgspec.structs import replace

from mcpearl.stores.errors import Unreadable
from mcpearl.stores.sessions import Identity
from mcpearl.stores.tasks import TaskRecord
from mcpearl.types.tasks import TaskStatus

STATUSES: Final[tuple[TaskStatus, ...]] = (
    *("working", "input_required"),
    *("completed", "failed", "cancelled"),
)
"""What a status is numbered as, from 0 on."""
FIRST_TERMINAL: Final = 2
FORMAT: Final = 1
LUA_LAYOUT: Final = ">BBI2I4I4I4ddddc32"
"""The front as scripts read it: format, status, lengths of holder and owner, revision, fence, end of the
lease, times of creation and of the last change, time to live, digest of the owner."""
_front = Struct(">BBHIIIdddd32s")
FRONT_SIZE: Final = _front.size
_NUMBERS: Final = {status: number for number, status in enumerate(STATUSES)}
_creation = Struct(">BHIddII")
LUA_CREATION: Final = ">BI2I4ddI4I4"
_change = Struct(">IIB")
LUA_CHANGE: Final = ">I4I4B"


class _Written(msgspec.Struct, array_like=True, gc=False):
    """What the writer of a task sets."""

    poll: float | None
    status_message: str | None
    request: bytes
    journal: bytes
    result: bytes | None
    tool_error: bool
    repeatable: bool
    running: bool
    deaths: int


_encode = msgspec.msgpack.Encoder().encode
_decode: Callable[[memoryview], _Written] = msgspec.msgpack.Decoder(_Written).decode
_identity_decoder = msgspec.json.Decoder(Identity)


def written(task: TaskRecord) -> bytes:
    """Return what the writer of a task sets, packed."""
    return _encode(
        (
            *(task.poll, task.status_message, task.request, task.journal, task.result),
            *(task.tool_error, task.repeatable, task.running, task.deaths),
        )
    )


def creation(
    task: TaskRecord, holder: str, lease: float, most: int, share: int
) -> tuple[bytes, bytes]:
    """Return the arguments of the script that creates a task: numbers, and what follows the front."""
    owner, held = owner_bytes(task.owner), holder.encode()
    lengths = (len(held), len(owner))
    numbers = _creation.pack(_NUMBERS[task.status], *lengths, lease, task.ttl, most, share)
    return numbers, owner + held + written(task)


def change(expected: int, fence: int | None, status: TaskStatus) -> bytes:
    """Return the numbers of the script that changes a task; a fence of 0 stands for none."""
    return _change.pack(expected, fence or 0, _NUMBERS[status])


def created_at(front: bytes) -> float:
    """Return when the task was created."""
    created: float = _front.unpack_from(front)[7]
    return created


def changed(task: TaskRecord, reply: bytes) -> TaskRecord:
    """Return a task that was written, with what the store set; `reply` ends after the holder."""
    _, status, _, length, revision, fence, lease, created, updated, ttl, _ = _front.unpack_from(
        reply
    )
    split = FRONT_SIZE + length
    return replace(
        task,
        owner=_owner(reply[FRONT_SIZE:split]),
        ttl=ttl,
        status=STATUSES[status],
        created=created,
        updated=updated,
        revision=revision,
        holder=reply[split:].decode() or None,
        fence=fence,
        lease_until=lease,
    )


def record(id: str, value: bytes) -> TaskRecord:
    """Return the task of a value. Raises `Unreadable` if the value is not a task."""
    try:
        form, status, held, length, revision, fence, lease, created, updated, ttl, _ = (
            _front.unpack_from(value)
        )
        if form != FORMAT:
            raise ValueError(f"its format is {form}, not {FORMAT}")
        split = FRONT_SIZE + length
        task = _decode(memoryview(value)[split + held :])
        return TaskRecord(
            id=id,
            owner=_owner(value[FRONT_SIZE:split]),
            ttl=ttl,
            poll=task.poll,
            status=STATUSES[status],
            status_message=task.status_message,
            request=task.request,
            journal=task.journal,
            result=task.result,
            tool_error=task.tool_error,
            repeatable=task.repeatable,
            running=task.running,
            deaths=task.deaths,
            created=created,
            updated=updated,
            revision=revision,
            holder=value[split : split + held].decode() or None,
            fence=fence,
            lease_until=lease,
        )
    except (error, msgspec.MsgspecError, ValueError, IndexError) as reason:
        raise Unreadable(f"the store has something that is not a task: {reason}") from None


@lru_cache(maxsize=1024)
def owner_bytes(owner: Identity) -> bytes:
    """Return an owner as it is stored."""
    return msgspec.json.encode(owner)


@lru_cache(maxsize=1024)
def digest_of(owner: Identity) -> str:
    """Return the text that stands for an owner in keys."""
    return blake2b(owner_bytes(owner), digest_size=16).hexdigest()


@lru_cache(maxsize=1024)
def _owner(stored: bytes) -> Identity:
    return cast("Identity", _identity_decoder.decode(stored))
