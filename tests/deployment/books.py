"""The books of a scene: what clients did, how it ended, what passed the balancer, what servers noted.

At the end they are balanced: see `Books.faults`. Every kind of client has to have had enough of all
that it can do (`Books.shortages`); a scene in which clients did little says nothing.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from tests.deployment.round_robin import Passed

SECONDS_PER_ONE = 60
"""A kind of client does each thing at least once in so many seconds."""
OPENED = "opened"
"""What stands among the phases of a client once its session is open."""
STEPS = [1, 2, 3, 4, 5]
"""The progress that `count` reports."""


class Kind(NamedTuple):
    """A kind of client, and what it can do."""

    name: str
    tools: tuple[str, ...]
    resumes: bool
    """Whether its version has streams that a client leaves and comes back to."""


class Ledger:
    """What passed the balancer, by client."""

    def __init__(self) -> None:
        self._clients: dict[bytes, str] = {}  # names of clients, by session id
        self.sessions: Counter[str] = Counter()
        self.resumed: Counter[str] = Counter()
        self.acknowledged: set[str] = set()  # keys of calls whose question was answered with 202

    def note(self, passed: Passed) -> None:
        """Note a request, and how its response begins."""
        client = self._clients.get(passed.headers.get(b"mcp-session-id", b""), "")
        if passed.method == b"GET":
            if passed.status == 200 and passed.headers.get(b"last-event-id", b"").startswith(b"p"):
                self.resumed[client] += 1  # the stream of a call
        elif passed.method == b"POST" and passed.status == 200 and b'"initialize"' in passed.body:
            id = passed.answered.get(b"mcp-session-id")
            if id is not None:
                name = json.loads(passed.body)["params"]["clientInfo"]["name"]
                self._clients[id] = name
                self.sessions[name] += 1
        elif passed.method == b"POST" and passed.status == 202 and b'"result"' in passed.body:
            self._acknowledged(json.loads(passed.body))

    def _acknowledged(self, answer: Any) -> None:
        if isinstance(answer, dict) and "method" not in answer:
            content = answer.get("result", {}).get("content", {})
            key = content.get("a") or content.get("text")
            if key:
                self.acknowledged.add(key)


class ServerNotes:
    """What the tools of the servers noted.

    Args:
        text: Lines of a word, the key of a call, and for `asked` the process that asked.
    """

    def __init__(self, text: str) -> None:
        self.ran: Counter[str] = Counter()
        self.asked: dict[str, int] = {}
        self.heard: set[str] = set()
        self.wrong: list[str] = []
        for line in text.splitlines():
            word, key, *more = line.split()
            if word == "ran":
                self.ran[key] += 1
            elif word == "asked":
                self.asked[key] = int(more[0])
            elif word == "heard":
                self.heard.add(key)
            else:
                self.wrong.append(line)


class Books:
    """What was done, and how it ended."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.kinds: dict[str, Kind] = {}  # by the name of a client
        self.outcomes: dict[str, str] = {}
        self.answered: Counter[tuple[str, str]] = Counter()  # by client and tool
        self.progress: Counter[str] = Counter()
        self.asked: Counter[str] = Counter()  # questions that a client answered
        self.broken_progress: list[str] = []  # keys of answered calls that reported something else
        self.twice: list[str] = []
        self.unfinished: list[str] = []
        self.phases: dict[str, list[str]] = {}
        self.heard: dict[str, list[float]] = {}
        self.touched = 0.0
        self.killed: set[int] = set()
        self.kills = 0
        self.restarts = 0
        self.stops = 0
        self.cuts = 0

    def close(
        self, name: str, key: str, tool: str, outcome: str, progress: Sequence[float] = ()
    ) -> None:
        """Note how a call ended."""
        if key in self.outcomes:
            self.twice.append(key)
        self.outcomes[key] = outcome
        self.progress[name] += len(progress)
        if outcome == "answered":
            self.answered[name, tool] += 1
            if tool == "count" and list(progress) != STEPS:
                self.broken_progress.append(f"{key}: {list(progress)}")

    def silent(self) -> list[str]:
        """Return the clients that have not heard of the last change."""
        return [name for name, heard in self.heard.items() if not heard or heard[-1] < self.touched]

    # At the end

    def faults(self, notes: ServerNotes) -> list[str]:
        """Return everything that must not have happened."""
        ran, ledger = notes.ran, self.ledger
        answered = [key for key, outcome in self.outcomes.items() if outcome == "answered"]
        denied = [key for key, outcome in self.outcomes.items() if outcome.startswith("not run")]
        lost = {
            key
            for key in ledger.acknowledged & set(notes.asked)
            if key not in notes.heard and notes.asked[key] not in self.killed
        }
        again = [name for name, phases in self.phases.items() if _began_again(phases)]
        found = {
            "calls ran twice": [key for key, times in ran.items() if times > 1],
            "calls had two outcomes": self.twice,
            "calls had no outcome": self.unfinished,
            "calls were answered that did not run": [key for key in answered if not ran[key]],
            "calls ran of which it was said that they did not": [k for k in denied if ran[k]],
            "calls were answered whose progress was not": self.broken_progress,
            "questions were answered with another answer": notes.wrong,
            "acknowledged answers to questions were lost": sorted(lost),
            "clients did not hear of the last change": self.silent(),
            "clients lost their session": again,
        }
        return [f"{what}: {_some(which)}" for what, which in found.items() if which]

    def shortages(self, seconds: float) -> list[str]:
        """Return what a kind of client did less often than it should have in so many seconds."""
        least = int(seconds // SECONDS_PER_ONE)
        found = []
        for kind, figures in self.by_kind().items():
            short = {what: count for what, count in figures.items() if count < least}
            found += [f"{kind}: {count} {what}" for what, count in short.items()]
        return found

    def by_kind(self) -> dict[str, dict[str, int]]:
        """Return what each kind of client did."""
        found: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        for name, kind in self.kinds.items():
            figures = found[kind.name]
            for tool in dict.fromkeys(kind.tools):
                figures[f"answered {tool}"] += self.answered[name, tool]
            figures["questions answered"] += self.asked[name]
            figures["progress messages"] += self.progress[name]
            if kind.resumes:
                figures["streams resumed"] += self.ledger.resumed[name]
        return {kind: dict(figures) for kind, figures in found.items()}

    def figures(self) -> dict[str, Any]:
        """Return what is told about a scene."""
        ends = Counter(outcome.partition(":")[0] for outcome in self.outcomes.values())
        return {
            "calls": len(self.outcomes),
            "by kind of client": self.by_kind(),
            "outcomes by kind": self._outcomes_by_kind(),
            "sessions begun": dict(self.ledger.sessions),
            "acknowledged answers": len(self.ledger.acknowledged),
            "outcomes": dict(ends),
            "kills": self.kills,
            "restarts of the store": self.restarts,
            "the store stood still": self.stops,
            "a machine was cut off": self.cuts,
            "seconds until the last change was heard": self._seconds_until_heard(),
            "errors": sorted({each for each in self.outcomes.values() if ":" in each})[:8],
        }

    def _seconds_until_heard(self) -> dict[str, float | None]:
        """Return how long each client took to hear of the last change; None for one that did not."""
        first = {
            name: min((time for time in heard if time >= self.touched), default=None)
            for name, heard in self.heard.items()
        }
        return {
            name: None if time is None else round(time - self.touched, 1)
            for name, time in first.items()
        }

    def _outcomes_by_kind(self) -> dict[str, dict[str, int]]:
        found: dict[str, Counter[str]] = defaultdict(Counter)
        for key, outcome in self.outcomes.items():
            kind = self.kinds[key.rpartition("-")[0]]
            found[kind.name][outcome.partition(":")[0]] += 1
        return {kind: dict(ends) for kind, ends in found.items()}


def _began_again(phases: list[str]) -> bool:
    """Whether a client that had a session began another."""
    return OPENED in phases and "INITIALIZING" in phases[phases.index(OPENED) :]


def _some(which: Iterable[str]) -> str:
    listed = list(which)
    return f"{len(listed)}, such as {', '.join(listed[:5])}"
