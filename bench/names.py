"""A million names in a registry: ``python -m bench.names 1000000`` prints what each takes.

It runs in a process of its own, so that its memory is that of the names. They are looked up at random,
each once, as text that was made anew: of a single name, or of names in the order in which they were made,
the processor has everything at hand.
"""

import random
import sys
import time

import msgspec
import psutil

from mcpearl.runtime.names import Names

_LOOKUPS = 100_000


class Figures(msgspec.Struct):
    lookup: float
    """Microseconds of processor time."""
    dictionary: float
    """The same in a dictionary with the same names, which is the least there can be."""
    size: float
    """Bytes of one name, without its text and its owner."""


class _Owner:
    """Holds one name."""


def measure(count: int) -> Figures:
    owners = {f"name {number}": _Owner() for number in range(count)}
    process, names = psutil.Process(), Names()
    before = process.memory_info().rss
    for name, owner in owners.items():
        names.hold(name, owner)
    size = (process.memory_info().rss - before) / count
    chosen = random.sample(range(count), min(count, _LOOKUPS))
    spent = []
    for lookup in (names.lookup, owners.get):
        fresh = [f"name {number}" for number in chosen]
        began = time.thread_time()
        for name in fresh:
            lookup(name)
        spent.append((time.thread_time() - began) / len(fresh) * 1e6)
    return Figures(*spent, size)


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(measure(int(sys.argv[1]))))
