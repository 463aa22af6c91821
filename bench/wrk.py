"""The load generator wrk: its script, a run, and what it counted."""

import json
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from bench.http_messages import Request
from bench.results import NoAnswer, WrongAnswer

CONNECTIONS = 16
_GRACE_SECONDS = 30
MISSING = "wrk is not installed; on Debian: apt install wrk"

_SCRIPT = """\
local headers, bodies, made, turn = {headers}, {bodies}, {{}}, 0
function init()
  for place, body in ipairs(bodies) do made[place] = wrk.format("POST", "/mcp", headers, body) end
end
function request()
  turn = turn % #made + 1
  return made[turn]
end
function done(summary)
  local e = summary.errors
  print(string.format('counted {{"requests":%d,"bytes":%d,"microseconds":%d,"refused":%d,"broken":%d}}',
    summary.requests, summary.bytes, summary.duration, e.status,
    e.connect + e.read + e.write + e.timeout))
end
"""


class TooSlow(NoAnswer):
    """Nothing was answered in the time there was, and nothing went wrong."""


class Count(msgspec.Struct):
    """What wrk counted in one run."""

    requests: int
    bytes: int
    microseconds: int
    refused: int
    broken: int

    @property
    def per_second(self) -> float:
        return self.requests / self.microseconds * 1e6

    @property
    def mean_bytes(self) -> float:
        return self.bytes / self.requests


def is_there() -> bool:
    """Whether wrk is installed."""
    return shutil.which("wrk") is not None


def load(port: int, requests: Sequence[Request], seconds: int) -> Count:
    """Send the requests in turn over all connections; raise if one was refused or cut off.

    Raises:
        TooSlow: None was answered.
        NoAnswer: One was refused, or its connection broke.
        WrongAnswer: wrk itself failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "requests.lua")
        script.write_text(_script(requests))
        options = ["-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", "--timeout", "10s"]
        done = subprocess.run(
            ["wrk", *options, "-s", str(script), f"http://127.0.0.1:{port}"],
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds + _GRACE_SECONDS,
        )
    lines = [line for line in done.stdout.splitlines() if line.startswith("counted ")]
    if done.returncode or not lines:
        raise WrongAnswer(f"wrk failed: {(done.stderr or done.stdout).strip()[-300:]}")
    count = msgspec.json.decode(lines[0].removeprefix("counted "), type=Count)
    if not (count.requests or count.refused or count.broken):
        raise TooSlow(f"no request was answered within {seconds} s")
    if count.refused or count.broken or not count.requests:
        raise NoAnswer(
            f"of {count.requests} requests {count.refused} were refused, "
            f"and {count.broken} connections broke"
        )
    return count


def _script(requests: Sequence[Request]) -> str:
    headers = ", ".join(
        f"[{json.dumps(name)}] = {json.dumps(value)}" for name, value in requests[0].headers.items()
    )
    bodies = ", ".join(f"[==[{request.body.decode()}]==]" for request in requests)
    return _SCRIPT.format(headers=f"{{{headers}}}", bodies=f"{{{bodies}}}")
