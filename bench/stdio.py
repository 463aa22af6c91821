"""Calls, start and memory on stdio: a driver on bare pipes.

The clock covers writing the requests and reading the answers and nothing else: requests are encoded
before it starts, and every answer is decoded and checked after it stops.
"""

import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial

import msgspec
import psutil

from bench.environments import clean_environ
from bench.peers import FLOOR, MCPEARL, PEERS, Peer, command, in_turn, server_command
from bench.progress import say
from bench.results import Results, WrongAnswer
from bench.steal import host

WRITE_BLOCK = 50
CHUNK = 1 << 18
PATIENCE_SECONDS = 180  # a server that hangs is killed, and the read sees its end

INITIALIZE = (
    b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25",'
    b'"capabilities":{},"clientInfo":{"name":"bench","version":"1.0.0"}}}\n'
)
INITIALIZED = b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n'


class Sum(msgspec.Struct):
    result: int


class Text(msgspec.Struct):
    text: str


class ToolResult(msgspec.Struct, rename="camel"):
    content: list[Text]
    structured_content: Sum | None = None
    is_error: bool = False


class Answer(msgspec.Struct):
    id: int
    result: ToolResult


_decode_answer = msgspec.json.Decoder(Answer).decode


class Lines:
    """A connection on which every line is a message: two descriptors, or one for both."""

    stdin: int
    stdout: int

    def initialize(self) -> None:
        """Begin the session, up to the answer."""
        write(self.stdin, INITIALIZE)
        answer = msgspec.json.decode(self.read_lines(1)[0])
        if answer.get("result", {}).get("protocolVersion") != "2025-11-25":
            raise WrongAnswer(f"initialize was answered with {answer}")

    def read_lines(self, count: int) -> list[bytes]:
        """Read exactly ``count`` lines."""
        chunks: list[bytes] = []
        while count > 0:
            chunk = os.read(self.stdout, CHUNK)
            if not chunk:
                raise WrongAnswer(f"it ended with {count} answers missing: {self.last_words()}")
            chunks.append(chunk)
            count -= chunk.count(b"\n")
        return b"".join(chunks).splitlines()

    def last_words(self) -> str:
        """What the server wrote to its error output before it ended."""
        return "it wrote no message"


class Process(Lines):
    """A server process and the two pipes to it, already initialized."""

    def __init__(self, program: list[str]) -> None:
        self.stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed in close
        started = time.perf_counter()
        self.popen = subprocess.Popen(
            program,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.stderr,
            bufsize=0,
            env=clean_environ(),
        )
        assert self.popen.stdin is not None and self.popen.stdout is not None
        self.stdin = self.popen.stdin.fileno()
        self.stdout = self.popen.stdout.fileno()
        self.watchdog = threading.Timer(PATIENCE_SECONDS, self.popen.kill)
        self.watchdog.daemon = True
        self.watchdog.start()
        try:
            self.initialize()
        except BaseException:
            self.close()
            raise
        self.start_seconds = time.perf_counter() - started
        self.rss_bytes = psutil.Process(self.popen.pid).memory_info().rss
        write(self.stdin, INITIALIZED)

    def last_words(self) -> str:
        """The last line of the server's error output."""
        self.stderr.seek(0)
        lines = self.stderr.read().decode(errors="replace").split("\n")
        return next((line for line in reversed(lines) if line.strip()), super().last_words())

    def close(self) -> None:
        self.watchdog.cancel()
        self.popen.kill()
        self.popen.wait()
        for pipe in (self.popen.stdin, self.popen.stdout):
            assert pipe is not None
            pipe.close()
        self.stderr.close()


def write(descriptor: int, data: bytes) -> None:
    """Write all of the data, however many writes the pipe makes of it."""
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(descriptor, view) :]
    except BrokenPipeError:
        return  # the server has gone; the read side sees it and tells


def requests(tool: str, count: int) -> list[bytes]:
    """One encoded call per line, each with other numbers: ``add(i, 7 * i)`` under the id ``i``."""
    return [
        b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":'
        b'{"name":"%s","arguments":{"a":%d,"b":%d}}}\n' % (i, tool.encode(), i, 7 * i)
        for i in range(1, count + 1)
    ]


def check(lines: Iterable[bytes], count: int) -> None:
    """Raise unless every id from 1 to ``count`` is answered once, with the sum as data and text."""
    seen: set[int] = set()
    for line in lines:
        try:
            answer = _decode_answer(line)
        except msgspec.MsgspecError as error:
            raise WrongAnswer(f"{error}: {line[:200]!r}") from None
        result, expected = answer.result, 8 * answer.id
        structured = result.structured_content
        right = structured is not None and structured.result == expected
        right = right and result.content[0].text == str(expected) and not result.is_error
        if not right or answer.id in seen:
            raise WrongAnswer(f"call {answer.id}: {line[:200]!r}")
        seen.add(answer.id)
    if seen != set(range(1, count + 1)):
        raise WrongAnswer(f"{len(seen)} of {count} calls were answered")


def pipelined(process: Lines, tool: str, count: int) -> float:
    """Calls per second with all calls sent without waiting, in writes of 50."""
    lines = requests(tool, count)
    blocks = [b"".join(lines[i : i + WRITE_BLOCK]) for i in range(0, count, WRITE_BLOCK)]

    def send() -> None:
        for block in blocks:
            write(process.stdin, block)

    sender = threading.Thread(target=send, daemon=True)
    started = time.perf_counter()
    sender.start()
    answers = process.read_lines(count)
    elapsed = time.perf_counter() - started
    sender.join()
    check(answers, count)
    return count / elapsed


def one_at_a_time(process: Lines, tool: str, count: int) -> float:
    """Calls per second when each call waits for the answer to the one before."""
    lines = requests(tool, count)
    answers: list[bytes] = []
    started = time.perf_counter()
    for line in lines:
        write(process.stdin, line)
        answers += process.read_lines(1)
    elapsed = time.perf_counter() - started
    check(answers, count)
    return count / elapsed


def measure_calls(peer: Peer, program: list[str], quick: bool) -> dict[str, float]:
    """One run of one peer: each tool in a fresh process, pipelined and one at a time."""
    share = 20 if quick else 1
    figures: dict[str, float] = {}
    for tool in ("add", "add_sync") if peer.has_plain_def else ("add",):
        suffix = "_def" if tool == "add_sync" else ""
        for metric, work, count in (
            ("stdio_pipelined", pipelined, peer.pipelined_calls),
            ("stdio_single", one_at_a_time, peer.single_calls),
        ):
            process = Process(program)
            try:
                figures[metric + suffix] = work(process, tool, count // share)
            finally:
                process.close()
    return figures


def measure_starts(results: Results, commands: dict[Peer, list[str]], spawns: int) -> None:
    """Time to the answer to ``initialize``, and memory then."""
    for number in range(spawns + 1):
        for peer in list(commands):
            with _noting(results, commands, peer):
                process = Process(commands[peer])
                process.close()
                if number == 0:
                    continue  # this one filled the file cache and wrote the bytecode
                results.add_round("stdio_start", peer.name, process.start_seconds * 1e3)
                results.add_round("stdio_rss", peer.name, process.rss_bytes / 1e6)


@contextmanager
def _noting(results: Results, commands: dict[Peer, list[str]], peer: Peer) -> Iterator[None]:
    """Note a wrong answer, and measure that peer no further."""
    try:
        yield
    except WrongAnswer as error:
        results.wrong.append(f"stdio, {peer.title}: {error}")
        del commands[peer]


def run(results: Results, *, quick: bool) -> None:
    """Measure every peer and the floor, round by round, so that a slow moment hits all alike."""
    commands = {peer: server_command(peer) for peer in (MCPEARL, FLOOR, *PEERS[1:])}
    say("stdio: start and memory of all peers")
    starts = commands | {FLOOR: command(FLOOR, "start")}
    measure_starts(results, starts, 2 if quick else 11)
    rounds = 1 if quick else 7
    for number in range(1, rounds + 1):
        for peer in in_turn(commands, number):
            say(f"stdio: calls of {peer.title}, round {number} of {rounds}")
            with _noting(results, commands, peer):
                work = partial(measure_calls, peer, commands[peer], quick)
                figures, taken = host.undisturbed(f"stdio: calls of {peer.title}", work)
                for metric, figure in figures.items():
                    results.add_round(metric, peer.name, figure, taken)
