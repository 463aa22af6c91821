"""The short form of `make chaos`."""

import pytest

from tests.chaos.rampage import rampage


@pytest.mark.timeout(240)
async def test_parts_of_a_server_are_killed_under_load() -> None:
    total = await rampage(seconds=3.0, seed=14)
    assert total["killed"] >= 9
    assert all(total[f"killed {each}"] for each in ("isolated", "zygote", "worker", "stdio"))
    assert total["answered"] > 100
