"""Runs the official conformance suite against the everything examples, and compares with a baseline.

    python tools/conformance.py                    # both sides, all runs
    python tools/conformance.py --side client --run 2026-07-28

A run covers the requirements of one revision of the specification, or with `all` every scenario of the
suite, including extensions and requirements of other revisions.

The suite is pinned in `tests/interop/node` (`npm ci` there installs it). A scenario is whole if it has
checks and all of them passed, without warnings. The exit code is 1 if a scenario that is not in
`conformance-baseline.txt` is not whole, or if one that is in it is whole.
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
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.ports import free_port  # noqa: E402

SUITE = ROOT / "tests/interop/node/node_modules/@modelcontextprotocol/conformance/dist/index.js"
BASELINE = Path(__file__).with_name("conformance-baseline.txt")
EXAMPLES = ROOT / "examples/everything"
SIDES = ("server", "client")
RUNS = {
    "2025-11-25": ["--requirements", "2025-11-25"],
    "2026-07-28": ["--requirements", "2026-07-28"],
    "all": ["--suite", "all"],
}
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


def main() -> int:
    """Run the chosen sides and runs, and print the results."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--side", choices=SIDES, action="append")
    parser.add_argument("--run", choices=RUNS, action="append")
    parser.add_argument("--keep", type=Path, help="directory for the suite's own results")
    options = parser.parse_args()
    if not SUITE.exists():
        print("the conformance suite is not installed; run `npm ci` in tests/interop/node")
        return 1
    runs: dict[tuple[str, str], list[Outcome]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for side in options.side or SIDES:
            for name in options.run or RUNS:
                directory = (options.keep or Path(scratch)).resolve() / f"{side}-{name}"
                shutil.rmtree(directory, ignore_errors=True)
                runs[side, name] = run(side, RUNS[name], directory)
                show(side, name, runs[side, name])
    return compare(runs, read_baseline())


# Running


def run(side: str, choice: list[str], directory: Path) -> list[Outcome]:
    """Run the suite once with the chosen scenarios."""
    if side == "client":
        command = shlex.join([sys.executable, str(EXAMPLES / "client.py")])
        return run_suite([side, "--command", command, *choice], directory)
    with serving() as address:
        return run_suite([side, "--url", address, *choice], directory)


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
def serving() -> Iterator[str]:
    """Run the everything server on a free port."""
    port = free_port()
    command = [sys.executable, str(EXAMPLES / "server.py"), "--port", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
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
    sys.exit("the everything server did not start; run examples/everything/server.py to see why")


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


def read_baseline() -> dict[str, str]:
    """Return the scenarios (or patterns) that are expected not to be whole, with the reason."""
    parts = (line.partition("#") for line in BASELINE.read_text().splitlines())
    return {name.strip(): why.strip() for name, _, why in parts if name.strip()}


def compare(runs: dict[tuple[str, str], list[Outcome]], baseline: dict[str, str]) -> int:
    """Print the differences from the baseline. Return 1 if there are any."""
    expected: dict[str, set[str]] = {name: set() for name in baseline}
    broken: set[str] = set()
    problems: list[str] = []
    for (side, run_name), outcomes in runs.items():
        for outcome in outcomes:
            names = [name for name in baseline if fnmatchcase(outcome.scenario, name)]
            for name in names:
                expected[name].add(outcome.scenario)
            if outcome.whole:
                continue
            broken.add(outcome.scenario)
            if not names:
                problems.append(f"{side} {run_name} {outcome.scenario} is not whole")
                problems += [f"    {said}" for said in outcome.failed or ["nothing was checked"]]
    print()
    for name, scenarios in expected.items():
        print(f"in the baseline: {name}, {len(scenarios)} scenarios ({baseline[name]})")
        problems += [f"{one} is whole; remove it from the baseline" for one in scenarios - broken]
    print("\n".join(problems) if problems else "All results match the baseline.")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
