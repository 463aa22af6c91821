"""Delays grow, are spread by jitter, and start again after something worked for long enough."""

import pytest

from mcpearl.runtime.backoff import Backoff, Retries, doubling


@pytest.mark.parametrize(
    ("first", "maximum", "delays"),
    [(1.0, 5.0, (1.0, 2.0, 4.0, 5.0)), (3.0, 3.0, (3.0,)), (8.0, 3.0, (8.0,)), (0.0, 3.0, (0.0,))],
)
def test_doubling_ends_at_the_maximum(
    first: float, maximum: float, delays: tuple[float, ...]
) -> None:
    assert doubling(first, maximum) == delays


def test_the_last_delay_applies_to_all_later_attempts() -> None:
    backoff = Backoff(delays=(1.0, 2.0), jitter=0)
    assert [backoff.delay(attempt) for attempt in range(4)] == [1.0, 2.0, 2.0, 2.0]


@pytest.mark.parametrize(("chance", "delay"), [(0.0, 3.0), (0.5, 4.0), (1.0, 5.0)])
def test_jitter_moves_a_delay_either_way(chance: float, delay: float) -> None:
    assert Backoff(delays=(4.0,), jitter=0.25).delay(0, lambda: chance) == delay


def test_attempts_are_counted_until_it_worked_for_the_current_delay() -> None:
    retries = Retries(Backoff(delays=(1.0, 2.0, 4.0), jitter=0))
    assert [retries.next_delay() for _ in range(2)] == [1.0, 2.0]
    retries.worked_for(4.0)
    assert retries.next_delay() == 4.0
    retries.worked_for(4.1)
    assert retries.next_delay() == 1.0


def test_how_long_it_has_to_work_can_be_given() -> None:
    retries = Retries(Backoff(delays=(1.0, 2.0), jitter=0, settled_after=10.0))
    retries.next_delay()
    retries.worked_for(9.0)
    assert retries.attempts == 1
    retries.worked_for(11.0)
    assert retries.attempts == 0


def test_the_source_of_chance_can_be_replaced() -> None:
    retries = Retries(Backoff(delays=(4.0,), jitter=0.5), chance=lambda: 0.0)
    assert retries.next_delay() == 2.0


@pytest.mark.parametrize(
    "wrong", [{"delays": ()}, {"delays": (-1.0,)}, {"delays": (1.0,), "jitter": 1.5}]
)
def test_impossible_figures_are_refused(wrong: dict[str, tuple[float, ...]]) -> None:
    with pytest.raises(ValueError, match=r"`Backoff\."):
        Backoff(**wrong)
