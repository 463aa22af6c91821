"""A real Chromium that a test drives, one step at a time."""

import asyncio
import fcntl
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.interop.peers import NODE

PROGRAMS = Path(__file__).parents[1] / "interop" / "node"
UNPACKED = PROGRAMS / "node_modules" / ".chromium"


def environment() -> dict[str, str]:
    return {**os.environ, "TMPDIR": str(UNPACKED)}


def unpack() -> None:
    """Unpack the browser, once for all test processes."""
    UNPACKED.mkdir(parents=True, exist_ok=True)
    with (UNPACKED / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        command = [NODE, str(PROGRAMS / "browser.mjs")]
        subprocess.run(command, check=True, timeout=60, env=environment())


class Browser:
    """The browser, with one page at a time. Each method waits until the page has done it."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process

    async def do(self, name: str, **given: Any) -> Any:
        return await asyncio.to_thread(self._do, name, given)

    def _do(self, name: str, given: dict[str, Any]) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": name, **given}).encode() + b"\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        assert "error" not in answer, f"{name} {given}: {answer}"
        return answer["result"]

    async def open(self, url: str, **options: Any) -> None:
        await self.do("open", url=url, **options)

    async def click(self, selector: str) -> None:
        await self.do("click", selector=selector)

    async def fill(self, selector: str, value: str) -> None:
        await self.do("fill", selector=selector, value=value)

    async def select(self, selector: str, value: str) -> None:
        await self.do("select", selector=selector, value=value)

    async def wait(self, selector: str, state: str = "visible") -> None:
        await self.do("wait", selector=selector, state=state)

    async def press(self, keys: str) -> None:
        await self.do("press", keys=keys)

    async def text(self, selector: str) -> str:
        found: str = await self.do("text", selector=selector)
        return found

    async def texts(self, selector: str) -> list[str]:
        found: list[str] = await self.do("texts", selector=selector)
        return found

    async def count(self, selector: str) -> int:
        found: int = await self.do("count", selector=selector)
        return found

    async def evaluate(self, script: str) -> Any:
        return await self.do("evaluate", script=script)

    async def screenshot(self, path: Path, *, whole: bool = False) -> None:
        await self.do("screenshot", path=str(path), whole=whole)

    async def problems(self) -> list[str]:
        """Return what the page logged as errors, and what it tried and was not allowed to."""
        found: list[str] = await self.do("problems")
        return found


@contextmanager
def running_browser() -> Iterator[Browser]:
    """Run the browser: starting it takes longer than most tests."""
    unpack()
    command = [NODE, str(PROGRAMS / "driven_browser.mjs")]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment()
    )
    try:
        yield Browser(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
