"""The short form of `make chaos`."""

import pytest

from tests.chaos.rampage import KINDS, rampage


@pytest.mark.timeout(240)
async def test_parts_of_a_server_are_killed_under_load() -> None:
    report = await rampage(seconds=3.0, seed=14)
    assert report.parts.keys() == report.tree
    assert report.processes.keys() == set(KINDS)
    assert report.outcomes["answered"] > 100
