"""Run the benchmarks: ``python -m bench [--only stdio,http,…] [--quick] [--resume]``."""

import argparse
import sys
import time
import traceback
from pathlib import Path

import msgspec

from bench import (
    auth,
    components,
    console,
    frames,
    gateway,
    http,
    imports,
    isolation,
    limits,
    machines,
    memory,
    receipts,
    report,
    scene,
    sessions,
    soak,
    sockets,
    stdio,
    tasks,
    telemetry,
)
from bench.environments import ROOT
from bench.progress import say
from bench.results import Results
from bench.steal import ALL_RESTS, host

PARTS = {
    "stdio": stdio.run,
    "memory": memory.run,
    "http": http.run,
    "sessions": sessions.run,
    "soak": soak.run,
    "sockets": sockets.run,
    "tasks": tasks.run,
    "gateway": gateway.run,
    "isolation": isolation.run,
    "limits": limits.run,
    "machines": machines.run,
    "scene": scene.run,
    "telemetry": telemetry.run,
    "console": console.run,
    "receipts": receipts.run,
    "auth": auth.run,
    "components": components.run,
    "import": imports.run,
    "frames": frames.run,
}
DOCUMENTATION = ROOT / "docs" / "benchmarks"
KEPT = ROOT / ".bench" / "parts"


def parts(text: str) -> list[str]:
    chosen = text.split(",")
    if unknown := [part for part in chosen if part not in PARTS]:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is not one of {', '.join(PARTS)}")
    return chosen


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "--only", type=parts, default=list(PARTS), help=f"the parts to run: {', '.join(PARTS)}"
    )
    parser.add_argument(
        "--quick", action="store_true", help="one short round, to see that it works"
    )
    parser.add_argument(
        "--output",
        type=Path,
        help="where to write the report; without it, a full run writes docs/benchmarks "
        "and any other run only prints",
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="keep what an earlier run, which did not get to its end, has measured of the parts",
    )
    return parser.parse_args()


def command(chosen: argparse.Namespace) -> str:
    """The command as the report shows it, without the output folder."""
    only = "" if chosen.only == list(PARTS) else f" --only {','.join(chosen.only)}"
    return "python -m bench" + only + (" --quick" if chosen.quick else "")


def measured(part: str, *, quick: bool, resume: bool) -> Results:
    """Run a part, or return what an earlier run has kept of it. A short round is not kept."""
    kept = KEPT / f"{part}.json"
    if resume and not quick and kept.exists():
        say(f"{part}: kept from an earlier run")
        return msgspec.json.decode(kept.read_bytes(), type=Results)
    began, results = time.monotonic(), Results()
    host.left = 0.0 if quick else ALL_RESTS
    try:
        PARTS[part](results, quick=quick)
    except Exception as error:  # the other parts are worth having
        traceback.print_exc()
        results.wrong.append(f"{part}: {type(error).__name__}: {error}")
    say(f"{part}: took {time.monotonic() - began:.0f} s")
    if not quick and not results.wrong:
        KEPT.mkdir(parents=True, exist_ok=True)
        kept.write_bytes(msgspec.json.encode(results))
    return results


def main() -> int:
    chosen = arguments()
    results = Results()
    for part in chosen.only:
        results.add(measured(part, quick=chosen.quick, resume=chosen.resume))
    results.missing += []
    report.print_report(results)
    is_full = not chosen.quick and set(chosen.only) == set(PARTS)
    folder = chosen.output or (DOCUMENTATION if is_full else None)
    if folder is not None and not results.wrong:
        left_out = [part for part in PARTS if part not in chosen.only]
        results.missing += [f"`{part}`, which was left out" for part in left_out]
        report.write_report(results, folder, command(chosen))
        print(f"\nwritten to {folder}")
    return 1 if results.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
