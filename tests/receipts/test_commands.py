"""`mcpearl receipts`, as people and scripts use it."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from mcpearl import Client, Receipts, Server
from mcpearl.receipts import verifier
from tests.cli.running import Screen, mcpearl
from tests.receipts.logs import records
from tests.server.wire import wire


@pytest.fixture
def log(tmp_path: Path) -> Path:
    folder = tmp_path / "receipts"

    async def main() -> None:
        app = Server("weather", receipts=Receipts(folder, name="example.com/weather"))

        @app.tool
        async def add(a: int, b: int) -> int:
            return a + b

        async with Client(app) as client:
            for number in range(3):
                await client.call_tool("add", {"a": number, "b": 1})

    asyncio.run(main())
    return folder


def test_a_log_is_verified_with_one_line_and_an_exit_code(log: Path) -> None:
    done = mcpearl("receipts", "verify", log, "--key", log / "key.pub")
    count = len(records(log))
    line = f"{count} records of example.com/weather are as they were written\n"
    assert (done.code, done.out) == (0, line)
    since = ("--since", log / "checkpoint")
    assert mcpearl("receipts", "verify", log, "--key", log / "key.pub", *since).code == 0
    path = log / "0000000000000000.log"
    path.write_bytes(path.read_bytes().replace(b'"name":"add"', b'"name":"sub"', 1))
    done = mcpearl("receipts", "verify", log, "--key", log / "key.pub")
    assert done.code == 1
    assert done.out.startswith("NOT as written: 0000000000000000.log, line 3: record 1 was changed")
    assert done.out.count("\n") == 1
    done = mcpearl("receipts", "verify", log, "--key", log / "key.pub", "--json")
    assert json.loads(done.out)["genuine"] is False
    assert mcpearl("receipts", "verify", log, "--key", "nonsense+0+1").code == 2


def test_a_private_key_given_to_verify_with_is_not_repeated(log: Path, tmp_path: Path) -> None:
    key = tmp_path / "receipts.key"
    for given in (key, key.read_text().strip()):
        done = mcpearl("receipts", "verify", log, "--key", given)
        assert done.code == 2
        assert "its public half is needed: `key.pub`" in done.err
        assert key.read_text().strip().rpartition("+")[2][:8] not in done.out + done.err


def test_what_cannot_be_compared_is_not_said_to_be_changed(log: Path, tmp_path: Path) -> None:
    """The exit code is 2, and the log is not accused of what is wrong with the command line."""
    call = next(record["call"] for record in records(log) if record["kind"] == "end")
    mcpearl("receipts", "prove", call, log, "--output", tmp_path)
    proof = next(tmp_path.glob("*.tlog-proof"))
    half = tmp_path / "half"
    half.write_bytes((log / "checkpoint").read_bytes()[:100])
    contents = ("--contents", half, "--salt")
    for given, why in (
        ((log, "--since", half), f"{half} cannot be compared with: it is not a signed head"),
        ((proof, "--since", log / "checkpoint"), "--since is compared with a folder"),
        ((log, *contents, "aa"), "a proof of one record, not with a folder"),
        ((proof, *contents, "no"), "'no' is not a salt"),
    ):
        done = mcpearl("receipts", "verify", *given, "--key", log / "key.pub")
        assert (done.code, done.out) == (2, "")
        assert why in done.err


def test_one_record_is_proven_and_verified_without_the_log(log: Path, tmp_path: Path) -> None:
    call = next(record["call"] for record in records(log) if record.get("name") == "add")
    done = mcpearl("receipts", "prove", call, log, cwd=tmp_path)
    assert done.code == 0, done.err
    files = done.out.split()
    assert len(files) == 2
    key = (log / "key.pub").read_text().strip()
    for name in files:
        done = mcpearl("receipts", "verify", tmp_path / name, "--key", key)
        assert done.code == 0
        assert "is genuine" in done.out
        assert call in done.out
    proof = tmp_path / files[0]
    whole = proof.read_text()
    for changed in (whole.replace("index 1", "index 2"), whole[:-20], whole.replace("A", "B")):
        proof.write_text(changed)
        done = mcpearl("receipts", "verify", proof, "--key", key)
        assert (done.code, done.out[:14]) == (1, "NOT as written")
    assert mcpearl("receipts", "prove", "nothing", log).code == 4


def test_contents_are_compared_with_a_record(log: Path, tmp_path: Path) -> None:
    held = records(log)
    end = next(record for record in held if record["kind"] == "end")
    mcpearl("receipts", "prove", end["call"], log, "--output", tmp_path)
    salts = mcpearl(
        *("receipts", "salt", end["call"], log, "--key", tmp_path / "receipts.key", "--json")
    ).json
    assert len(salts["result"]) == 32
    (tmp_path / "contents").write_bytes(b'{"something":"else"}')
    proof = tmp_path / f"{held.index(end)}.tlog-proof"
    done = mcpearl(
        *("receipts", "verify", proof, "--key", log / "key.pub"),
        *("--contents", tmp_path / "contents", "--salt", salts["result"]),
    )
    assert done.code == 1
    assert "neither its arguments nor its result" in done.out


def test_records_are_shown(log: Path) -> None:
    done = mcpearl("receipts", "show", log)
    assert len(done.out.splitlines()) == len(records(log))
    assert "name=add" in done.out
    call = next(record["call"] for record in records(log) if record["kind"] == "end")
    lines = mcpearl("receipts", "show", log, "--call", call, "--json").out.splitlines()
    assert [json.loads(line)["kind"] for line in lines] == ["begin", "end"]
    assert mcpearl("receipts", "show", log, "--unfinished").out == ""


@pytest.mark.parametrize("option", [(), ("--unfinished",)])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"kind":"end"', b'"kind"="end"'),
        (b'"kind":"end"', b'"kind":["end"]'),
        (b'"at":1', b'"at":1e99,"was":1'),
        (b'"call":"', b'"call":["x"],"was":"'),
        (b'{"kind":"end"', b'[{"kind":"end"'),
    ],
)
def test_what_is_no_record_any_more_is_named(
    log: Path, option: tuple[str, ...], old: bytes, new: bytes
) -> None:
    path = log / "0000000000000000.log"
    held = path.read_bytes().splitlines(keepends=True)
    place = next(at for at, line in enumerate(held) if b'"kind":"end"' in line)
    held[place] = held[place].replace(old, new)
    path.write_bytes(b"".join(held))
    done = mcpearl("receipts", "show", log, *option)
    assert done.code == 1
    assert done.err.startswith(f"mcpearl: {path.name}, line {place + 1}: it is not a record")


def test_a_folder_without_records_is_named(tmp_path: Path) -> None:
    done = mcpearl("receipts", "show", tmp_path)
    assert (done.code, done.out) == (1, "")
    assert done.err == f"mcpearl: there are no receipts in {tmp_path}\n"


def test_records_fit_a_line_of_a_terminal(log: Path) -> None:
    with Screen("receipts", "show", log, columns=130) as screen:
        assert screen.ended() == 0
    lines = screen.text.splitlines()
    assert len(lines) == len(records(log))
    assert max(map(len, lines)) <= 130
    begin = next(record for record in records(log) if record.get("name") == "add")
    assert "method=tools/call  name=add" in screen.text
    assert f"arguments={begin['arguments'][:8]}…" in screen.text
    assert "ms  outcome=result" in screen.text


def test_what_clients_sent_neither_forges_a_line_nor_acts_on_a_terminal(tmp_path: Path) -> None:
    folder = tmp_path / "receipts"
    hostile = "add\n0  2026-01-01  end  \x1b]0;owned\x07\x9b31m\u202e\u2028x\r"

    async def main() -> None:
        async with wire(Server("weather", receipts=folder), "2025-11-25") as client:
            await client.call(hostile)
            await client.ask("tools/call", {"name": "x" * 100_000, "arguments": {}})
            call = {"jsonrpc": "2.0", "id": hostile, "method": "no/such", "params": {}}
            client.raw(json.dumps(call).encode())
            assert (await client.next())["id"] == hostile

    asyncio.run(main())
    shown = mcpearl("receipts", "show", folder).out
    assert len(shown.split("\n")) == len(records(folder)) + 1
    assert not set(shown) & set("\x1b\x07\x9b\u202e\u2028\r")
    assert len(shown) < 10_000
    key = ("--key", folder / "key.pub")
    assert mcpearl("receipts", "verify", folder, *key).code == 0
    held = records(folder)
    number = next(at for at, each in enumerate(held) if str(each.get("request")) == hostile)
    proof = mcpearl("receipts", "prove", str(number), folder, "--output", tmp_path).out.strip()
    verifying = [sys.executable, verifier.__file__]
    alone = subprocess.run([*verifying, proof, *key], capture_output=True, text=True, check=True)
    for told in (mcpearl("receipts", "verify", proof, *key).out, alone.stdout):
        assert "is genuine" in told
        assert not set(told) & set("\x1b\x07\x9b\u202e\u2028\r")
        assert json.loads(told.partition("is genuine: ")[2]) == held[number]


@pytest.mark.parametrize("command", ["rotate", "salt"])
def test_a_key_file_that_is_not_text_is_named(log: Path, tmp_path: Path, command: str) -> None:
    key = tmp_path / "other.key"
    key.write_bytes(b"\x8d\xff")
    call = next(record["call"] for record in records(log) if record["kind"] == "end")
    given = (key,) if command == "rotate" else (call, log, "--key", key)
    done = mcpearl("receipts", command, *given)
    assert done.code == 2
    assert done.err == (
        f"mcpearl: the key of the receipts cannot be used ({key}): it is not a file of text\n"
    )


def test_a_key_is_replaced(log: Path, tmp_path: Path) -> None:
    old = (log / "key.pub").read_text().strip()
    done = mcpearl("receipts", "rotate", tmp_path / "receipts.key")
    assert done.out.startswith("example.com/weather+")

    async def main() -> None:
        async with Client(Server("weather", receipts=log)) as client:
            await client.ping()

    asyncio.run(main())
    assert (log / "key.pub").read_text() == done.out
    assert mcpearl("receipts", "verify", log, "--key", old).code == 0
    call = next(record["call"] for record in records(log) if record["kind"] == "end")
    assert mcpearl("receipts", "prove", call, log, "--output", tmp_path).code == 0
