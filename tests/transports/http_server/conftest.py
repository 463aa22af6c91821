"""Raw HTTP is tested twice in files that say so: in one process, and with a Redis that it shares."""

from typing import Any

import pytest

from tests.redis_server import fresh_address


def in_one_process(why: str) -> Any:
    """Mark a test that a shared store answers otherwise, and say why."""
    return pytest.mark.parametrize("store", ["memory"], indirect=True, ids=[f"memory: {why}"])


@pytest.fixture(params=["memory", "redis"])
def store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have every server of the test share this store; `pytestmark` of a file asks for it."""
    if request.param == "redis":
        monkeypatch.setenv("MCPEARL_STORE", fresh_address())
