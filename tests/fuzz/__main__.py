"""Fuzz all targets, or those that are named, one after the other; or replay one input.

python -m tests.fuzz [--seconds 120] [target …]
python -m tests.fuzz --replay .fuzz/found/sse-0123456789ab
"""

import argparse
import importlib.util
import subprocess
import sys
from pathlib import Path

from tests.fuzz.engine import FOUND, HOME, ROOT
from tests.fuzz.targets import NAMES, load


def replay(file: Path) -> None:
    """Run the target of an input, which its name or its folder tells, on it."""
    named = [name for name in NAMES if file.name.startswith(f"{name}-") or file.parent.name == name]
    if not named:
        sys.exit(f"no target belongs to {file}; its name begins with one of {', '.join(NAMES)}")
    load(max(named, key=len)).check(file.read_bytes())
    print(f"{file}: every promise holds")


def main() -> None:
    """Fuzz, and exit with 1 if a promise was broken."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("targets", nargs="*", metavar="target", help=", ".join(NAMES))
    parser.add_argument("--seconds", type=float, default=120.0, help="for each target")
    parser.add_argument("--seed", type=int, default=0, help="0 for another one each time")
    parser.add_argument("--replay", type=Path, metavar="file")
    given = parser.parse_args()
    if given.replay is not None:
        replay(given.replay)
        return
    unknown = [name for name in given.targets if name not in NAMES]
    if unknown:
        parser.error(f"unknown target {unknown[0]!r}; there are {', '.join(NAMES)}")
    if importlib.util.find_spec("atheris") is None:
        print("atheris is not installed: the corpus is mutated without looking at coverage")
    broken = []
    for name in given.targets or NAMES:
        options = ["--seconds", str(given.seconds), "--seed", str(given.seed)]
        command = [sys.executable, "-m", "tests.fuzz.engine", name, *options]
        done = subprocess.run(command, cwd=ROOT)
        if done.returncode:
            broken.append(name)
            if done.returncode != FOUND:
                shown = (HOME / f"{name}.log").relative_to(ROOT)
                print(f"{name:>15}  ended with {done.returncode}; see {shown}", flush=True)
    if broken:
        sys.exit(f"broken promises: {', '.join(broken)}")
    print("every promise held")


if __name__ == "__main__":
    main()
