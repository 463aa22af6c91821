"""Flips bits of a log that a server has written, and has the verifier look for each.

    python -m tests.receipts.flips --calls 100000 --flips 1000

This is what `make flip-receipts` runs; the tests have a shorter version. Each flip is followed by a whole
verification, from the first record on. Several processes flip bits at once, each in a copy of its own.
"""

import argparse
import asyncio
import os
import random
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from mcpearl import Client, Server
from mcpearl.receipts.receipts import Receipts
from mcpearl.receipts.verifier import Discrepancy, Log, VerifierKey, load_keys
from tests.receipts.logs import copy

_TOGETHER = 10  # flips that one process makes before it reports


async def make_calls(folder: Path, calls: int, at_once: int = 200) -> None:
    """Have a server record so many calls."""
    app = Server("flips", receipts=Receipts(folder, rotate=4 << 20, sign_every=0.05))

    @app.tool
    async def add(a: int, b: int) -> int:
        return a + b

    async with Client(app, validate_output=False) as client:
        for start in range(0, calls, at_once):
            numbers = range(start, min(start + at_once, calls))
            await asyncio.gather(*(client.call_tool("add", {"a": n, "b": 1}) for n in numbers))


def flip(folder: Path, keys: list[VerifierKey], chance: random.Random) -> tuple[Path, str]:
    """Flip one bit anywhere in a log, verify it, and put the bit back.

    Returns the file, and what the verifier found.
    """
    files = sorted(path for path in folder.iterdir() if path.suffix in (".log", ".heads"))
    files.append(folder / "checkpoint")
    path = chance.choices(files, [file.stat().st_size for file in files])[0]
    place, bit = chance.randrange(path.stat().st_size), 1 << chance.randrange(8)
    with path.open("r+b") as file:
        file.seek(place)
        byte = file.read(1)[0]
        file.seek(place)
        file.write(bytes([byte ^ bit]))
    try:
        Log(folder, keys).verify()
    except Discrepancy as fault:
        return path, str(fault)
    finally:
        with path.open("r+b") as file:
            file.seek(place)
            file.write(bytes([byte]))
    raise AssertionError(f"bit {bit} of byte {place} of {path.name} was flipped, and not noticed")


def flip_some(folder: Path, to: Path, seed: int, count: int) -> "Counter[str]":
    """Flip bits in this process's copy of a log; return how many were found in each kind of file."""
    own = to / str(os.getpid())
    if not own.exists():
        copy(folder, own)
    keys, chance = load_keys([str(folder / "key.pub")]), random.Random(seed)
    flipped = (flip(own, keys, chance) for _ in range(count))
    return Counter(path.suffix or path.name for path, _ in flipped)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--calls", type=int, default=100_000)
    parser.add_argument("--flips", type=int, default=1000)
    parser.add_argument("--at-once", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made) / "receipts"
        began = time.perf_counter()
        asyncio.run(make_calls(folder, given.calls))
        log = Log(folder, load_keys([str(folder / "key.pub")]))
        called = time.perf_counter()
        log.verify()
        verified = time.perf_counter()
        print(f"{log.size} records of {given.calls} calls, seed {given.seed}")
        print(f"made in {called - began:.1f} s, verified in {verified - called:.2f} s", flush=True)
        chance, found = random.Random(given.seed), Counter[str]()
        with ProcessPoolExecutor(given.at_once) as pool:
            work = [
                pool.submit(
                    flip_some,
                    *(folder, Path(made), chance.getrandbits(32)),
                    min(_TOGETHER, given.flips - start),
                )
                for start in range(0, given.flips, _TOGETHER)
            ]
            for number, done in enumerate(as_completed(work), 1):
                found += done.result()
                if number % 10 == 0 or number == len(work):
                    print(f"{found.total()} of {given.flips} flipped bits were found", flush=True)
        for each in filter(Path.is_dir, Path(made).iterdir()):
            Log(each, load_keys([str(folder / "key.pub")])).verify()  # all bits are back
        kinds = ", ".join(f"{count} in {kind}" for kind, count in found.items())
        print(f"all were found ({kinds}), in {time.perf_counter() - verified:.0f} s")


if __name__ == "__main__":
    main()
