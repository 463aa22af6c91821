"""The types that a checker infers for what people write."""

import subprocess
import sys
from pathlib import Path

import pytest

SAMPLE = Path(__file__).parent / "typing_sample.py"
WRONG = """
from mcpearl import Context, Server

app = Server("typed")


@app.tool(titel="x")
def one() -> int:
    return 1


async def ask(ctx: Context[int]) -> str:
    answer = await ctx.elicit("How many?", int)
    return answer.data


def wrong(ctx: Context[int]) -> str:
    return ctx.lifespan
"""


@pytest.mark.timeout(300)  # a checker that starts without a cache, beside other tests
def test_a_strict_checker_infers_the_types_of_answers_and_lifespans(tmp_path: Path) -> None:
    mistakes = tmp_path / "mistakes.py"
    mistakes.write_text(WRONG)
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", SAMPLE, mistakes],
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert checked.stderr == ""
    found = [
        line.partition(": error: ")[0]
        for line in checked.stdout.splitlines()
        if ": error: " in line
    ]
    places = {(Path(file).name, line) for file, _, line in (each.rpartition(":") for each in found)}
    assert places == {("mistakes.py", line) for line in ("7", "14", "18")}, checked.stdout
