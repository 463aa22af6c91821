"""What `import mcpearl` adds to the imports every server needs."""

import subprocess
import sys
import time

from bench.environments import clean_environ
from bench.progress import say
from bench.results import Results

LEAST = 0.1  # ms; noise can make a difference negative
FLOOR = "import asyncio, msgspec"
IMPORTS = {
    "import": "import asyncio, msgspec, mcpearl",
    # The package loads its parts late; this is what a server script really needs.
    "import_server": "import asyncio, msgspec; from mcpearl import Server",
}


def run(results: Results, *, quick: bool) -> None:
    """Start interpreters in turn; a round is the difference to the floor just before."""
    starts = 2 if quick else 21
    say(f"import: {starts} interpreter starts of each kind, in turn")
    codes = dict(IMPORTS)
    for number in range(starts + 1):
        floor = _seconds(FLOOR)
        for name, code in list(codes.items()):
            seconds = _seconds(code)
            if seconds is None or floor is None:
                results.missing.append(f"{name}: `{code}` fails")
                del codes[name]
            elif number > 0:  # the first start fills the file cache and writes the bytecode
                results.add_round(name, "mcpearl", max((seconds - floor) * 1e3, LEAST))


def _seconds(code: str) -> float | None:
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, env=clean_environ(), check=False
    )
    return None if done.returncode else time.perf_counter() - started
