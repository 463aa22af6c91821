"""What `import mcpearl` costs over the imports nothing can do without."""

import statistics
import subprocess
import sys
import time

from bench.environments import clean_environ
from bench.progress import say
from bench.results import Results

RESOLUTION = 0.1  # ms; a difference below it is noise, even below zero
FLOOR = "import asyncio, msgspec"
IMPORTS = {
    "import": "import asyncio, msgspec, mcpearl",
    # The package itself may load its parts late; this is what a server script really needs.
    "import_server": "import asyncio, msgspec; from mcpearl import Server",
}


def run(results: Results, *, quick: bool) -> None:
    """Start interpreters by turns, and take the medians apart."""
    starts = 2 if quick else 15
    say(f"import: {starts} interpreter starts of each kind, by turns")
    codes = {"floor": FLOOR} | IMPORTS
    times: dict[str, list[float]] = {name: [] for name in codes}
    for number in range(starts + 1):
        for name, code in list(codes.items()):
            seconds = _seconds(code)
            if seconds is None:
                results.missing.append(f"{name}: `{code}` fails")
                del codes[name], times[name]
            elif number > 0:  # the first start fills the file cache and writes the bytecode
                times[name].append(seconds)
    floor = statistics.median(times.pop("floor"))
    for name, seconds_ in times.items():
        added = (statistics.median(seconds_) - floor) * 1e3
        results.add(name, "mcpearl", max(added, RESOLUTION))


def _seconds(code: str) -> float | None:
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, env=clean_environ(), check=False
    )
    return None if done.returncode else time.perf_counter() - started
