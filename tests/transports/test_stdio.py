"""A server process on its standard streams: how it ends, and what the streams may be."""

import array
import fcntl
import json
import os
import pty
import select
import signal
import socket
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import IO, Any

import pytest

from tests.server.stdio_driver import HANGS, SCRIPT, StdioServer
from tests.server.wire import meta
from tests.waiting import wait_until

MIB = 1024 * 1024
SIGNALS = (signal.SIGTERM, signal.SIGINT)
on_both_loops = pytest.mark.parametrize("loop", ["--uvloop", "--asyncio"])


def requests(count: int, tool: str = "add_async", first: int = 1) -> list[dict[str, Any]]:
    arguments = {} if tool == "hang" else {"a": 1, "b": 2}
    params = {"name": tool, "arguments": arguments, "_meta": meta()}
    return [
        {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}
        for id in range(first, first + count)
    ]


FULL_PIPE = 60_000  # bytes; a pipe takes 64 KiB


def waiting_in(pipe: IO[bytes]) -> int:
    """Return how many bytes a pipe holds."""
    count = array.array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, count)
    return count[0]


def lines(messages: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(message).encode() + b"\n" for message in messages)


# The end of input


@on_both_loops
def test_the_end_of_input_ends_the_server(loop: str) -> None:
    with StdioServer(loop) as server:
        server.initialize()
        server.close_input()
        assert server.next() is None
        assert server.wait() == 0
        assert server.stderr == b""


def test_no_input_at_all() -> None:
    with StdioServer(stdin=subprocess.DEVNULL) as server:
        assert server.next() is None
        assert server.wait() == 0


@on_both_loops
def test_calls_in_flight_are_answered_after_the_end_of_input(loop: str) -> None:
    with StdioServer(loop) as server:
        server.initialize()
        ids = [server.start("sleep", seconds=0.3), server.start("block", seconds=0.3)]
        server.close_input()
        for id, said in zip(ids, ("slept", "blocked"), strict=True):
            assert server.answer_to(id)["result"]["structuredContent"] == {"result": said}
        assert server.wait() == 0


def test_calls_that_outlive_the_grace_period_are_cancelled(tmp_path: Path) -> None:
    with StdioServer("--quick") as server:
        server.initialize()
        left = tmp_path / "left"
        id = server.start("cleans_up", path=str(left))
        server.call("add", a=1, b=2)
        server.close_input()
        assert server.answer_to(id)["error"]["message"] == "The server is shutting down"
        assert server.wait() == 0
        assert left.read_text() == "cleaned"


def test_the_end_of_input_in_the_middle_of_a_message() -> None:
    with StdioServer() as server:
        server.initialize()
        server.raw(b'{"jsonrpc":"2.0","id":1,"meth')
        server.close_input()
        assert server.next() is None
        assert server.wait() == 0


def test_after_the_run_the_streams_are_the_programs_own_again() -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--after"],
        input=lines(requests(1)),
        capture_output=True,
        timeout=HANGS,
        check=True,
    )
    answer, after = done.stdout.splitlines()
    assert json.loads(answer)["id"] == 1
    assert after == b"after the run"


# Signals


@on_both_loops
@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_lets_calls_finish(number: signal.Signals, loop: str) -> None:
    with StdioServer(loop) as server:
        server.initialize()
        id = server.start("sleep", seconds=0.3)
        server.call("add", a=1, b=2)
        server.signal(number)
        assert server.answer_to(id)["result"]["structuredContent"] == {"result": "slept"}
        assert server.next() is None
        assert server.wait() == 0


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_cancels_calls_after_the_grace_period(number: signal.Signals) -> None:
    with StdioServer("--quick") as server:
        server.initialize()
        ids = [server.start("sleep", seconds=3600), server.start("hang")]
        server.call("add", a=1, b=2)
        server.signal(number)
        for id in ids:
            assert server.answer_to(id)["error"]["message"] == "The server is shutting down"
        assert server.wait() == 0


def test_handlers_that_will_not_end_do_not_keep_the_process() -> None:
    with StdioServer("--quick") as server:
        server.initialize()
        server.start("stubborn")
        server.start("hang")
        server.call("add", a=1, b=2)
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
        assert server.has_said(b"cancelled handlers have not ended")


def until_leaving(server: StdioServer) -> None:
    """Wait until a server that was told to end takes no more calls."""
    wait_until(lambda: "error" in server.call("add", a=1, b=2))


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
def test_what_is_asked_on_the_way_out_is_refused(version: str) -> None:
    with StdioServer() as server:
        server.initialize()
        slow = server.start("sleep", seconds=3)
        server.call("add", a=1, b=2)
        server.signal(signal.SIGTERM)
        until_leaving(server)
        params: dict[str, Any] = {"name": "add", "arguments": {"a": 1, "b": 2}}
        if version == "2026-07-28":
            params["_meta"] = meta()
        refused = server.ask("tools/call", params)
        assert refused["error"]["code"] in (-32600, -32603)
        assert "result" in server.answer_to(slow)
        assert server.wait() == 0


@on_both_loops
@pytest.mark.parametrize("number", SIGNALS)
def test_a_second_signal_ends_at_once(number: signal.Signals, loop: str) -> None:
    with StdioServer(loop) as server:
        server.initialize()
        server.start("sleep", seconds=3600)
        server.call("add", a=1, b=2)
        server.signal(number)
        until_leaving(server)
        server.signal(number)
        assert server.wait() == -number


def test_a_second_signal_ends_even_a_blocked_loop() -> None:
    with StdioServer() as server:
        server.initialize()
        server.start("block_loop", seconds=3600)
        assert server.has_said(b"blocking")
        # Two that come together may be one for the process, and one that comes just before it
        # sleeps is taken after.
        while server.process.poll() is None:
            server.signal(signal.SIGTERM)
            time.sleep(0.05)
        assert server.wait() == -signal.SIGTERM


# The client's reading end


@on_both_loops
def test_a_client_that_closes_its_reading_end_ends_the_server(loop: str) -> None:
    with StdioServer(loop, reads=False) as server:
        assert server.process.stdout is not None
        server.send(*requests(1))
        server.process.stdout.readline()
        server.process.stdout.close()
        server.send(*requests(10, first=2))
        assert server.wait() == 0


@on_both_loops
def test_a_client_that_only_closes_its_reading_end_and_says_nothing(loop: str) -> None:
    with StdioServer(loop, reads=False) as server:
        assert server.process.stdout is not None
        server.send(*requests(1, "hang"), *requests(1, first=2))
        # The first call has begun, and is not answered.
        assert json.loads(server.process.stdout.readline())["id"] == 2
        server.process.stdout.close()
        try:
            server.send(*requests(1, first=3))
        except BrokenPipeError:
            pass
        assert server.wait() == 0


def test_a_client_that_does_not_read_costs_bounded_memory() -> None:
    """200,000 calls are pipelined and no answer is read: the server stops reading."""
    with StdioServer(reads=False) as server:
        assert server.process.stdin is not None
        assert server.process.stdout is not None
        server.send(*requests(1))
        server.process.stdout.readline()
        before = server.rss()
        source = server.process.stdin.fileno()
        os.set_blocking(source, False)
        data = lines(requests(200_000, first=2))
        sent, peak, stuck_since = 0, before, time.monotonic()
        while sent < len(data) and time.monotonic() < stuck_since + 1:
            if select.select([], [source], [], 0.05)[1]:
                sent += os.write(source, data[sent : sent + 65536])
                stuck_since = time.monotonic()
            peak = max(peak, server.rss())
        assert sent < len(data), "the server read on although nobody took its answers"
        assert peak - before < 64 * MIB
        # Once the client reads again, it goes on, and nothing was lost.
        received = 0
        output = server.process.stdout.fileno()
        while received < 20_000:
            if select.select([], [source], [], 0)[1] and sent < len(data):
                sent += os.write(source, data[sent : sent + 65536])
            received += os.read(output, 65536).count(b"\n")
        assert server.rss() - before < 64 * MIB


# What the streams may be


@on_both_loops
def test_input_from_a_file(tmp_path: Path, loop: str) -> None:
    path = tmp_path / "requests.jsonl"
    path.write_bytes(lines(requests(20_000)))
    with path.open("rb") as file, StdioServer(loop, stdin=file) as server:
        assert server.wait() == 0
        answered = set()
        while (message := server.next()) is not None:
            assert message["result"]["structuredContent"] == {"result": 3}
            answered.add(message["id"])
    assert answered == set(range(1, 20_001))


def test_input_from_a_file_waits_for_slow_calls(tmp_path: Path) -> None:
    """The small limits make it hold back: every call is answered though few may run at once."""
    path = tmp_path / "requests.jsonl"
    path.write_bytes(lines(requests(500, "add")))
    with path.open("rb") as file, StdioServer("--small", stdin=file) as server:
        answers = []
        while (message := server.next()) is not None:
            answers.append(message)
    assert len(answers) == 500
    assert all("result" in answer for answer in answers)


def test_output_to_a_file(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    with path.open("wb") as file:
        subprocess.run(
            [sys.executable, str(SCRIPT)],
            input=lines(requests(1000)),
            stdout=file,
            timeout=HANGS,
            check=True,
        )
    answers = [json.loads(line) for line in path.read_bytes().splitlines()]
    assert sorted(answer["id"] for answer in answers) == list(range(1, 1001))


def test_output_to_a_full_disk() -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, str(SCRIPT)],
            input=lines(requests(10)),
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=HANGS,
            check=False,
        )
    assert done.returncode == 0
    assert b"Exception in callback" not in done.stderr


def test_a_slow_reader_gets_everything() -> None:
    """What is left when the input ends is written as long as the reader takes some of it."""
    with StdioServer(reads=False) as server:
        assert server.process.stdout is not None
        params = {"name": "big", "arguments": {"size": 3 * MIB}, "_meta": meta()}
        server.send({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
        server.close_input()
        received = b""
        for _ in range(4):  # slower altogether than the patience with a reader that takes nothing
            time.sleep(0.7)
            received += os.read(server.process.stdout.fileno(), 65536)
        received += server.process.stdout.read()
        assert len(json.loads(received)["result"]["content"][0]["text"]) == 3 * MIB


@on_both_loops
def test_sockets(loop: str) -> None:
    ours, theirs = socket.socketpair()
    with (
        ours,
        subprocess.Popen([sys.executable, str(SCRIPT), loop], stdin=theirs, stdout=theirs) as it,
    ):
        theirs.close()
        ours.sendall(lines(requests(1)))
        ours.settimeout(HANGS)
        assert json.loads(ours.makefile("rb").readline())["id"] == 1
        ours.shutdown(socket.SHUT_WR)
        assert it.wait(HANGS) == 0


@on_both_loops
def test_a_terminal(loop: str) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen([sys.executable, str(SCRIPT), loop], stdin=theirs, stdout=theirs)
    try:
        os.write(ours, lines([{"jsonrpc": "2.0", "id": 7, "method": "ping"}]))
        seen = b""
        while b'"result":{}' not in seen:  # the terminal echoes what is typed as well
            assert select.select([ours], [], [], HANGS)[0]
            seen += os.read(ours, 4096)
        os.write(ours, b"\x04")  # Ctrl-D
        assert process.wait(HANGS) == 0
        assert os.get_blocking(theirs), "the terminal is left as it was"
    finally:
        process.kill()
        process.wait()
        os.close(ours)
        os.close(theirs)


def test_no_stderr() -> None:
    command = f"exec {sys.executable} {SCRIPT} 2>&-"
    params = {"name": "prints", "_meta": meta()}
    done = subprocess.run(
        ["sh", "-c", command],
        input=lines([{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}]),
        capture_output=True,
        timeout=HANGS,
        check=True,
    )
    assert json.loads(done.stdout)["result"]["structuredContent"] == {"result": "printed"}


def test_few_threads_in_the_system() -> None:
    """Where no thread can be started, plain functions cannot run; everything else can."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--cramped"],
        input=lines(requests(1, "add") + requests(1, "add_async", first=2)),
        capture_output=True,
        timeout=HANGS,
        check=True,
    )
    answers = {(answer := json.loads(line))["id"]: answer for line in done.stdout.splitlines()}
    assert "no thread left" in answers[1]["result"]["content"][0]["text"]
    assert answers[2]["result"]["structuredContent"] == {"result": 3}


# Who else uses the streams


def test_nothing_a_tool_prints_reaches_the_client() -> None:
    with StdioServer() as server:
        server.initialize()
        assert server.call("prints")["result"]["structuredContent"] == {"result": "printed"}
        server.is_well()
        for said in (b"printed", b"written", b"straight to descriptor 1", b"from a child"):
            assert server.has_said(said)


def test_nothing_printed_before_the_run_reaches_the_client() -> None:
    with StdioServer("--greets") as server:
        server.initialize()
        server.is_well()
        assert server.has_said(b"Welcome")


def test_no_child_reads_the_clients_messages() -> None:
    with StdioServer() as server:
        server.initialize()
        assert server.call("reads_stdin")["result"]["structuredContent"] == {"result": "nothing"}
        server.is_well()


def test_a_tool_that_closes_descriptor_1() -> None:
    with StdioServer() as server:
        server.initialize()
        assert server.call("closes_stdout")["result"]["structuredContent"] == {"result": "closed"}
        server.is_well()
        server.close_input()
        assert server.wait() == 0


@on_both_loops
def test_large_answers_to_many_calls_wait_for_a_client_that_reads_slowly(loop: str) -> None:
    """More than is written at once, and less than the bound: whoever asked for it gets it all."""
    with StdioServer(loop, reads=False) as server:
        output = server.process.stdout
        assert output is not None
        size = MIB // 4
        params = {"name": "big", "arguments": {"size": size}, "_meta": meta()}
        server.send(
            *(
                {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}
                for id in range(100)
            )
        )
        wait_until(lambda: waiting_in(output) >= FULL_PIPE)
        answered = set()
        for _ in range(100):
            answer = json.loads(output.readline())
            assert len(answer["result"]["content"][0]["text"]) == size
            answered.add(answer["id"])
        assert answered == set(range(100))
