"""Flips bits of a log that a server has written, and has the verifier look for each.

    python -m tests.receipts.flips --calls 100000 --flips 1000

This is what `make flip-receipts` runs; the tests have a shorter version.
"""

import argparse
import asyncio
import random
import sys
import tempfile
import time
from pathlib import Path

from mcpearl import Client, Server
from mcpearl.receipts.receipts import Receipts
from mcpearl.receipts.verifier import Discrepancy, Log, VerifierKey, load_keys
from tests.receipts.logs import copy


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


def flip(folder: Path, keys: list[VerifierKey], chance: random.Random) -> str:
    """Flip one bit anywhere in a log, verify it, and put the bit back; return what was found."""
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
        return str(fault)
    finally:
        with path.open("r+b") as file:
            file.seek(place)
            file.write(bytes([byte]))
    raise AssertionError(f"bit {bit} of byte {place} of {path.name} was flipped, and not noticed")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--calls", type=int, default=100_000)
    parser.add_argument("--flips", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    given = parser.parse_args()
    chance = random.Random(given.seed)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made) / "receipts"
        asyncio.run(make_calls(folder, given.calls))
        keys = load_keys([str(folder / "key.pub")])
        log = Log(folder, keys)
        began = time.perf_counter()
        log.verify()
        print(f"{log.size} records of {given.calls} calls, seed {given.seed}")
        print(f"verified in {time.perf_counter() - began:.2f} s")
        folder = copy(folder, Path(made) / "copy")
        for number in range(1, given.flips + 1):
            flip(folder, keys, chance)
            if number % 50 == 0:
                print(f"{number} of {given.flips} flipped bits were found", flush=True)
        Log(folder, keys).verify()
    sys.exit(0)


if __name__ == "__main__":
    main()
