"""Durable receipts: an answer leaves after the disk has confirmed its records, and not before."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from mcpearl import Client, Server
from mcpearl.receipts.receipts import Receipts
from tests.receipts.logs import records
from tests.receipts.test_recording import calls_of, make_app, verified
from tests.waiting import eventually, turns

HOLDING = """
import os, time
from pathlib import Path

folder = Path({folder!r})
sync = os.fdatasync


def held(descriptor):
    (folder / "asked").touch()
    while (folder / "hold").exists():
        time.sleep(0.005)
    sync(descriptor)
    (folder / "synced").touch()


os.fdatasync = held
"""


class HeldSync:
    """Holds back the sync of the process that writes, for as long as the test wants."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "sitecustomize.py").write_text(HOLDING.format(folder=str(folder)))

    def hold(self) -> None:
        (self._folder / "hold").touch()
        for name in ("asked", "synced"):
            (self._folder / name).unlink(missing_ok=True)

    def release(self) -> None:
        (self._folder / "hold").unlink()

    @property
    def is_asked(self) -> bool:
        return (self._folder / "asked").exists()

    @property
    def is_done(self) -> bool:
        return (self._folder / "synced").exists()


@pytest.fixture
def sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HeldSync:
    folder = tmp_path / "site"
    folder.mkdir()
    held = HeldSync(folder)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    return held


@pytest.mark.parametrize("wire", ["memory", "http"])
@pytest.mark.parametrize("side", ["server", "client"])
async def test_no_answer_leaves_before_the_sync_has_returned(
    tmp_path: Path, sync: HeldSync, wire: str, side: str
) -> None:
    folder = tmp_path / "receipts"
    receipts = Receipts(folder, durable=True)
    app = make_app(receipts) if side == "server" else plain_app()
    options: Any = {"receipts": receipts} if side == "client" else {}
    async with app.serving("http", port=0) as url:
        target: Any = url if wire == "http" else app
        async with (
            Client(target, telemetry=False, **options) as client,
            Client(target, telemetry=False) as other,
        ):
            assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3
            sync.hold()
            call = asyncio.ensure_future(client.call_tool("add", {"a": 2, "b": 2}))
            await eventually(lambda: sync.is_asked)
            await turns(200)
            if side == "client":
                # Another client, which records nothing, is not held up.
                assert (await other.call_tool("add", {"a": 3, "b": 3})).data == 6
            else:
                await other.ping()
            assert not call.done(), "the records are not on disk"
            assert not sync.is_done
            sync.release()
            assert (await call).data == 4
            assert sync.is_done
            assert calls_of(records(folder))[-1] == ("add", "result", None)
    verified(folder)


def plain_app() -> Server:
    app = Server("plain", telemetry=False)

    @app.tool
    async def add(a: int, b: int) -> int:
        return a + b

    return app


async def test_answers_do_not_wait_for_a_sync_by_default(tmp_path: Path, sync: HeldSync) -> None:
    """Written behind: records are handed over, and nothing waits for the disk."""
    folder = tmp_path / "receipts"
    async with Client(make_app(folder), telemetry=False) as client:
        sync.hold()
        try:
            assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3
            await eventually(lambda: bool(calls_of(records(folder))))
            assert not sync.is_done
        finally:
            sync.release()
    verified(folder)
