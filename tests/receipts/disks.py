"""What servers with receipts do on real disks that are full or cannot be written to.

    python -m tests.receipts.disks SCENARIO FOLDER KEPT

The tests run this in a mount namespace of its own, in which it mounts a small file system at FOLDER. What
it sees is printed as JSON; logs are copied to KEPT, since the file system ends with the namespace.
"""

import asyncio
import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

from mcpearl import Client, McpError, Server
from mcpearl.receipts.log import ReceiptLog
from mcpearl.receipts.receipts import Receipts
from mcpearl.runtime.arguments import Unusable
from tests.receipts.logs import KEY, copy, lines
from tests.waiting import eventually


def mount(folder: Path, options: str) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", folder], check=True)


def remount(folder: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", folder], check=True)


def fill(path: Path) -> None:
    """Write until the disk has no room for another byte."""
    with path.open("wb", buffering=0) as file:
        for size in (4096, 1):
            try:
                while file.write(b"x" * size):
                    pass
            except OSError as error:
                assert error.strerror == "No space left on device", error


def make_app(receipts: Receipts | Path) -> Server:
    app = Server("weather", receipts=receipts, telemetry=False)

    @app.tool
    async def add(a: int, b: int) -> int:
        return a + b

    return app


class Seen:
    """What the records of the log of a server said, and its answers."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.answered = 0
        self.refused: list[str] = []

    async def call(self) -> bool:
        try:
            result = await self._client.call_tool("add", {"a": 1, "b": 2})
        except McpError as error:
            self.refused.append(error.message)
            return False
        assert result.data == 3
        self.answered += 1
        return True


async def full(folder: Path, kept: Path, on_full: str, durable: bool) -> dict[str, Any]:
    """A disk that is full for a while."""
    mount(folder, "size=256k")
    log, ballast = folder / "receipts", folder / "ballast"
    app = make_app(
        Receipts(
            log,
            key=kept / "receipts.key",
            on_full=on_full,  # type: ignore[arg-type]
            durable=durable,
            rotate=4096,
            sign_every=0.02,
        )
    )
    async with Client(app, telemetry=False) as client:
        seen, recorder = Seen(client), app.core.recorder
        assert recorder is not None
        rounds = []
        for _ in range(3):
            for _ in range(5):
                assert await seen.call()
            fill(ballast)

            async def is_full() -> bool:
                await seen.call()
                return recorder._full

            await eventually(is_full)
            reason, before = recorder._reason, (seen.answered, len(seen.refused))
            for _ in range(20):
                await seen.call()
            rounds.append(
                {
                    "reason": reason,
                    "answered": seen.answered - before[0],
                    "refused": len(seen.refused) - before[1],
                }
            )
            ballast.unlink()
            await eventually(lambda: not recorder._full)
        assert await seen.call()
    copy(log, kept / "log")
    return {"rounds": rounds, "answered": seen.answered, "refused": seen.refused}


async def full_and_refused(folder: Path, kept: Path) -> dict[str, Any]:
    return await full(folder, kept, "refuse", False)


async def full_durable(folder: Path, kept: Path) -> dict[str, Any]:
    return await full(folder, kept, "refuse", True)


async def full_and_continued(folder: Path, kept: Path) -> dict[str, Any]:
    return await full(folder, kept, "continue", False)


async def full_for_a_new_file(folder: Path, kept: Path) -> dict[str, Any]:
    """The disk becomes full when the next file of a log is begun."""
    mount(folder, "size=64k")
    log = ReceiptLog(folder / "receipts", lambda: [KEY], rotate=1000)
    log.open()
    failures = []
    for number in range(0, 30, 10):
        log.append(lines(10, number))
        log.sign()
        fill(folder / "ballast")
        for _ in range(3):
            try:
                log.append(lines(1, 100))
            except OSError as error:
                failures.append(str(error.strerror))
        (folder / "ballast").unlink()
    log.append(lines(1, 30))
    log.sign()
    log.close()
    copy(folder / "receipts", kept / "log")
    return {"failures": failures}


async def started(receipts: Receipts | Path) -> str:
    """Start a server; return why it did not start."""
    try:
        async with make_app(receipts).running():
            return ""
    except Unusable as error:
        return str(error)


async def read_only(folder: Path, kept: Path) -> dict[str, Any]:
    """A folder that cannot be written to when a server starts: empty, and with a log in it."""
    mount(folder, "size=256k")
    key, log = kept / "receipts.key", folder / "receipts"
    remount(folder, "ro")
    reasons = [await started(Receipts(log, key=key)), await started(log)]
    remount(folder, "rw")
    assert await started(Receipts(log, key=key)) == ""
    before = {path.name: path.read_bytes() for path in log.iterdir()}
    remount(folder, "ro")
    reasons.append(await started(Receipts(log, key=key)))
    after = {path.name: path.read_bytes() for path in log.iterdir()}
    remount(folder, "rw")
    assert await started(Receipts(log, key=key)) == ""
    copy(log, kept / "log")
    return {"reasons": reasons, "is_untouched": before == after}


async def read_only_later(folder: Path, kept: Path) -> dict[str, Any]:
    """A disk that turns read-only while a server runs, as one with faults does."""
    mount(folder, "size=256k")
    log = folder / "receipts"
    app = make_app(Receipts(log, key=kept / "receipts.key", rotate=2000, sign_every=0.02))
    async with Client(app, telemetry=False) as client:
        seen, recorder = Seen(client), app.core.recorder
        assert recorder is not None
        assert await seen.call()
        # Files that are open for writing keep a file system from being remounted, so it is the next file.
        subprocess.run(["mount", "--bind", folder, folder], check=True)
        subprocess.run(["mount", "-o", "remount,bind,ro", folder], check=True)

        async def is_refused() -> bool:
            return not await seen.call()

        await eventually(is_refused)
        reason = recorder._reason
        subprocess.run(["umount", folder], check=True)
        await eventually(seen.call)
    copy(log, kept / "log")
    return {"reason": reason, "refused": seen.refused, "answered": seen.answered}


SCENARIOS = {
    each.__name__: each
    for each in (
        full_and_refused,
        full_durable,
        full_and_continued,
        full_for_a_new_file,
        read_only,
        read_only_later,
    )
}


def main() -> None:
    scenario, folder, kept = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    logging.basicConfig(level=logging.WARNING)
    print(json.dumps(asyncio.run(SCENARIOS[scenario](folder, kept))))


if __name__ == "__main__":
    main()
