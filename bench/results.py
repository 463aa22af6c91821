"""What a run measured: the rounds of every metric and peer, and what could not be measured.

A figure is the median of its rounds and carries their quartiles, so that a reader sees what is
difference and what is noise.
"""

import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from bench.steal import MOST_TAKEN

MOST_SPREAD = 0.15  # of the median; quartiles further apart say more about the machine


class WrongAnswer(Exception):
    """A server or a component returned something other than the right answer."""


class NoAnswer(WrongAnswer):
    """A server did not start, refused a request, broke a connection, or took too long."""


@dataclass(frozen=True)
class Estimate:
    """A median, its quartiles, and the number of rounds they are of."""

    median: float
    low: float
    high: float
    rounds: int

    @classmethod
    def of(cls, rounds: Sequence[float]) -> "Estimate":
        """The estimate from some rounds; the quartiles of a single one are itself."""
        if len(rounds) == 1:
            return cls(rounds[0], rounds[0], rounds[0], 1)
        low, median, high = statistics.quantiles(rounds, n=4, method="inclusive")
        return cls(median, low, high, len(rounds))

    @property
    def range(self) -> float:
        """From the lower to the upper quartile."""
        return self.high - self.low

    @property
    def spread(self) -> float:
        """The range as a share of the median."""
        return self.range / self.median if self.range else 0.0

    def over(self, value: float) -> "Estimate":
        """The same for each round divided by a value."""
        return Estimate(self.median / value, self.low / value, self.high / value, self.rounds)

    def inverse(self) -> "Estimate":
        """The same for one over each round."""
        return Estimate(1 / self.median, 1 / self.high, 1 / self.low, self.rounds)

    def is_noisy(self, resolution: float = 0.0) -> bool:
        """Whether the quartiles are too far apart to read the figure."""
        return self.spread > MOST_SPREAD and self.range > resolution

    def separates(self, value: float) -> bool:
        """Whether the difference to a value is larger than the noise."""
        return self.range <= abs(self.median - value)


@dataclass
class Results:
    """Rounds by metric and peer, gathered over one run."""

    rounds: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    taken: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    """What the host took of each of these rounds, where that was noted: see `steal`."""

    def add(self, other: "Results") -> None:
        """Add what another part of the run measured."""
        for metric, peers in other.rounds.items():
            for peer, figures in peers.items():
                self.rounds.setdefault(metric, {}).setdefault(peer, []).extend(figures)
        for metric, peers in other.taken.items():
            for peer, shares in peers.items():
                self.taken.setdefault(metric, {}).setdefault(peer, []).extend(shares)
        self.missing += other.missing
        self.wrong += other.wrong

    def add_round(self, metric: str, peer: str, figure: float, taken: float | None = None) -> None:
        """Add one round of one peer; `taken` is the share of the processors that the host took."""
        self.rounds.setdefault(metric, {}).setdefault(peer, []).append(figure)
        if taken is not None:
            self.taken.setdefault(metric, {}).setdefault(peer, []).append(taken)

    def is_disturbed(self, metric: str, peer: str) -> bool:
        """Whether the host took too much of most of the rounds."""
        shares = self.taken.get(metric, {}).get(peer)
        return bool(shares) and statistics.median(shares) > MOST_TAKEN

    @contextmanager
    def noting(self, what: str, *, ours: bool = True) -> Iterator[None]:
        """Note a wrong answer, which fails the run, and go on with the next measure.

        Args:
            what: What is measured.
            ours: Whether it is mcpearl that answers. Where another server gives no answer at all, the
                report says that it was not measured, and the run is good.
        """
        try:
            yield
        except WrongAnswer as error:
            failed = self.wrong if ours or not isinstance(error, NoAnswer) else self.missing
            note = f"{what}: {error}"
            if note not in failed:
                failed.append(note)

    def get(self, metric: str, peer: str) -> Estimate | None:
        """Return the figure of a peer, or None if it was not measured."""
        rounds = self.rounds.get(metric, {}).get(peer)
        return Estimate.of(rounds) if rounds else None

    def ratio(
        self, metric: str, own: str, peers: Sequence[str], *, lower_is_better: bool
    ) -> Estimate | None:
        """Return how many times better a peer is than the best of others.

        Each round is compared with itself: a moment in which the machine is slow hits both sides.
        None if nothing can be compared.
        """
        measured = self.rounds.get(metric, {})
        others = [measured[peer] for peer in peers if peer in measured]
        if own not in measured or not others:
            return None
        best = min if lower_is_better else max
        references = [best(figures) for figures in zip(*others, strict=False)]
        pairs = zip(measured[own], references, strict=False)
        return Estimate.of(
            [
                reference / figure if lower_is_better else figure / reference
                for figure, reference in pairs
            ]
        )
