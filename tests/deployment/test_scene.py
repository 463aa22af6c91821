"""The scene for a few seconds; `make scene` plays it for minutes."""

from tests.deployment.scene import LEAST_KILLS, play


async def test_no_call_runs_twice_and_nothing_acknowledged_is_lost() -> None:
    figures = await play("redis", 5.0, clients=4)
    assert figures["kills"] >= LEAST_KILLS
    assert figures["restarts of the store"] == figures["the store stood still"] == 1
    assert figures["outcomes"]["answered"] > 10
    assert figures["sessions ended"] >= 3, "each client of a version with sessions ended its own"
    # A client that hears no answer to `initialize`, since the worker was killed, cannot end its session.
    assert figures["left"].pop("session", 0) <= figures["sessions not ended"]
    assert set(figures["left"]) <= {
        *("ended session", "sessions", "callers"),
        *("inbox", "bus", "keys", "members"),
        *("task", "tasks"),
    }
