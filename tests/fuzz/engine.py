"""Looks for inputs that break a promise of one target, until its time is up.

With `atheris`, what an input reaches in the code decides which ones are kept and mutated further. Without
it, the corpus alone is mutated. This runs in a process of its own: `python -m tests.fuzz.engine --help`.
"""

import argparse
import hashlib
import importlib.util
import os
import random
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from tests.fuzz.target import Target

ROOT = Path(__file__).parent.parent.parent
HOME = ROOT / ".fuzz"
FOUND = 1  # the exit code when a promise was broken
_SHOWN_EVERY = 5.0  # seconds
_GROWTH_EVERY = 64  # inputs
_LONGEST = 20.0  # seconds of processor time for one input
_MAX_SIZE = 4096


class Search:
    """One run: counts inputs, shows how far it is, and saves what it finds."""

    def __init__(self, target: "Target", seconds: float, home: Path = HOME) -> None:
        self._target = target
        self._home = home
        self._seconds = seconds
        self._begun = self._shown = time.monotonic()
        self._tried = 0
        self.kept = home / target.name

    @property
    def is_over(self) -> bool:
        """Whether the time is up."""
        return time.monotonic() - self._begun > self._seconds

    def try_input(self, data: bytes) -> None:
        """Check one input; leave the process when it breaks a promise."""
        self._tried += 1
        begun = time.process_time()
        try:
            self._target.check(data)
            if self._tried % _GROWTH_EVERY == 0:
                self._check_growth(data)
        except Exception:
            self._report(data, traceback.format_exc())
        if time.process_time() - begun > _LONGEST:
            self._report(data, f"This input took more than {_LONGEST:g} s.\n")
        if time.monotonic() - self._shown > _SHOWN_EVERY:
            self._shown = time.monotonic()
            self.show()

    def _check_growth(self, data: bytes) -> None:
        from tests.fuzz.growth import check_growth

        check_growth(self._target, data, random.Random(hashlib.sha256(data).digest()))

    def show(self) -> None:
        """Print how far the search is."""
        passed = time.monotonic() - self._begun
        kept = sum(1 for _ in self.kept.iterdir()) if self.kept.is_dir() else 0
        print(
            f"{self._target.name:>15}  {min(passed, self._seconds):5.0f} of {self._seconds:.0f} s  "
            f"{self._tried:>9,} inputs  {self._tried / max(passed, 0.001):>7,.0f} a second  "
            f"{kept:>5} kept",
            flush=True,
        )

    def _report(self, data: bytes, trace: str) -> NoReturn:
        from tests.fuzz.minimize import minimize

        print(f"\n{self._target.name}: an input breaks a promise; making it small …", flush=True)
        small = minimize(self._target.check, data)
        file = (
            self._home / "found" / f"{self._target.name}-{hashlib.sha256(small).hexdigest()[:12]}"
        )
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(small)
        shown = file.relative_to(ROOT) if file.is_relative_to(ROOT) else file
        print(
            f"{trace}\nThe input, {len(small)} bytes: {small[:300]!r}\nsaved as {shown}\n"
            f"replay with: python -m tests.fuzz --replay {shown}\n"
            f"once repaired: mv {shown} tests/fuzz/corpus/{self._target.name}/<what it shows>",
            flush=True,
        )
        os._exit(FOUND)  # from inside the engine's callback there is no other way out


def guided(name: str, seconds: float, seed: int) -> NoReturn:
    """Search with `atheris`, which does not return."""
    log = os.open(HOME / f"{name}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 2)  # the engine speaks of every module it instruments
    import atheris

    from tests.fuzz.target import CORPUS

    with atheris.instrument_imports(include=["mcpearl", "h2", "hpack", "websockets"]):
        from tests.fuzz.targets import load

        target = load(name)
    search = Search(target, seconds)
    search.kept.mkdir(parents=True, exist_ok=True)
    words = HOME / f"{name}.words"
    words.write_text("".join(f'"{_escaped(word)}"\n' for word in target.words))

    def one(data: bytes) -> None:
        if search.is_over:
            search.show()
            sys.stdout.flush()
            os._exit(0)
        search.try_input(data)

    arguments = [
        sys.argv[0],
        f"-seed={seed or 1}",
        f"-max_len={_MAX_SIZE}",
        f"-dict={words}",
        f"-artifact_prefix={HOME}/{name}-",
        "-timeout=120",
        "-rss_limit_mb=2048",
        "-verbosity=0",
        str(search.kept),
        str(CORPUS / name),
    ]
    atheris.Setup(arguments, one)
    atheris.Fuzz()
    os._exit(0)


def _escaped(word: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in word)


def unguided(name: str, seconds: float, seed: int) -> None:
    """Mutate the corpus."""
    from tests.fuzz.mutate import Mutator
    from tests.fuzz.targets import load

    target = load(name)
    search = Search(target, seconds)
    inputs = target.corpus()
    mutator = Mutator(random.Random(f"{name} {seed}"), target.words)
    for data in inputs:
        search.try_input(data)
    while not search.is_over:
        search.try_input(mutator.mutate(inputs))
    search.show()


def main() -> None:
    """Search for one target."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0, help="0 for another one each time")
    given = parser.parse_args()
    seed = given.seed or int.from_bytes(os.urandom(3), "big")
    HOME.mkdir(exist_ok=True)
    search = unguided if importlib.util.find_spec("atheris") is None else guided
    search(given.target, given.seconds, seed)


if __name__ == "__main__":
    main()
