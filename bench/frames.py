"""Python frames of mcpearl in one warm `tools/call`: a figure without noise.

Calls go one at a time; the first few are not counted. A timer that happens to run adds frames to one
call, so the figure is that of most calls. ``python -m bench.frames`` prints every frame.
"""

import json
import statistics
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from bench import http_messages as messages
from bench import stdio
from bench.environments import SERVERS, clean_environ
from bench.http import begin
from bench.http_messages import LEGACY, MODERN, Request
from bench.http_probe import Probe
from bench.http_server import serving
from bench.peers import MCPEARL, interpreter
from bench.progress import say
from bench.results import Results, WrongAnswer

WARM_UP = 4
CALLS = 8
PATIENCE_SECONDS = 60
Periods = list[list[str]]
Call = Callable[[str, dict[str, object]], Any]  # a tool and its arguments, to its result


def run(results: Results, *, quick: bool) -> None:
    """Count on stdio, in the HTTP server and in the HTTP client, each in both eras."""
    for metric, count in COUNTS.items():
        say(f"frames: {metric}")
        with results.noting(metric):
            for _ in range(2 if quick else 3):
                results.add_round(metric, MCPEARL.name, len(usual(count())))


def usual(periods: Periods) -> list[str]:
    """The frames of most calls."""
    if not periods:
        raise WrongAnswer("no call was counted")
    most = statistics.mode(map(len, periods))
    return next(period for period in periods if len(period) == most)


def script(name: str) -> list[str]:
    return [interpreter(MCPEARL), str(SERVERS / name)]


# Servers


def count_calls(call: Call) -> Periods:
    """Have a server count the frames of its calls."""
    for number in range(WARM_UP + CALLS + 1):
        if number == WARM_UP:
            call("start", {})
        if call("add", {"a": number, "b": 7 * number}) != 8 * number:
            raise WrongAnswer(f"add({number}, {7 * number}) is wrong")
    periods: Periods = call("stop", {})
    return periods


def stdio_frames(make: Callable[[str, dict[str, object], int], Request]) -> Periods:
    """Count in a server on stdio, to which the bodies of the requests are written."""
    process = stdio.Process(script("mcpearl_frames.py"))

    def call(tool: str, arguments: dict[str, object]) -> Any:
        stdio.write(process.stdin, make(tool, arguments, 1).body + b"\n")
        return value(process.read_lines(1)[0])

    try:
        stdio.write(process.stdin, stdio.INITIALIZED)
        return count_calls(call)
    finally:
        process.close()


def http_frames(make: Callable[[str, dict[str, object], int], Request]) -> Periods:
    """Count in a server over HTTP."""
    with probing() as probe:
        return count_calls(lambda tool, arguments: value(probe.ask(make(tool, arguments, 1)).body))


def http_session_frames() -> Periods:
    """Count in a server over HTTP, in a session."""
    with probing() as probe:
        session = begin(probe)
        return count_calls(
            lambda tool, arguments: value(probe.ask(legacy_call(tool, arguments, 1, session)).body)
        )


@contextmanager
def probing() -> Iterator[Probe]:
    with serving(script("mcpearl_frames.py")) as server, Probe(server.port) as probe:
        yield probe


def modern_call(tool: str, arguments: dict[str, object], id: int) -> Request:
    params: dict[str, object] = {"name": tool, "arguments": arguments}
    return messages.modern("tools/call", params, id, tool)


def legacy_call(
    tool: str, arguments: dict[str, object], id: int, session: str | None = None
) -> Request:
    params: dict[str, object] = {"name": tool, "arguments": arguments}
    return messages.in_session(session, "tools/call", params, id)


def value(message: bytes) -> Any:
    """What a tool returned."""
    answer = msgspec.json.decode(message)
    result = answer.get("result", {})
    if "result" not in answer or result.get("isError"):
        raise WrongAnswer(f"a call was answered with {message[:200]!r}")
    return result.get("structuredContent", {}).get("result")


# The client


def client_frames(version: str) -> Periods:
    """Count in a client over HTTP."""
    with serving(script("mcpearl_frames.py")) as server:
        done = subprocess.run(
            [*script("frames_client.py"), server.url, version, str(CALLS)],
            capture_output=True,
            text=True,
            env=clean_environ(),
            check=False,
            timeout=PATIENCE_SECONDS,
        )
    if done.returncode:
        raise WrongAnswer((done.stderr.strip() or "no message").splitlines()[-1])
    periods: Periods = json.loads(done.stdout)
    return periods


COUNTS: dict[str, Callable[[], Periods]] = {
    "frames_stdio_modern": lambda: stdio_frames(modern_call),
    "frames_stdio_legacy": lambda: stdio_frames(legacy_call),
    "frames_http_modern": lambda: http_frames(modern_call),
    "frames_http_legacy": http_session_frames,
    "frames_client_modern": lambda: client_frames(MODERN),
    "frames_client_legacy": lambda: client_frames(LEGACY),
}


def main() -> None:
    for metric, count in COUNTS.items():
        frames = usual(count())
        print(f"{metric}: {len(frames)}", *frames, "", sep="\n  ")


if __name__ == "__main__":
    main()
