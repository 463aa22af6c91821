"""Runs the official conformance suite against the everything examples, and compares with a baseline.

    python tools/conformance.py                    # both sides, all runs
    python tools/conformance.py --side client --run 2026-07-28
    python tools/conformance.py --through 2025-11-25 --wire stdio
    python tools/conformance.py --side server --store redis

A run covers the requirements of one revision of the specification, or with `all` every scenario of the
suite, including extensions and requirements of other revisions.

With `--through` the suite talks to `mcpearl bridge`, which speaks that version with the server;
`all` stands for both eras. What a proxy cannot pass on is in `conformance-gateway-baseline.txt`.

With `--store` there are three servers that share a Redis or Valkey, behind a balancer that sends each
request to the next of them.

The suite is pinned in `tests/interop/node` (`npm ci` there installs it). A scenario is whole if it has
checks and all of them passed, without warnings. The exit code is 1 if a scenario that is not in the
baseline is not whole, or if one that is in it is whole.
"""

import argparse
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.ports import free_port  # noqa: E402

SUITE = ROOT / "tests/interop/node/node_modules/@modelcontextprotocol/conformance/dist/index.js"
BASELINE = Path(__file__).with_name("conformance-baseline.txt")
GATEWAY_BASELINE = Path(__file__).with_name("conformance-gateway-baseline.txt")
EXAMPLES = ROOT / "examples/everything"
SIDES = ("server", "client")
RUNS = {
    "2025-11-25": ["--requirements", "2025-11-25"],
    "2026-07-28": ["--requirements", "2026-07-28"],
    "all": ["--suite", "all"],
}
REVISIONS = ("2025-11-25", "2026-07-28")
WIRES = ("http", "stdio")
PATIENCE = 600.0  # seconds for one run of the suite
SCENARIO_PATIENCE = 120_000  # milliseconds for one scenario; client scenarios run all at once

_SUMMARY = re.compile(r"^(✓|✗|~) (\S+): \d+ passed, \d+ failed")
_WRITTEN_AT = re.compile(r"-\d{4}-\d\d-\d\dT[\d-]+Z$")
_HELD_AGAINST = ("FAILURE", "WARNING")


@dataclass
class Outcome:
    """The result of one scenario."""

    scenario: str
    well: bool  # according to the suite's own summary
    passed: int = 0
    skipped: int = 0
    failed: list[str] = field(default_factory=list)  # the failed checks, with their messages

    @property
    def whole(self) -> bool:
        """Whether there were checks, and none failed."""
        return self.well and self.passed > 0 and not self.failed


class Bridge(NamedTuple):
    """A bridge between the suite and the everything server: the version and wire behind it."""

    version: str
    wire: str

    def __str__(self) -> str:
        return f"through-{self.version}-{self.wire}"


class Machines(NamedTuple):
    """Three everything servers that share a store."""

    store: str

    def __str__(self) -> str:
        return "server"  # of which the baseline says the same


Subject = str | Bridge | Machines
"""What the suite is run against: `server` or `client`, or the server through a bridge, or three."""
Runs = dict[tuple[str, str], list[Outcome]]
"""Outcomes by subject and name of the run."""


def main() -> int:
    """Run the chosen sides and runs, and print the results."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--side", choices=SIDES, action="append")
    parser.add_argument("--run", choices=RUNS, action="append")
    parser.add_argument("--keep", type=Path, help="directory for the suite's own results")
    parser.add_argument("--through", choices=[*REVISIONS, "all"], help="the version of a bridge")
    parser.add_argument("--wire", choices=WIRES, action="append", help="from the bridge on")
    parser.add_argument("--store", choices=("redis", "valkey"), help="what three servers share")
    options = parser.parse_args()
    if not SUITE.exists():
        print("the conformance suite is not installed; run `npm ci` in tests/interop/node")
        return 1
    through = options.through is not None
    subjects: list[Subject] = list(options.side or SIDES)
    if options.store is not None:
        subjects = [Machines(options.store)]
    if through:
        versions = REVISIONS if options.through == "all" else (options.through,)
        subjects = [Bridge(v, wire) for v in versions for wire in options.wire or WIRES[:1]]
    runs: Runs = {}
    with tempfile.TemporaryDirectory() as scratch:
        for subject in subjects:
            for name in options.run or (REVISIONS if through else RUNS):
                directory = (options.keep or Path(scratch)).resolve() / f"{subject}-{name}"
                shutil.rmtree(directory, ignore_errors=True)
                runs[str(subject), name] = run(subject, RUNS[name], directory)
                show(str(subject), name, runs[str(subject), name])
    return compare(runs, read_baseline(GATEWAY_BASELINE if through else BASELINE))


# Running


def run(subject: Subject, choice: list[str], directory: Path) -> list[Outcome]:
    """Run the suite once with the chosen scenarios."""
    if subject == "client":
        command = shlex.join([sys.executable, str(EXAMPLES / "client.py")])
        return run_suite(["client", "--command", command, *choice], directory)
    with ExitStack() as stack:
        address = str(EXAMPLES / "server.py")
        if isinstance(subject, Machines):
            address = stack.enter_context(three(address, subject.store))
        elif isinstance(subject, str) or subject.wire == "http":
            address = stack.enter_context(serving([address]))
        if isinstance(subject, Bridge):
            bridge = ["-m", "mcpearl", "bridge", address, "--http", "--protocol", subject.version]
            address = stack.enter_context(serving(bridge))
        return run_suite(["server", "--url", address, *choice], directory)


def run_suite(arguments: list[str], directory: Path) -> list[Outcome]:
    """Call the suite, and read its output and the files it wrote."""
    beside = Path(sys.executable).parent / "node"
    node = str(beside) if beside.exists() else "node"
    patience = ["--timeout", str(SCENARIO_PATIENCE)]
    done = subprocess.run(
        [node, str(SUITE), *arguments, *patience, "-o", str(directory)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env={**os.environ, "NO_COLOR": "1"},
    )
    outcomes = [
        Outcome(match[2], match[1] == "✓")
        for line in done.stdout.splitlines() + done.stderr.splitlines()
        if (match := _SUMMARY.match(line))
    ]
    if not outcomes:
        sys.exit(f"the suite reported no scenario:\n{done.stdout}{done.stderr}")
    written = {
        _WRITTEN_AT.sub("", path.parent.relative_to(directory).as_posix()): path
        for path in directory.rglob("checks.json")
    }
    prefix = "server-" if arguments[0] == "server" else ""
    for outcome in outcomes:
        path = written.get(prefix + outcome.scenario)
        if path is not None:
            read_checks(outcome, path)
    return outcomes


def read_checks(outcome: Outcome, path: Path) -> None:
    """Count the checks of one scenario."""
    for check in json.loads(path.read_bytes()):
        status = check["status"]
        if status in _HELD_AGAINST:
            said = check.get("errorMessage") or check.get("description", "")
            outcome.failed.append(f"{status.lower()} {check['id']}: {said}")
        outcome.passed += status == "SUCCESS"
        outcome.skipped += status == "SKIPPED"


@contextmanager
def three(program: str, store: str) -> Iterator[str]:
    """Run a program as three servers that share a store, behind a balancer without stickiness."""
    from tests.redis_server import running

    with ExitStack() as stack:
        shared = {"MCPEARL_STORE": stack.enter_context(running(store)).url}
        urls = [stack.enter_context(serving([program], shared)) for _ in range(3)]
        ports = [url.rpartition(":")[2].removesuffix("/mcp") for url in urls]
        yield stack.enter_context(serving(["-m", "tests.deployment.round_robin", *ports]))


@contextmanager
def serving(program: list[str], added: dict[str, str] | None = None) -> Iterator[str]:
    """Run a Python program that serves HTTP on a free port.

    Args:
        program: What Python is called with, but for the port.
        added: Variables of its environment.
    """
    port = free_port()
    command = [sys.executable, *program, "--port", str(port)]
    server = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **(added or {})},
        cwd=ROOT,
    )
    try:
        wait_for(port, server)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        server.terminate()
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def wait_for(port: int, server: "subprocess.Popen[bytes]") -> None:
    """Wait until the server accepts connections."""
    until = time.monotonic() + 60
    while time.monotonic() < until and server.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    sys.exit(f"the server did not start; run `{shlex.join(map(str, server.args))}` to see why")


# Reporting


def show(side: str, name: str, outcomes: list[Outcome]) -> None:
    """Print the table of one run."""
    width = max(len(outcome.scenario) for outcome in outcomes)
    print(f"\n{side} {name}\n{'scenario':{width}}  passed  failed  skipped")
    for outcome in outcomes:
        mark = "" if outcome.whole else "  <"
        counts = f"{outcome.passed:6}  {len(outcome.failed):6}  {outcome.skipped:7}"
        print(f"{outcome.scenario:{width}}  {counts}{mark}")
    passed = sum(outcome.passed for outcome in outcomes)
    failed = sum(len(outcome.failed) for outcome in outcomes)
    whole = sum(outcome.whole for outcome in outcomes)
    print(
        f"{passed} of {passed + failed} checks passed, {whole} of {len(outcomes)} scenarios whole",
        flush=True,
    )


def read_baseline(file: Path) -> dict[str, str]:
    """Return the scenarios (or patterns) that are expected not to be whole, with the reason."""
    parts = (line.partition("#") for line in file.read_text().splitlines())
    return {name.strip(): why.strip() for name, _, why in parts if name.strip()}


def compare(runs: Runs, baseline: dict[str, str]) -> int:
    """Print the differences from the baseline. Return 1 if there are any."""
    expected: dict[str, set[str]] = {name: set() for name in baseline}
    broken: set[str] = set()
    problems: list[str] = []
    for (subject, run_name), outcomes in runs.items():
        for outcome in outcomes:
            full = f"{subject}/{outcome.scenario}" if subject not in SIDES else outcome.scenario
            names = [name for name in baseline if fnmatchcase(full, name)]
            for name in names:
                expected[name].add(full)
            if outcome.whole:
                continue
            broken.add(full)
            if not names:
                problems.append(f"{subject} {run_name} {outcome.scenario} is not whole")
                problems += [f"    {said}" for said in outcome.failed or ["nothing was checked"]]
    print()
    for name, scenarios in expected.items():
        print(f"in the baseline: {name}, {len(scenarios)} scenarios ({baseline[name]})")
        problems += [f"{one} is whole; remove it from the baseline" for one in scenarios - broken]
    print("\n".join(problems) if problems else "All results match the baseline.")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
