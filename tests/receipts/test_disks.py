"""Receipts on disks that are full or read-only: real ones, in a mount namespace of their own."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mcpearl.receipts.verifier import Log, load_keys
from tests.receipts.logs import records
from tests.receipts.test_recording import calls_of, verified


def run(scenario: str, tmp_path: Path) -> tuple[dict[str, Any], Path, str]:
    """Run a scenario of `disks`; return what it saw, the log it left, and its own log."""
    folder, kept = tmp_path / "disk", tmp_path / "kept"
    folder.mkdir()
    kept.mkdir()
    program = [sys.executable, "-m", "tests.receipts.disks", scenario, str(folder), str(kept)]
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", *program],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), kept / "log", done.stderr


@pytest.mark.parametrize("scenario", ["full_and_refused", "full_durable"])
def test_calls_are_refused_while_the_disk_has_no_room(scenario: str, tmp_path: Path) -> None:
    """Three times in one life; every call that was answered is in the log, and the log verifies."""
    seen, log, said = run(scenario, tmp_path)
    for each in seen["rounds"]:
        assert "No space left on device" in each["reason"]
        assert each["answered"] == 0
        assert each["refused"] == 20
    assert all("recorded" in message for message in seen["refused"])
    assert not [message for message in seen["refused"] if str(tmp_path) in message]
    assert "No space left on device" in said
    held = verified(log)
    assert calls_of(held).count(("add", "result", None)) >= seen["answered"]
    assert len(list(log.glob("*.log"))) > 2, "files were rotated, too"


def test_calls_go_on_while_the_disk_has_no_room_and_the_gaps_are_recorded(tmp_path: Path) -> None:
    seen, log, said = run("full_and_continued", tmp_path)
    assert not seen["refused"]
    for each in seen["rounds"]:
        assert "No space left on device" in each["reason"]
        assert each["answered"] == 20
    assert "calls are not recorded" in said
    held = verified(log)
    gaps = [record for record in held if record["kind"] == "gap"]
    assert gaps
    assert all("No space left on device" in gap["reason"] for gap in gaps)
    recorded = calls_of(held).count(("add", "result", None))
    assert recorded < seen["answered"]
    assert recorded + sum(gap["calls"] for gap in gaps) >= seen["answered"]


def test_a_file_that_could_not_be_begun_is_begun_again(tmp_path: Path) -> None:
    seen, log, _ = run("full_for_a_new_file", tmp_path)
    assert seen["failures"] == ["No space left on device"] * 9
    checked = Log(log, load_keys([str(log / "key.pub")]))
    checked.verify()
    assert checked.signed == checked.size == 31
    assert len(records(log)) == 31
    assert len(list(log.glob("*.log"))) == 4


def test_a_server_does_not_start_if_its_receipts_cannot_be_written(tmp_path: Path) -> None:
    seen, log, _ = run("read_only", tmp_path)
    assert len(seen["reasons"]) == 3
    for reason in seen["reasons"]:
        assert "Read-only file system" in reason, reason
    assert seen["is_untouched"]
    held = verified(log)
    assert [record["kind"] for record in held] == ["start", "stop"] * 2


def test_calls_are_refused_while_the_folder_is_read_only(tmp_path: Path) -> None:
    seen, log, _ = run("read_only_later", tmp_path)
    assert "Read-only file system" in seen["reason"]
    assert seen["refused"]
    assert calls_of(verified(log)).count(("add", "result", None)) >= seen["answered"]
