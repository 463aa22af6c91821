"""What waits for a client that does not read is bounded, in number and in bytes."""

import asyncio
from typing import Any, cast

import pytest

from mcpearl.runtime.isolation.frames import Kind
from mcpearl.runtime.isolation.process import Job
from mcpearl.server.isolation.talk import ContextRequests


class PausableProcess:
    """Notes whether it is read."""

    is_read = True

    def pause(self) -> None:
        self.is_read = False

    def resume(self) -> None:
        self.is_read = True


@pytest.mark.parametrize(("count", "size"), [(64, 10), (2, 600_000)])
async def test_a_process_is_not_read_while_too_much_of_it_waits(count: int, size: int) -> None:
    process = PausableProcess()
    job = Job(b"", asyncio.get_running_loop().create_future(), process=cast(Any, process))
    requests = ContextRequests(cast(Any, None), job)
    for _ in range(count - 1):
        requests.take(Kind.TELL, bytes(size))  # nothing is passed on before the loop runs
    assert process.is_read
    requests.take(Kind.TELL, bytes(size))
    assert not process.is_read
    requests.close()
