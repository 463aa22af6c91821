"""What a run found: a figure per metric and peer, and what could not be measured."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

MOST_SPREAD = 1.5  # best over worst round, beyond which a figure says more of the machine


class WrongAnswer(Exception):
    """A server or a component gave something other than the right answer."""


@dataclass
class Results:
    """Figures by metric and peer, gathered over one run."""

    figures: dict[str, dict[str, float]] = field(default_factory=dict)
    rounds: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def add(self, metric: str, peer: str, figure: float) -> None:
        self.figures.setdefault(metric, {})[peer] = figure

    def add_round(self, metric: str, peer: str, figure: float) -> None:
        """Note one round; the best one so far is the figure."""
        rounds = self.rounds.setdefault(metric, {}).setdefault(peer, [])
        rounds.append(figure)
        self.add(metric, peer, max(rounds))

    @contextmanager
    def noting(self, what: str) -> Iterator[None]:
        """Note a wrong answer, and go on with the next measure."""
        try:
            yield
        except WrongAnswer as error:
            self.wrong.append(f"{what}: {error}")

    def noisy(self) -> list[tuple[str, str, float]]:
        """Metric, peer and best over worst round, where the rounds are too far apart to trust."""
        spreads = [
            (metric, peer, max(rounds) / min(rounds))
            for metric, peers in self.rounds.items()
            for peer, rounds in peers.items()
        ]
        return [spread for spread in spreads if spread[2] > MOST_SPREAD]

    def get(self, metric: str, peer: str) -> float | None:
        return self.figures.get(metric, {}).get(peer)
