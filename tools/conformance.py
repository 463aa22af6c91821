"""Run the official conformance suite against the everything examples, and compare with a baseline.

    python tools/conformance.py                    # both sides, both revisions
    python tools/conformance.py --side client --revision 2026-07-28

The suite is the one pinned in `tests/interop/node` (`npm ci` there installs it). A scenario is
whole when it checked something and all of that was right, warnings included. Exits 1 when one that
is not in `conformance-baseline.txt` is not whole, and when one that is in it is.
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
SUITE = ROOT / "tests/interop/node/node_modules/@modelcontextprotocol/conformance/dist/index.js"
BASELINE = Path(__file__).with_name("conformance-baseline.txt")
EXAMPLES = ROOT / "examples/everything"
SIDES = ("server", "client")
REVISIONS = ("2025-11-25", "2026-07-28")
PATIENCE = 600.0  # seconds for one run of the suite

_SUMMARY = re.compile(r"^(✓|✗|~) (\S+): \d+ passed, \d+ failed")
_WRITTEN_AT = re.compile(r"-\d{4}-\d\d-\d\dT[\d-]+Z$")
_HELD_AGAINST = ("FAILURE", "WARNING")


@dataclass
class Outcome:
    """What the suite found out in one scenario."""

    scenario: str
    well: bool  # as far as the suite's own summary says
    passed: int = 0
    skipped: int = 0
    failed: list[str] = field(default_factory=list)  # the checks, with what was wrong

    @property
    def whole(self) -> bool:
        """Whether something was checked, and nothing was wrong."""
        return self.well and self.passed > 0 and not self.failed


def main() -> int:
    """Run what was asked for and say how it went."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--side", choices=SIDES, action="append")
    parser.add_argument("--revision", choices=REVISIONS, action="append")
    parser.add_argument("--keep", type=Path, help="directory for the suite's own results")
    options = parser.parse_args()
    if not SUITE.exists():
        print("missing: the suite is not installed; `npm ci` in tests/interop/node does that")
        return 1
    runs: dict[tuple[str, str], list[Outcome]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for side in options.side or SIDES:
            for revision in options.revision or REVISIONS:
                directory = (options.keep or Path(scratch)).resolve() / f"{side}-{revision}"
                shutil.rmtree(directory, ignore_errors=True)
                runs[side, revision] = run(side, revision, directory)
                show(side, revision, runs[side, revision])
    return compare(runs, read_baseline())


# Running


def run(side: str, revision: str, directory: Path) -> list[Outcome]:
    """Run the suite once."""
    if side == "client":
        command = shlex.join([sys.executable, str(EXAMPLES / "client.py")])
        return run_suite([side, "--command", command], revision, directory)
    with serving() as address:
        return run_suite([side, "--url", address], revision, directory)


def run_suite(arguments: list[str], revision: str, directory: Path) -> list[Outcome]:
    """Call the suite and read what it printed and wrote."""
    beside = Path(sys.executable).parent / "node"
    node = str(beside) if beside.exists() else "node"
    done = subprocess.run(
        [node, str(SUITE), *arguments, "--requirements", revision, "-o", str(directory)],
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
        sys.exit(f"the suite said nothing about any scenario:\n{done.stdout}{done.stderr}")
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
    """Have the everything server running on a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
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
    """Wait until somebody listens."""
    until = time.monotonic() + 20
    while time.monotonic() < until and server.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    sys.exit("the everything server did not start; run examples/everything/server.py to see why")


# Telling


def show(side: str, revision: str, outcomes: list[Outcome]) -> None:
    """Print the table of one run."""
    width = max(len(outcome.scenario) for outcome in outcomes)
    print(f"\n{side} {revision}\n{'scenario':{width}}  passed  failed  skipped")
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


def read_baseline() -> list[str]:
    """Read the names and patterns of scenarios that are expected not to be whole."""
    lines = (line.partition("#")[0].strip() for line in BASELINE.read_text().splitlines())
    return [line for line in lines if line]


def compare(runs: dict[tuple[str, str], list[Outcome]], baseline: list[str]) -> int:
    """Say what is not as the baseline has it; 1 when there is something."""
    expected: set[str] = set()
    broken: set[str] = set()
    problems: list[str] = []
    for (side, revision), outcomes in runs.items():
        for outcome in outcomes:
            is_expected = any(fnmatchcase(outcome.scenario, name) for name in baseline)
            if is_expected:
                expected.add(outcome.scenario)
            if outcome.whole:
                continue
            broken.add(outcome.scenario)
            if not is_expected:
                problems.append(f"{side} {revision} {outcome.scenario} is not whole")
                problems += [f"    {said}" for said in outcome.failed or ["nothing was checked"]]
    problems += [f"{name} is whole; take it off the baseline" for name in sorted(expected - broken)]
    print("\n" + ("\n".join(problems) if problems else "Everything is as the baseline has it."))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
