"""Calls tools of the scene with the client of the official Python SDK: `URL NAME SECONDS MODE`.

It prints each outcome as a line, and at the end how many calls there were. A client that ended, because
its connection was lost, is followed by another one.
"""

import asyncio
import json
import sys
import time
import warnings
from typing import Any

import mcp_types as types
from mcp import Client, MCPError

TOOLS = ("record", "count", "ask", "sample", "leave")
URL, NAME, SECONDS, MODE = sys.argv[1], sys.argv[2], float(sys.argv[3]), sys.argv[4]
CALL_SECONDS = 20.0
warnings.simplefilter("ignore")


class Caller:
    """Calls tools one after the other, through as many clients as it takes."""

    def __init__(self) -> None:
        self.number = 0
        self.asked = 0  # questions of the call under way that were answered
        self.progress: list[float] = []  # of the call under way

    async def agree(self, _: Any, params: Any) -> types.ElicitResult:
        """Answer a question with the key it ends with."""
        self.asked += 1
        return types.ElicitResult(action="accept", content={"a": params.message.split()[-1]})

    async def sample(self, _: Any, params: Any) -> types.CreateMessageResult:
        """Answer for a model, with the key the question ends with."""
        self.asked += 1
        content = params.messages[0].content
        content = content[0] if isinstance(content, list) else content
        said = types.TextContent(type="text", text=content.text.split()[-1])
        return types.CreateMessageResult(role="assistant", content=said, model="parrot-1")

    async def note(self, progress: float, *_: Any) -> None:
        """Note the progress of the call under way."""
        self.progress.append(progress)

    async def use(self, client: Client, until: float) -> None:
        """Call until time is up, or the client ends."""
        while time.monotonic() < until:
            self.number += 1
            self.asked, self.progress = 0, []
            key, tool = f"{NAME}-{self.number}", TOOLS[self.number % len(TOOLS)]
            outcome = "lost: the client ended"
            try:
                async with asyncio.timeout(CALL_SECONDS):
                    result = await client.call_tool(tool, {"key": key}, progress_callback=self.note)
                outcome = "failed" if result.is_error else "answered"
            except (MCPError, TimeoutError) as error:
                outcome = f"refused: {error}"
                if isinstance(error, MCPError) and error.error.code == types.CONNECTION_CLOSED:
                    return  # it would refuse every call from now on
            finally:
                self._print(key, tool, outcome)
            await asyncio.sleep(0.02)

    def _print(self, key: str, tool: str, outcome: str) -> None:
        line = {"key": key, "tool": tool, "outcome": outcome}
        print(json.dumps({**line, "progress": self.progress, "asked": self.asked}), flush=True)


async def main() -> None:
    """Connect, as often as it takes, and call until time is up."""
    until = time.monotonic() + SECONDS
    caller = Caller()
    async with asyncio.timeout(SECONDS + 2 * CALL_SECONDS):
        while time.monotonic() < until:
            client = Client(
                URL,
                mode=MODE,
                client_info=types.Implementation(name=NAME, version="1"),
                elicitation_callback=caller.agree,
                sampling_callback=caller.sample,
            )
            try:
                async with client:
                    await caller.use(client, until)
            except Exception:  # whatever ended it; the outcome of its call is printed
                await asyncio.sleep(0.2)
    print(json.dumps({"total": caller.number}), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
