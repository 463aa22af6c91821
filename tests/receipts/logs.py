"""Logs for tests: written by the real writer, and what can be done to their files."""

import json
import shutil
from pathlib import Path
from typing import Any

from mcpearl.receipts.keys import SigningKey
from mcpearl.receipts.log import ReceiptLog
from mcpearl.receipts.verifier import Discrepancy, Log, Proof, VerifierKey, load_keys, verify

KEY = SigningKey("example.com/test", bytes(range(32)))
TRUSTED = [VerifierKey(KEY.vkey)]


def lines(count: int, first: int = 0) -> list[bytes]:
    """Return records as a server writes them."""
    return [
        json.dumps(
            {
                "kind": "begin" if number % 2 == 0 else "end",
                "call": f"0123456789ab-{number // 2}",
                "at": 1_800_000_000 + number / 1000,
                "method": "tools/call",
                "arguments": f"{number:064x}",
            },
            separators=(",", ":"),
        ).encode()
        + b"\n"
        for number in range(first, first + count)
    ]


def write(
    folder: Path,
    count: int = 100,
    *,
    batch: int = 10,
    signed_every: int = 3,
    rotate: int = 1 << 30,
    keys: list[SigningKey] | None = None,
) -> None:
    """Append records to a log, in batches, and sign a head after some of them and at the end."""
    log = ReceiptLog(folder, lambda: keys or [KEY], rotate)
    log.open()
    for number, start in enumerate(range(0, count, batch)):
        log.append(lines(min(batch, count - start), start))
        if number % signed_every == 0:
            log.sign()
    log.sign()
    log.close()


def copy(folder: Path, to: Path) -> Path:
    """Copy a log, without the files that only its writers use."""
    shutil.copytree(folder, to, ignore=shutil.ignore_patterns("state", "lock"))
    return to


def fault_of(folder: Path, **given: Any) -> str:
    """Return what the verifier finds in a folder; fails if that is nothing."""
    try:
        log = Log(folder, given.pop("keys", TRUSTED), **given)
        log.verify()
    except Discrepancy as fault:
        return str(fault)
    raise AssertionError("the verifier found nothing")


def records(folder: Path) -> list[dict[str, Any]]:
    """Return the records of a log."""
    return [
        json.loads(line[65:])
        for path in sorted(folder.glob("*.log"))
        for line in path.read_bytes().splitlines(keepends=True)[1:]
        if line.endswith(b"\n")
    ]


__all__ = ["Discrepancy", "Log", "Proof", "VerifierKey", "load_keys", "verify"]
