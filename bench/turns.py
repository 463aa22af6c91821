"""Rates of servers in percent of another's, measured in many short turns.

What else a machine does changes from second to second. Servers that have their turns right after each
other see the same of it, and the median leaves out the turns in which they did not.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median

from bench.steal import host

Measure = Callable[[], float]


def processor_seconds(pid: int) -> float:
    """Return the processor time that the threads of a process have had."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int(Path(each, "schedstat").read_text().split()[0]) for each in threads) / 1e9


def per_processor_second(pid: int, load: Callable[[], float]) -> float:
    """Return how much a process does in a second of its processor time, whatever else the machine does.

    Args:
        pid: The process.
        load: Has it do something, and returns how much that was.
    """
    before = processor_seconds(pid)
    done = load()
    return done / (processor_seconds(pid) - before)


def shares(
    what: str, base: str, measures: Mapping[str, Measure], turns: int
) -> tuple[dict[str, float], float]:
    """Measure the rate of each but the base in percent of the base's: the median over all turns.

    A turn of which the host took much is repeated.

    Args:
        what: What is measured, for the progress.
        base: Whose rate is 100 percent.
        measures: By name, what returns the rate of a short while. Each is called once before, to warm up.
        turns: How often each has its turn. The order is reversed every time.

    Returns:
        The percentages by name, and the median of what the host took of the turns.
    """
    order = list(measures)
    for name in order:
        measures[name]()
    found: dict[str, list[float]] = {name: [] for name in order if name != base}
    taken: list[float] = []

    def turn() -> dict[str, float]:
        return {name: measures[name]() for name in order}

    for _ in range(turns):
        rates, share = host.undisturbed(what, turn)
        taken.append(share)
        for name, each in found.items():
            each.append(100 * rates[name] / rates[base])
        order.reverse()
    return {name: median(each) for name, each in found.items()}, median(taken)
