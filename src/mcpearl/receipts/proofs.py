"""Reads the records of a log, and makes proofs that a record is in it."""

import json
from base64 import b64encode
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec

from mcpearl.receipts.keys import read_keys
from mcpearl.receipts.records import Salts
from mcpearl.receipts.verifier import (
    LONGEST,
    PROOF,
    Log,
    Segment,
    SignedHead,
    VerifierKey,
    add_leaf,
    load_keys,
    root_of,
    segment_files,
)

_HASH = 32


class NoSuchRecord(LookupError):
    """A record is not in the log, or not signed yet."""


class RecordUnreadable(ValueError):
    """A folder has no records, or one of them is not a record any more."""


class _Common(msgspec.Struct):
    """What readers of a record rely on."""

    kind: str
    at: Annotated[float, msgspec.Meta(ge=0, lt=253_402_300_800)]  # the year 10000
    call: str = ""


class Shown(NamedTuple):
    """A record and its number."""

    number: int
    record: dict[str, Any]


def records(folder: Path) -> Iterator[Shown]:
    """Iterate over the records of a log, without verifying it; raises `RecordUnreadable`."""
    paths = segment_files(folder)
    if not paths:
        raise RecordUnreadable(f"there are no receipts in {folder}")
    for path in paths:
        if not path.stem.isdecimal():
            continue
        number = first = Segment(path).first
        with path.open("rb") as file:
            if not file.readline().endswith(b"\n"):
                return  # it has only just been begun
            for line in file:
                if not line.endswith(b"\n"):
                    break  # it is being written: what comes next may be the rest of it
                try:
                    record = json.loads(line[65:])
                    msgspec.convert(record, _Common)
                except (ValueError, RecursionError, msgspec.ValidationError):
                    raise RecordUnreadable(
                        f"{path.name}, line {number - first + 2}: it is not a record any more; `mcpearl "
                        "receipts verify` says what was changed"
                    ) from None
                yield Shown(number, record)
                number += 1


def unfinished(folder: Path) -> list[Shown]:
    """Return the `begin` records of calls that have not ended."""
    begun: dict[str, Shown] = {}
    for shown in records(folder):
        kind, call = shown.record.get("kind"), shown.record.get("call", "")
        if kind == "begin":
            begun[call] = shown
        elif kind == "end":
            begun.pop(call, None)
    return list(begun.values())


def prove(folder: Path, wanted: str, keys: list[VerifierKey] | None = None) -> dict[str, str]:
    """Return proofs for one record, by its number, or for the records of a call, by the call's id.

    The log is verified at the same time. Raises `Discrepancy` if it is not as it was written, and
    `NoSuchRecord` if there is no such record, or it is not signed yet.

    Args:
        folder: The log.
        wanted: The number of a record, or the id of a call.
        keys: The keys to verify the log with; by default those that the folder itself names.
    """
    leaves = bytearray()
    found: dict[int, bytes] = {}
    call = json.dumps(wanted).encode()

    def take(number: int, leaf: bytes, entry: bytes) -> None:
        leaves.extend(leaf)
        if str(number) == wanted or (b'"call":%b,' % call in entry and _call_of(entry) == wanted):
            found[number] = entry

    log = Log(folder, keys or _own_keys(folder))
    log.verify(take)
    if not found:
        raise NoSuchRecord(f"there is no record or call {wanted} in {folder}")
    if max(found) >= log.signed:
        raise NoSuchRecord(f"record {max(found)} is not covered by a signed head yet")
    return {
        f"{number}.tlog-proof": _proof(number, entry, leaves, log.heads[-1])
        for number, entry in found.items()
    }


def _own_keys(folder: Path) -> list[VerifierKey]:
    """Return the key that signs a log now, and the one that it began with, if that can be read."""
    keys = load_keys([str(folder / "key.pub")])
    for path in segment_files(folder)[:1]:
        with path.open("rb") as file, suppress(ValueError, LookupError, TypeError, AttributeError):
            keys.append(VerifierKey(json.loads(file.readline(LONGEST))["key"]))
    return keys


def _call_of(entry: bytes) -> Any:
    return json.loads(entry[_HASH:]).get("call")


def _proof(number: int, entry: bytes, leaves: bytearray, head: SignedHead) -> str:
    path = "".join(f"{_text(step)}\n" for step in _path(number, 0, head.size, leaves))
    signatures = "".join(
        f"\N{EM DASH} {name} {_text(signature)}\n" for name, signature in head.signatures
    )
    note = f"{head.text.decode()}\n{signatures}"
    return f"{PROOF}\nextra {_text(entry)}\nindex {number}\n{path}\n{note}"


def _path(number: int, start: int, end: int, leaves: bytearray) -> list[bytes]:
    """Return the inclusion proof of a leaf (RFC 9162, section 2.1.3.1), the leaf's sibling first."""
    path: list[bytes] = []
    while end - start > 1:
        middle = start + (1 << (end - start - 1).bit_length() - 1)
        if number < middle:
            path.append(_root(middle, end, leaves))
            end = middle
        else:
            path.append(_root(start, middle, leaves))
            start = middle
    return path[::-1]


def _root(start: int, end: int, leaves: bytearray) -> bytes:
    subtrees: list[bytes] = []
    for number in range(start, end):
        leaf = bytes(leaves[number * _HASH : (number + 1) * _HASH])
        add_leaf(subtrees, number - start, leaf)
    return root_of(subtrees)


def _text(data: bytes) -> str:
    return b64encode(data).decode()


def salts_of(key_file: Path, call: str, folder: Path) -> tuple[bytes, bytes]:
    """Return the salts of the arguments and the result of a call.

    With one of them and the contents, anyone can check the digest in a record.

    Args:
        key_file: The private key of the log.
        call: The id of the call.
        folder: The log, which names the key of each run.
    """
    run, _, number = call.rpartition("-")
    if not run or not number.isdecimal():
        raise NoSuchRecord(f"{call!r} is not the id of a call")
    began = ("start", run)
    starts = (each.record for each in records(folder))
    ids = [each["key"] for each in starts if (each.get("kind"), each.get("run")) == began]
    for key in read_keys(key_file):
        if key.id.hex() in ids:
            return Salts(key.salts(), run).of(int(number))
    raise NoSuchRecord(f"call {call} was not recorded in {folder} with a key of {key_file}")
