"""Three worker processes that share a Redis, without stickiness: a few tests of the wire, each era once.

`make wires-store` runs all tests of HTTP that way, raw ones as well. They fork, which needs a run of its
own; so does this.
"""

import os
import subprocess
import sys
from pathlib import Path

from tests.deployment.forked import ASKED_FOR

ROOT = Path(__file__).parents[2]
CHOSEN = (
    "test_calls_and_their_errors",
    "test_subscriptions",
    "test_changed_lists",
    "test_the_server_asks_the_client",
    "test_a_cancelled_call_ends_on_the_server",
    "test_a_server_that_ends_finishes_what_it_can",
)


def test_calls_questions_updates_and_cancellations_over_three_processes() -> None:
    suite = "tests/transports/test_suite.py"
    command = [sys.executable, "-m", "pytest", "-p", "no:xdist", "-p", "no:cacheprovider", suite]
    alone = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    ran = subprocess.run(
        [*command, "-k", " or ".join(CHOSEN)],
        cwd=ROOT,
        env={**alone, ASKED_FOR: "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-5000:]
    assert f"{2 * len(CHOSEN)} passed" in ran.stdout
