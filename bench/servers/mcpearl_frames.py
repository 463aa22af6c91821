"""The server whose frames are counted: ``python mcpearl_frames.py [port]``, on stdio without a port.

`start` begins the count, every call of `add` is a mark, and `stop` returns the frames by period.
"""

import sys

from frame_count import FrameCount

from mcpearl import Server

app = Server("bench", version="1.0.0")
count = FrameCount()


@app.tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    count.mark()
    return a + b


@app.tool
async def start() -> None:
    """Count from here on."""
    count.start()


@app.tool
async def stop() -> list[list[str]]:
    """Return the frames by period."""
    return count.stop()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        app.run("http", port=int(sys.argv[1]))
    else:
        app.run()
