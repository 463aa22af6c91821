"""A short run of every target: its corpus, and mutations of it that are the same each time."""

import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.engine import ROOT
from tests.fuzz.minimize import failure_of, minimize
from tests.fuzz.mutate import MAX_SIZE, Mutator
from tests.fuzz.target import Broken, require
from tests.fuzz.targets import NAMES, load

# Mutations for each target, by what one costs: a second or so in all.
COUNTS = {
    "http-server": 60,
    "http2-client": 80,
    "http1-client": 200,
    "websocket": 200,
    "framing": 250,
    "ends": 200,
    "sse": 250,
}
COUNT = 1000


@pytest.mark.parametrize("name", NAMES)
def test_promises_hold_on_the_corpus_and_on_mutations_of_it(name: str) -> None:
    target = load(name)
    inputs = target.corpus()
    mutator = Mutator(random.Random(name), target.words)
    for data in inputs:
        target.check(data)
    for number in range(COUNTS.get(name, COUNT)):
        data = mutator.mutate(inputs)
        broken = failure_of(target.check, data)
        if broken is not None:
            small = minimize(target.check, data, seconds=10.0)
            pytest.fail(f"mutation {number} breaks a promise: {broken}\n{small!r}")


def test_the_corpus_is_small() -> None:
    for name in NAMES:
        inputs = load(name).corpus()
        assert 0 < len(inputs) <= 60, name
        assert sum(map(len, inputs)) <= 64 * 1024, name


def test_the_same_seed_makes_the_same_inputs() -> None:
    made = [
        [Mutator(random.Random(1), (b"word",)).mutate([b"abc" * 9, b"{}"]) for _ in range(20)]
        for _ in range(2)
    ]
    assert made[0] == made[1]
    assert all(len(each) <= MAX_SIZE for each in made[0])


def test_an_input_is_made_small() -> None:
    def check(data: bytes) -> None:
        require(not (b"a" in data and b"z" in data), "a and z together")

    with pytest.raises(Broken):
        check(b"12a34z56")
    assert minimize(check, b"x" * 500 + b"a" + b"y" * 300 + b"z" + b"x" * 100) == b"az"


BREAKS = """
from pathlib import Path
from tests.fuzz.engine import Search
from tests.fuzz.target import Target, require

target = Target("sse", lambda data: require(b"!" not in data, "no exclamation mark"))
search = Search(target, 1.0, Path({home!r}))
search.try_input(b"quiet")
search.try_input(b"so " * 50 + b"loud! " * 50)
"""


def test_what_breaks_a_promise_is_saved_small_with_the_command_that_replays_it(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-c", BREAKS.format(home=str(tmp_path))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    (file,) = (tmp_path / "found").iterdir()
    assert file.read_bytes() == b"!"
    assert "Broken: no exclamation mark" in done.stdout
    assert f"python -m tests.fuzz --replay {file}\n" in done.stdout


def test_an_input_can_be_replayed() -> None:
    file = Path("tests/fuzz/corpus/sse/fields")
    command = [sys.executable, "-m", "tests.fuzz", "--replay", file]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == f"{file}: every promise holds\n", done.stderr
