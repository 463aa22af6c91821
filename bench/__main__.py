"""Run the benchmarks: ``python -m bench [--only stdio,http,…] [--quick]``."""

import argparse
import sys
import time
import traceback
from pathlib import Path

from bench import (
    auth,
    components,
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
    "receipts": receipts.run,
    "auth": auth.run,
    "components": components.run,
    "import": imports.run,
    "frames": frames.run,
}
DOCUMENTATION = ROOT / "docs" / "benchmarks"


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
    return parser.parse_args()


def command(chosen: argparse.Namespace) -> str:
    """The command as the report shows it, without the output folder."""
    only = "" if chosen.only == list(PARTS) else f" --only {','.join(chosen.only)}"
    return "python -m bench" + only + (" --quick" if chosen.quick else "")


def main() -> int:
    chosen = arguments()
    results = Results()
    for part in chosen.only:
        began = time.monotonic()
        try:
            PARTS[part](results, quick=chosen.quick)
        except Exception as error:  # the other parts are worth having
            traceback.print_exc()
            results.wrong.append(f"{part}: {type(error).__name__}: {error}")
        say(f"{part}: took {time.monotonic() - began:.0f} s")
    report.print_report(results)
    is_full = not chosen.quick and set(chosen.only) == set(PARTS)
    folder = chosen.output or (DOCUMENTATION if is_full else None)
    if folder is not None and not results.wrong:
        report.write_report(results, folder, command(chosen))
        print(f"\nwritten to {folder}")
    return 1 if results.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
