"""Raw HTTP is tested twice in files that say so: by one server, and by three that share a Redis.

With three, every connection goes to the next server, so nothing may depend on where a request lands. They
are three endpoints of one process, or three processes (`make wires-store`).
"""

from typing import Any

import pytest

from tests.deployment.forked import ForkedReplicas, is_asked_for
from tests.deployment.spread import Replicas
from tests.redis_server import fresh_address
from tests.transports import raw_http


def in_one_process(why: str) -> Any:
    """Mark a test that a shared store answers otherwise, and say why."""
    return pytest.mark.parametrize("store", ["memory"], indirect=True, ids=[f"memory: {why}"])


def at_one_server(why: str) -> Any:
    """Mark a test that runs with a store, but at one server, and say why."""
    ids = ["memory", f"redis: {why}"]
    return pytest.mark.parametrize("store", ["memory", "redis"], indirect=True, ids=ids)


@pytest.fixture(params=["memory", "machines"])
def store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the servers of the test share this store; `pytestmark` of a file asks for it."""
    if request.param == "memory":
        return
    monkeypatch.setenv("MCPEARL_STORE", fresh_address())
    if request.param == "machines":
        replicas = ForkedReplicas if is_asked_for() else Replicas
        monkeypatch.setattr(raw_http, "spread", replicas(monkeypatch).serving)
