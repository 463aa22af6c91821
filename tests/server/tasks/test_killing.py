"""Workers killed at random: the short version of `make kill-tasks`."""

import sys

import pytest

from tests.server.tasks.killing import run


@pytest.mark.skipif(sys.platform != "linux", reason="finds the workers in /proc")
async def test_workers_killed_at_random() -> None:
    problems, summary = await run(tasks=150, seconds=8.0, seed=7)
    assert not problems, (summary, problems)
