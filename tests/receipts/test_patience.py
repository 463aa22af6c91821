"""Receipts are written in idle time of the processors, and in other time if there is none."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mcpearl import Client, Receipts, Server
from tests.receipts.logs import records
from tests.waiting import eventually


def make_app(folder: Path, *, durable: bool = False) -> Server:
    app = Server("patient", receipts=Receipts(folder, durable=durable))

    @app.tool
    async def add(a: int, b: int) -> int:
        return a + b

    return app


def scribes() -> list[int]:
    """Return the processes that write receipts for this one."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return [
        int(pid) for pid in children if b"receipts" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]


@contextmanager
def kept_busy(processor: int) -> Iterator[None]:
    """Keep a processor busy."""
    program = f"import os; os.sched_setaffinity(0, {{{processor}}})\nwhile True: pass"
    spinning = [subprocess.Popen([sys.executable, "-c", program]) for _ in range(2)]
    try:
        yield
    finally:
        for each in spinning:
            each.kill()
            each.wait()


async def call_many(client: Client) -> int:
    """Make so many calls that their receipts are written in idle time; return how many."""
    together, times = 50, 120
    for _ in range(times):
        each = (client.call_tool("add", {"a": number, "b": 2}) for number in range(together))
        await asyncio.gather(*each)
    return together * times


def is_patient(pid: int) -> bool:
    return os.sched_getscheduler(pid) == os.SCHED_IDLE


@pytest.mark.parametrize("durable", [False, True])
async def test_many_receipts_are_written_in_idle_time_if_no_call_waits_for_them(
    tmp_path: Path, durable: bool
) -> None:
    async with Client(make_app(tmp_path / "log", durable=durable)) as client:
        (scribe,) = scribes()
        assert not is_patient(scribe)
        await call_many(client)
        if durable:
            assert not is_patient(scribe)
        else:
            await eventually(lambda: is_patient(scribe))


async def test_receipts_are_written_where_there_is_no_idle_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with Client(make_app(tmp_path / "log")) as client:
        (patient,) = scribes()
        calls = await call_many(client)
        await eventually(lambda: is_patient(patient))
        processor = min(os.sched_getaffinity(0))
        with kept_busy(processor):
            os.sched_setaffinity(patient, {processor})
            while "other processes keep the processors busy" not in caplog.text:
                await client.call_tool("add", {"a": calls, "b": 2})
                calls += 1
                await asyncio.sleep(0.001)
            await eventually(lambda: patient not in scribes())
            (other,) = scribes()
            assert not is_patient(other)
    written = [each for each in records(tmp_path / "log") if each["kind"] == "begin"]
    assert len({each["call"] for each in written if each["method"] == "tools/call"}) == calls


async def test_a_process_that_gets_no_time_to_end_is_replaced(tmp_path: Path) -> None:
    async with Client(make_app(tmp_path / "log")) as client:
        (patient,) = scribes()
        calls = await call_many(client)
        await eventually(lambda: is_patient(patient))
        await eventually(
            lambda: sum(each["kind"] == "end" for each in records(tmp_path / "log")) > calls
        )
        os.kill(patient, signal.SIGSTOP)  # as if it got no time at all
    assert scribes() == []
    assert records(tmp_path / "log")[-1]["kind"] == "stop"
