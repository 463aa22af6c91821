"""Find another Python to run the tests with: print its path, or nothing when there is none.

Looked at are the `python3.N` on the PATH and the installations beside the one that runs this. The
second newest of all is taken, since the newest may lack binary packages; if that is the version
running this, the newest of the others.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

OLDEST = (3, 11)
NEWEST = (3, 19)
ASK = "import sys, venv, ensurepip; print(*sys.version_info[:2])"


def candidates() -> list[Path]:
    """List the interpreters that may be there, by their name."""
    beside = Path(sys.base_prefix).parent
    found = []
    for minor in range(OLDEST[1], NEWEST[1] + 1):
        name = f"python3.{minor}"
        found += [Path(path) for path in (shutil.which(name),) if path]
        found += sorted(beside.glob(f"*/bin/{name}"))
    return found


def version_of(interpreter: Path) -> tuple[int, ...] | None:
    """Ask an interpreter for its version; None when it does not run or cannot make a venv."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    try:
        said = subprocess.run(
            [interpreter, "-c", ASK], capture_output=True, text=True, timeout=60, env=clean
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return tuple(map(int, said.stdout.split())) if said.returncode == 0 else None


def choose(found: dict[tuple[int, ...], Path], own: tuple[int, ...]) -> Path | None:
    """Choose among interpreters by version: the second newest, if it is not this one."""
    newest_first = sorted({*found, own}, reverse=True)
    second = newest_first[1:2]
    others = [version for version in (*second, *newest_first) if version != own]
    return found[others[0]] if others else None


def main() -> None:
    """Print the interpreter that was chosen."""
    found: dict[tuple[int, ...], Path] = {}
    for candidate in candidates():
        version = version_of(candidate)
        if version is not None and version >= OLDEST:
            found.setdefault(version, candidate)
    chosen = choose(found, tuple(sys.version_info[:2]))
    if chosen is not None:
        print(chosen)


if __name__ == "__main__":
    main()
