"""The types that a checker infers for what people write."""

import subprocess
import sys
from pathlib import Path

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


def mypy(path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", str(path)],
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_a_strict_checker_infers_the_types_of_answers_and_lifespans(tmp_path: Path) -> None:
    checked = mypy(SAMPLE)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    mistakes = tmp_path / "mistakes.py"
    mistakes.write_text(WRONG)
    found = mypy(mistakes).stdout.splitlines()
    lines = {line.partition("mistakes.py:")[2].partition(":")[0] for line in found}
    assert lines == {"7", "14", "18"}, found
