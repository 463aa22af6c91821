"""The short form of `make chaos-gateway`."""

import pytest

from tests.gateway.rampage import rampage


@pytest.mark.timeout(240)
async def test_upstreams_and_gateways_that_fail_under_load() -> None:
    plan = [("kill", "old"), ("freeze", "new"), ("flood", "old"), ("cut", "far")]
    total = await rampage(plan, kills=1, guests=2)
    assert total["answered"] > 100
    assert total["connections cut"] > 0
