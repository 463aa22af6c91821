"""The process that writes receipts: what happens when it dies, gets no time, or cannot be started."""

import asyncio
import os
import resource
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mcpearl.receipts.scribe import Setup, framed
from mcpearl.receipts.scribe_process import ScribeProcess
from mcpearl.runtime.arguments import Unusable
from tests.receipts.logs import Log, load_keys, records
from tests.waiting import PATIENCE, eventually

RUN = "0123456789ab"


class Writer:
    """Hands batches of records to a process, and notes what it is told."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.failures: list[str] = []
        self.handed = 0
        setup = Setup(
            folder=str(folder),
            key=None,
            name=None,
            rotate=1 << 30,
            durable=False,
            sign_every=1.0,
            run=RUN,
            role="server",
            of="test",
            mcpearl="0",
            patient=True,
        )
        self.process = ScribeProcess(setup, lambda: None, self.failures.append)

    @property
    def pid(self) -> int:
        return self.process._process.pid

    def put(self, count: int, *, size: int = 10) -> None:
        """Hand over a batch with both records of each of so many calls."""
        params = b'{"text":"' + b"x" * size + b'"}'
        columns = []
        for number in range(count):
            columns += [1.0, 2.0, "ping", "2025-11-25", number, None, params, b'{"result":{}}']
        self.process.put(framed((0.0, self.handed, columns)), [])
        self.handed += count

    async def written(self) -> None:
        await eventually(lambda: not self.process.handed)

    async def become_patient(self) -> None:
        self.put(6000)
        await eventually(lambda: self.process._patient and not self.process.handed)

    def verify(self) -> None:
        """Check that no record is missing, and that the log is as it was written."""
        Log(self.folder, load_keys([str(self.folder / "key.pub")])).verify()
        calls = {each["call"] for each in records(self.folder) if each["kind"] == "end"}
        assert calls == {f"{RUN}-{number}" for number in range(1, self.handed + 1)}


@pytest.fixture
async def writer(tmp_path: Path) -> Writer:
    writer = Writer(tmp_path / "log")
    await writer.process.open()
    return writer


def children() -> list[int]:
    """Return the processes that this one has started, and those of them that it has not reaped."""
    found = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return [int(pid) for pid in found]


@contextmanager
def no_free_descriptor() -> Iterator[None]:
    """Let this process open no more files and sockets."""
    free = os.dup(0)
    os.close(free)
    usual = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, usual[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, usual)


@pytest.mark.parametrize("patient", [False, True])
async def test_a_process_that_cannot_be_started_is_started_later(
    writer: Writer, patient: bool
) -> None:
    if patient:
        await writer.become_patient()
    with no_free_descriptor():
        os.kill(writer.pid, signal.SIGSTOP if patient else signal.SIGKILL)
        writer.put(1)  # which is late, if the process is only stopped
        await eventually(lambda: "cannot be started" in "".join(writer.failures))
        assert "Too many open files" in writer.failures[-1]
        writer.put(1)
    writer.put(1)
    await writer.written()
    await writer.process.close()
    writer.verify()


async def test_a_log_without_a_process_to_write_it_cannot_be_opened(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "log")
    with no_free_descriptor(), pytest.raises(Unusable, match=r"cannot be started: .*open files"):
        await writer.process.open()


async def test_no_process_is_left_of_an_opening_that_is_cancelled(tmp_path: Path) -> None:
    before = children()
    writer = Writer(tmp_path / "log")
    opening = asyncio.create_task(writer.process.open())
    await asyncio.sleep(0)
    assert children() != before
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    await eventually(lambda: children() == before)


async def test_what_was_handed_over_before_the_process_was_patient_is_written_in_time(
    writer: Writer,
) -> None:
    patient = writer.pid

    def stop_when_patient() -> None:
        deadline = time.monotonic() + PATIENCE
        while os.sched_getscheduler(patient) != os.SCHED_IDLE and time.monotonic() < deadline:
            time.sleep(0.0002)
        os.kill(patient, signal.SIGSTOP)  # as if it got no time from then on

    stopping = threading.Thread(target=stop_when_patient)
    stopping.start()
    writer.put(6000)
    writer.put(2000, size=1000)  # too large to be read with the first batch
    await writer.written()
    stopping.join()
    await writer.process.close()
    writer.verify()


async def test_a_break_of_both_processes_is_not_taken_for_a_slow_one(writer: Writer) -> None:
    await writer.become_patient()
    patient = writer.pid
    os.kill(patient, signal.SIGSTOP)
    writer.put(1)
    time.sleep(2)  # as if the machine was suspended
    os.kill(patient, signal.SIGCONT)
    await writer.written()
    assert writer.pid == patient
    await writer.process.close()
    writer.verify()


@pytest.mark.parametrize("has_more", [False, True])
async def test_a_patient_process_that_is_killed_is_followed_by_another_one(
    writer: Writer, has_more: bool
) -> None:
    for _ in range(2):
        await writer.become_patient()
        patient = writer.pid
        if has_more:
            os.kill(patient, signal.SIGSTOP)
            writer.put(1)
        assert writer.process.kill()
        await eventually(lambda patient=patient: writer.pid != patient)
        assert patient not in children()
    writer.put(1)
    await writer.process.close()
    writer.verify()


async def test_a_process_that_is_killed_while_it_ends_is_followed_by_one_that_signs(
    writer: Writer,
) -> None:
    writer.put(1)
    await writer.written()
    os.kill(writer.pid, signal.SIGKILL)
    await writer.process.close()
    writer.verify()
    assert records(writer.folder)[-1]["kind"] == "stop"
    head = (writer.folder / "checkpoint").read_text().split("\n")
    assert int(head[1]) == len(records(writer.folder))


@pytest.mark.parametrize("has_more", [False, True])
async def test_no_process_is_left_of_one_that_is_replaced_at_the_end(
    writer: Writer, has_more: bool
) -> None:
    before = [pid for pid in children() if pid != writer.pid]
    await writer.become_patient()
    os.kill(writer.pid, signal.SIGSTOP)
    if has_more:
        writer.put(1)
    await writer.process.close()
    assert children() == before
    writer.verify()


async def test_a_process_that_is_replaced_may_be_killed_too(writer: Writer) -> None:
    await writer.become_patient()
    patient = writer.pid
    os.kill(patient, signal.SIGSTOP)
    writer.put(1)
    await eventually(lambda: writer.pid != patient)
    writer.put(1)
    os.kill(writer.pid, signal.SIGKILL)
    await writer.process.close()
    writer.verify()
    assert not writer.process._setup.patient


async def test_a_patient_process_whose_disk_is_full_is_followed_by_another_one_at_the_end(
    writer: Writer,
) -> None:
    await writer.become_patient()
    size = max(path.stat().st_size for path in writer.folder.glob("*.log"))
    limits = (size + 150, resource.RLIM_INFINITY)  # in the middle of a record
    resource.prlimit(writer.pid, resource.RLIMIT_FSIZE, limits)
    writer.put(5)
    await eventually(lambda: "File too large" in "".join(writer.failures))
    await writer.process.close()
    writer.verify()
