"""A server whose tools do to their process what tools do, and a look at what is left of it."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil

from mcpearl import Context, Isolate, Server

TWO = Isolate(processes=2)


def make(profile: bool | Isolate = TWO, **options: Any) -> Server:
    """Return a server with isolated tools."""
    app = Server("isolated", **options)

    @app.tool(isolate=profile)
    def add(a: int, b: int) -> int:
        return a + b

    @app.tool(isolate=profile)
    def pid() -> int:
        return os.getpid()

    @app.tool(isolate=profile)
    def segfault() -> int:
        print("about to read what is not there", file=sys.stderr)
        ctypes.string_at(0)
        return 0

    @app.tool(isolate=profile)
    def leave(code: int) -> int:
        os._exit(code)

    @app.tool(isolate=profile)
    def loop() -> int:
        while True:
            pass

    @app.tool(isolate=profile)
    def doze(seconds: float) -> str:
        time.sleep(seconds)
        return "rested"

    @app.tool(isolate=profile)
    def close_descriptors() -> str:
        os.closerange(0, 1000)
        time.sleep(60)
        return "still here"

    @app.tool(isolate=profile)
    def garbage() -> str:
        for number in range(3, 1024):
            try:
                os.write(number, b"\x00garbage" * 10)
            except OSError:
                pass
        time.sleep(60)
        return "not noticed"

    @app.tool(isolate=profile)
    def multiply(count: int) -> list[int]:
        """Start processes in groups of their own, half of them without a parent, and stay."""
        pids = []
        for number in range(count):
            if number % 2:
                started = subprocess.Popen(["sleep", "300"], start_new_session=True)
                pids.append(started.pid)
                continue
            reader, writer = os.pipe()
            if os.fork() == 0:
                if os.fork() == 0:
                    os.setsid()
                    os.write(writer, f"{os.getpid()} ".encode())
                    time.sleep(300)
                os._exit(0)
            os.wait()
            pids.append(int(os.read(reader, 100)))
        return pids

    @app.tool(isolate=profile)
    def bomb(most: int) -> str:
        """Start processes that start processes: 200 of them in all, and none for longer than 20 s."""
        reader, writer = os.pipe()
        os.write(writer, b"." * min(most, 200))  # each fork takes one of these
        os.close(writer)
        while ticket := os.read(reader, 1):
            if os.fork() == 0:
                signal.alarm(20)
                if most % 2:
                    os.setsid()
        time.sleep(15)
        os._exit(len(ticket))

    @app.tool(isolate=profile)
    def together(count: int, megabytes: int = 0, seconds: float = 0) -> str:
        """Have processes use memory, or the processor, each for itself."""
        for _ in range(count):
            if os.fork() == 0:
                signal.alarm(20)
                held = bytearray(os.urandom(1000) * 1000 * megabytes)
                end = time.process_time() + seconds
                while time.process_time() < end:
                    pass
                time.sleep(len(held))
        time.sleep(15)
        return "not noticed"

    @app.tool(isolate=profile)
    def leave_behind() -> int:
        """Leave a process behind that has ended, and that nothing waits for."""
        if os.fork() == 0:
            os._exit(0)
        return os.getpid()

    @app.tool(isolate=profile)
    def eat(megabytes: int) -> int:
        return len(bytearray(megabytes * 1_000_000))

    @app.tool(isolate=profile)
    def say(text: str) -> int:
        return os.write(2, text.encode())

    @app.tool(isolate=profile)
    def fail(text: str) -> str:
        raise ValueError(text)

    return app


EARLIER: set[int] = set()  # processes of other tests, such as a store that several of them use


def children(pid: int | None = None) -> list[psutil.Process]:
    """The processes below one: this one by default, without those that were there before the test."""
    below = psutil.Process(pid).children(recursive=True)
    return [each for each in below if each.pid not in EARLIER]


def descriptors() -> int:
    """How many descriptors this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


def alive(pid: int) -> bool:
    """Whether a process runs."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def talking(profile: bool | Isolate = TWO, **options: Any) -> Server:
    """A server whose isolated tools use their context, each as `def` and as `async def`."""
    app = Server("talking", **options)

    @app.resource("memo://note")
    def note() -> str:
        return f"read in {os.getpid()}"

    @app.tool(isolate=profile)
    async def reports(ctx: Context) -> int:
        for number in range(1, 4):
            await ctx.progress(number, 3, f"step {number}")
        await ctx.info({"n": 1}, "log")
        return os.getpid()

    @app.tool(isolate=profile)
    async def knows(ctx: Context) -> dict[str, Any]:
        assert ctx.client.client is not None
        return {
            "id": ctx.request_id,
            "client": ctx.client.client.name,
            "version": ctx.client.version.name,
            "subject": None if ctx.principal is None else ctx.principal.subject,
            "claims": None if ctx.principal is None else dict(ctx.principal.claims),
            "state": dict(ctx.state),
            "session": ctx.session_id is not None,
            "meta": "x" in ctx.meta,
            "lifespan": ctx.lifespan,
        }

    @app.tool(isolate=profile)
    async def keeps(value: int, ctx: Context) -> list[Any]:
        before = await ctx.session.get("value")
        await ctx.session.set("value", value)
        return [before, await ctx.session.keys()]

    @app.tool(isolate=profile)
    async def reads(ctx: Context) -> str:
        (content,) = await ctx.read_resource("memo://note")
        return content.text or ""

    return app
