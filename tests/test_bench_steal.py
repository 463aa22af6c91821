"""What the host takes while something is measured: read, added up, rested for and noted."""

from collections.abc import Iterator

import pytest
from bench import tables
from bench.results import Results
from bench.steal import (
    MOST_TAKEN,
    REST_SECONDS,
    TRIES,
    HostWatch,
    ProcessorTime,
    processor_time,
    share_taken,
)

STAT = "cpu  100 20 30 5000 7 1 2 40 15 0\ncpu0 50 10 15 2500 3 0 1 20 7 0\nintr 1 2 3\n"


class Machine:
    """A machine whose host takes a given share of each measure, of 100 ticks."""

    def __init__(self, *shares: float) -> None:
        self._shares: Iterator[float] = iter(shares)
        self._time = ProcessorTime(1000, 10)
        self.rests: list[float] = []
        self.measured = 0

    def now(self) -> ProcessorTime:
        return self._time

    def measure(self) -> int:
        wanted, taken = self._time
        self._time = ProcessorTime(wanted + 100, taken + round(100 * next(self._shares)))
        self.measured += 1
        return self.measured

    def watch(self, rests: float = 1000) -> HostWatch:
        return HostWatch(rests, self.now, self.rests.append)


def test_idle_time_is_not_wanted_and_guests_are_counted_once() -> None:
    assert processor_time(STAT) == ProcessorTime(100 + 20 + 30 + 1 + 2 + 40, 40)


@pytest.mark.parametrize("text", ["", "cpu  1 2 3 4\n", "processor 1 2 3 4 5 6 7 8 9\n"])
def test_a_system_that_does_not_count_it(text: str) -> None:
    assert processor_time(text) is None


@pytest.mark.parametrize(
    ("before", "after", "share"),
    [
        (ProcessorTime(100, 10), ProcessorTime(300, 60), 0.25),
        (ProcessorTime(100, 10), ProcessorTime(300, 10), 0.0),
        (ProcessorTime(100, 10), ProcessorTime(100, 10), 0.0),
        (ProcessorTime(100, 10), ProcessorTime(200, 5), 0.0),
        (None, ProcessorTime(100, 10), 0.0),
        (ProcessorTime(100, 10), None, 0.0),
    ],
)
def test_the_share_that_was_taken(
    before: ProcessorTime | None, after: ProcessorTime | None, share: float
) -> None:
    assert share_taken(before, after) == share


def test_a_measure_that_nothing_disturbs_is_not_repeated() -> None:
    machine = Machine(MOST_TAKEN)
    assert machine.watch().undisturbed("calls", machine.measure) == (1, MOST_TAKEN)
    assert not machine.rests


def test_a_disturbed_measure_is_repeated_after_a_rest() -> None:
    machine = Machine(0.3, 0.02)
    assert machine.watch().undisturbed("calls", machine.measure) == (2, 0.02)
    assert machine.rests == [REST_SECONDS]


def test_the_least_disturbed_try_counts_if_all_are() -> None:
    machine = Machine(0.3, 0.1, 0.2)
    assert machine.watch().undisturbed("calls", machine.measure) == (2, 0.1)
    assert machine.measured == TRIES
    assert machine.rests == [REST_SECONDS] * (TRIES - 1)


def test_all_rests_together_are_bounded() -> None:
    machine = Machine(0.3, 0.4, 0.3, 0.2)
    watch = machine.watch(REST_SECONDS)
    assert watch.undisturbed("calls", machine.measure) == (1, 0.3)
    assert watch.undisturbed("calls", machine.measure) == (3, 0.3)
    assert machine.rests == [REST_SECONDS]


def test_where_nothing_is_counted_nothing_is_repeated() -> None:
    machine = Machine(0.3)
    watch = HostWatch(1000, lambda: None, machine.rests.append)
    assert watch.undisturbed("calls", machine.measure) == (1, 0.0)


def test_a_figure_is_disturbed_if_its_median_may_be() -> None:
    results, later = Results(), Results()
    for taken in (0.2, 0.0):
        results.add_round("http_modern", "mcpearl", 1000.0, taken)
        results.add_round("http_modern", "floor", 2000.0, 0.0)
        results.add_round("http_session", "mcpearl", 1000.0)
    assert results.is_disturbed("http_modern", "mcpearl")
    assert not results.is_disturbed("http_modern", "floor")
    assert not results.is_disturbed("http_session", "mcpearl")
    later.add_round("http_modern", "mcpearl", 1000.0, 0.01)
    results.add(later)
    assert not results.is_disturbed("http_modern", "mcpearl")


def test_the_report_marks_a_disturbed_figure() -> None:
    results = Results()
    results.add_round("http_modern", "mcpearl", 1000.0, 0.2)
    results.add_round("http_modern", "floor", 2000.0, 0.0)
    ((_, table),) = tables.figure_tables(results)
    assert f"1,000{tables.DISTURBED}" in table[1]
    assert "2,000" in table[1]
