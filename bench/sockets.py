"""TCP and WebSocket: calls, many connections, and one client that floods.

Only mcpearl serves these, so it is compared with itself on stdio, and with `mcp` over HTTP, both
measured in the same rounds.
"""

import base64
import os
import selectors
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from bench import stdio, wrk
from bench.environments import SERVERS, clean_environ
from bench.files import allow_files
from bench.http import JSON, MODERN_CALLS, calls_per_second
from bench.http_server import HttpServer, http_command, serving
from bench.peers import MCP, MCPEARL, interpreter, server_command
from bench.progress import say
from bench.results import Results, WrongAnswer

CONNECTIONS = 5_000
OTHERS = 15  # clients that call one at a time, beside the one that floods
PATIENCE_SECONDS = 60


def socket_command() -> list[str]:
    """The command that starts a server of mcpearl on a socket, up to port and wire."""
    return [interpreter(MCPEARL), str(SERVERS / "mcpearl_socket.py")]


def run(results: Results, *, quick: bool) -> None:
    """Measure each wire in turn with what it is compared with, then many connections."""
    rounds, calls = (1, 3_000) if quick else (5, 60_000)
    for number in range(1, rounds + 1):
        say(f"sockets: pipelined calls, round {number} of {rounds}")
        with results.noting("TCP"):
            results.add_round("tcp_pipelined", "mcpearl", tcp_calls(calls))
            results.add_round("tcp_pipelined", "stdio", stdio_calls(calls))
        with results.noting("WebSocket"):
            results.add_round("ws_pipelined", "mcpearl", websocket_calls(calls))
            if wrk.is_there():
                results.add_round("ws_pipelined", "mcp", mcp_calls(1 if quick else 2))
    if not wrk.is_there():
        results.missing.append(f"WebSocket beside mcp over HTTP: {wrk.MISSING}")
    count = min(CONNECTIONS // (20 if quick else 1), allow_files())
    for number in range(1, rounds + 1):
        say(f"sockets: {count:,} connections over TCP, and a flood, round {number} of {rounds}")
        with results.noting("TCP, many connections"):
            seconds, kilobytes = many_connections(count)
            results.add_round("tcp_connections", "mcpearl", seconds * 1e3)
            results.add_round("tcp_connection_memory", "mcpearl", kilobytes)
        with results.noting("TCP, a flood"):
            before, during = beside_a_flood(1.0 if quick else 4.0)
            share = during.per_second / before.per_second * 100
            results.add_round("tcp_flooded", "mcpearl", share)
            results.add_round("tcp_p99", "mcpearl", before.p99 * 1e3)
            results.add_round("tcp_flooded_p99", "mcpearl", during.p99 * 1e3)


def mcp_calls(seconds: int) -> float:
    """Calls per second of the official SDK over HTTP, where it is fastest."""
    return calls_per_second(MODERN_CALLS, http_command(MCP), JSON, seconds)


# One client


class TcpLines(stdio.Lines):
    """A connection, already initialized."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE_SECONDS)
        self.socket.settimeout(None)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.stdin = self.stdout = self.socket.fileno()
        self.initialize()
        stdio.write(self.stdin, stdio.INITIALIZED)


def tcp_calls(count: int) -> float:
    """Calls per second over TCP, sent without waiting."""
    with serving(socket_command(), "tcp") as server:
        lines = TcpLines(server.port)
        with lines.socket:
            stdio.pipelined(lines, "add", count // 20)  # to warm up
            return stdio.pipelined(lines, "add", count)


def stdio_calls(count: int) -> float:
    """The same over the pipes of a child process."""
    process = stdio.Process(server_command(MCPEARL))
    try:
        stdio.pipelined(process, "add", count // 20)
        return stdio.pipelined(process, "add", count)
    finally:
        process.close()


# WebSocket


class Frames:
    """A WebSocket connection, already initialized, on which every frame is a message."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), PATIENCE_SECONDS)
        self._socket.settimeout(None)
        self._unread = b""
        self._upgrade(port)
        self.send(frame(stdio.INITIALIZE.strip()))
        (answer,) = self.read(1)
        if b'"protocolVersion":"2025-11-25"' not in answer:
            raise WrongAnswer(f"initialize was answered with {answer!r}")
        self.send(frame(stdio.INITIALIZED.strip()))

    def _upgrade(self, port: int) -> None:
        key = base64.b64encode(os.urandom(16)).decode()
        lines = [
            "GET / HTTP/1.1",
            f"Host: 127.0.0.1:{port}",
            "Connection: Upgrade",
            "Upgrade: websocket",
            "Sec-WebSocket-Version: 13",
            f"Sec-WebSocket-Key: {key}",
            "Sec-WebSocket-Protocol: mcp",
        ]
        self.send("\r\n".join([*lines, "", ""]).encode())
        head = b""
        while b"\r\n\r\n" not in head:
            part = self._socket.recv(1 << 16)
            if not part:
                raise WrongAnswer(f"no WebSocket: {head!r}")
            head += part
        head, _, self._unread = head.partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 101"):
            raise WrongAnswer(f"no WebSocket: {head!r}")

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def read(self, count: int) -> list[bytes]:
        """Read this many messages."""
        messages: list[bytes] = []
        buffer, self._unread = self._unread, b""
        while True:
            place = 0
            while len(messages) < count and (found := _next_frame(buffer, place)):
                start, place = found
                messages.append(buffer[start:place])
            buffer = buffer[place:]
            if len(messages) == count:
                self._unread = buffer
                return messages
            part = self._socket.recv(1 << 18)
            if not part:
                raise WrongAnswer(f"it ended with {count - len(messages)} answers missing")
            buffer += part

    def close(self) -> None:
        self._socket.close()


def frame(payload: bytes) -> bytes:
    """A text frame of a client. Its mask is zero, which leaves the payload as it is."""
    size = len(payload)
    head = (
        struct.pack("!BB", 0x81, 0x80 | size)
        if size < 126
        else struct.pack("!BBH", 0x81, 0xFE, size)
    )
    return head + bytes(4) + payload


def _next_frame(buffer: bytes, place: int) -> tuple[int, int] | None:
    """Where the payload of the frame at this place starts and ends; None if it is incomplete."""
    if len(buffer) < place + 2:
        return None
    if buffer[place] != 0x81:
        raise WrongAnswer(f"not a text frame: {buffer[place : place + 50]!r}")
    size, start = buffer[place + 1], place + 2
    if size == 126:
        size, start = int.from_bytes(buffer[start : start + 2]), start + 2
    elif size == 127:
        size, start = int.from_bytes(buffer[start : start + 8]), start + 8
    return (start, start + size) if len(buffer) >= start + size else None


def websocket_calls(count: int) -> float:
    """Calls per second over WebSocket, sent without waiting, fifty frames a write."""
    with serving(socket_command(), "ws") as server:
        frames = Frames(server.port)
        try:
            _websocket_calls(frames, count // 20)
            return _websocket_calls(frames, count)
        finally:
            frames.close()


def _websocket_calls(frames: Frames, count: int) -> float:
    calls = [frame(line.strip()) for line in stdio.requests("add", count)]
    size = stdio.WRITE_BLOCK
    blocks = [b"".join(calls[first : first + size]) for first in range(0, count, size)]

    def send() -> None:
        with suppress(OSError):  # the reader reports it
            for block in blocks:
                frames.send(block)

    sender = threading.Thread(target=send, daemon=True)
    started = time.perf_counter()
    sender.start()
    answers = frames.read(count)
    elapsed = time.perf_counter() - started
    sender.join()
    stdio.check(answers, count)
    return count / elapsed


# Many clients


def many_connections(count: int) -> tuple[float, float]:
    """Seconds in which all of them make one call, and the memory of one in KB."""
    with serving(socket_command(), "tcp") as server:
        TcpLines(server.port).socket.close()
        before = server.rss
        connections = [TcpLines(server.port) for _ in range(count)]
        kilobytes = (server.rss - before) / count / 1e3
        calls = stdio.requests("add", count)
        started = time.perf_counter()
        for connection, call in zip(connections, calls, strict=True):
            stdio.write(connection.stdin, call)
        answers = [connection.read_lines(1)[0] for connection in connections]
        seconds = time.perf_counter() - started
        stdio.check(answers, count)
        for connection in connections:
            connection.socket.close()
    return seconds, kilobytes


# A flood


class Pace:
    """How fast some clients were served."""

    def __init__(self, latencies: list[float], seconds: float) -> None:
        self.per_second = len(latencies) / seconds
        self.p99 = sorted(latencies)[len(latencies) * 99 // 100]


def beside_a_flood(seconds: float) -> tuple[Pace, Pace]:
    """How fast clients that wait for each answer are served, before and while another floods."""
    with serving(socket_command(), "tcp") as server:
        others = [TcpLines(server.port) for _ in range(OTHERS)]
        call_in_turn(others, seconds / 4)
        before = call_in_turn(others, seconds)
        with flooding(server):
            call_in_turn(others, seconds / 4)
            during = call_in_turn(others, seconds)
        for other in others:
            other.socket.close()
    return before, during


def call_in_turn(clients: list[TcpLines], seconds: float) -> Pace:
    """Let every client call, and call again as soon as it has its answer."""
    call = stdio.requests("add", 1)[0]
    latencies: list[float] = []
    with selectors.DefaultSelector() as selector:
        sent = {}
        started = time.perf_counter()
        for client in clients:
            selector.register(client.socket, selectors.EVENT_READ, client)
            sent[client] = time.perf_counter()
            stdio.write(client.stdin, call)
        until = started + seconds
        while sent:
            for key, _ in selector.select(PATIENCE_SECONDS):
                client = key.data
                stdio.check(client.read_lines(1), 1)
                now = time.perf_counter()
                latencies.append(now - sent.pop(client))
                if now < until:
                    sent[client] = now
                    stdio.write(client.stdin, call)
        return Pace(latencies, time.perf_counter() - started)


@contextmanager
def flooding(server: HttpServer) -> Iterator[None]:
    """Run a client that calls without end, in its own process."""
    flood = subprocess.Popen(
        [sys.executable, str(SERVERS / "flood.py"), str(server.port)],
        stdout=subprocess.PIPE,
        env=clean_environ(),
    )
    try:
        assert flood.stdout is not None
        if flood.stdout.readline() != b"flooding\n":
            raise WrongAnswer("the flood did not begin")
        yield
        if flood.poll() is not None:
            raise WrongAnswer("the flood ended by itself")
    finally:
        flood.kill()
        flood.communicate()
