"""What a run found: a figure per metric and peer, and what could not be measured."""

from dataclasses import dataclass, field


class WrongAnswer(Exception):
    """A server or a component gave something other than the right answer."""


@dataclass
class Results:
    """Figures by metric and peer, gathered over one run."""

    figures: dict[str, dict[str, float]] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def add(self, metric: str, peer: str, figure: float) -> None:
        self.figures.setdefault(metric, {})[peer] = figure

    def get(self, metric: str, peer: str) -> float | None:
        return self.figures.get(metric, {}).get(peer)
