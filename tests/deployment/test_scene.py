"""The scene for a few seconds; `make scene` plays it for minutes."""

from tests.deployment.scene import play


async def test_no_call_runs_twice_and_nothing_acknowledged_is_lost() -> None:
    figures = await play("redis", 5.0, clients=4)
    assert figures["kills"] >= 3
    assert figures["restarts of the store"] == figures["the store stood still"] == 1
    assert figures["outcomes"]["answered"] > 10
    assert set(figures["left"]) <= {
        *("ended session", "sessions", "callers"),
        *("inbox", "bus", "keys", "members"),
        *("task", "tasks"),
    }
