"""The server under measure for isolated tools, beside a `ProcessPoolExecutor` and threads.

Everything has two processes, or two threads.
"""

import asyncio
import signal
from concurrent.futures import ProcessPoolExecutor

from mcpearl import Isolate, Server
from mcpearl.runtime.isolation.system import PR_SET_PDEATHSIG, prctl

TURNS = 1_000_000  # of a loop, some 50 milliseconds of processor time
TWO = Isolate(processes=2)


def total(a: int, b: int) -> int:
    return a + b


def spun(a: int, b: int) -> int:
    """Add two numbers after some work for the processor."""
    count = 0
    for number in range(TURNS):
        count ^= number
    return a + b


def end_with_server() -> None:
    """Have a process of the executor end when the benchmark kills the server."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


app = Server("bench", version="1.0.0", threads=2)
app.add_tool(total, name="isolated", isolate=TWO)
app.add_tool(spun, name="spun_isolated", isolate=TWO)
app.add_tool(spun, name="spun_threads")


@app.tool
async def plain(a: int, b: int) -> int:
    return a + b


@app.tool(isolate=Isolate(processes=2, reuse=1_000_000))
async def isolated_async(a: int, b: int) -> int:
    return a + b


@app.tool
async def executor(a: int, b: int) -> int:
    return await asyncio.get_running_loop().run_in_executor(pool, total, a, b)


if __name__ == "__main__":
    pool = ProcessPoolExecutor(2, initializer=end_with_server)
    pool.submit(total, 1, 2).result()  # it forks now
    app.run()
