"""Whatever is done to the files of a log is found, and its place named."""

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from mcpearl.receipts import proofs, verifier
from mcpearl.receipts.keys import SigningKey
from mcpearl.receipts.keys import checkpoint as make_checkpoint
from mcpearl.receipts.log import LogBroken, ReceiptLog, State
from mcpearl.receipts.verifier import Log, SignedHead, load_keys
from tests.receipts.flips import flip, make_calls
from tests.receipts.logs import KEY, TRUSTED, copy, fault_of, lines, records, write

FIRST = "0000000000000000.log"
HEADS = "0000000000000000.heads"
NEW = SigningKey(KEY.name, b"1" * 32)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    write(tmp_path / "receipts")
    return tmp_path / "receipts"


def change(folder: Path, edit, name: str = FIRST) -> None:
    """Edit the lines of a file; the first line is the header, so line n + 1 is record n."""
    path = folder / name
    held = path.read_bytes().splitlines(keepends=True)
    edit(held)
    path.write_bytes(b"".join(held))


def flipped(path: Path) -> Iterator[int]:
    """Flip a bit of each byte of a file in turn, and yield the place of the byte meanwhile.

    In place: a disk is waited for when a file is cut to nothing and written again.
    """
    with path.open("r+b", buffering=0) as file:
        for place, byte in enumerate(file.read()):
            for value in (byte ^ 1 << place % 8, byte):
                file.seek(place)
                file.write(bytes([value]))
                if value != byte:
                    yield place


async def test_every_flipped_bit_of_a_servers_log_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "receipts"
    await make_calls(folder, 1000)
    keys = load_keys([str(folder / "key.pub")])
    whole = Log(folder, keys)
    whole.verify()
    assert whole.size >= 2002  # two for each call, and two for the run
    folder = copy(folder, tmp_path / "copy")
    chance = random.Random(2026)
    for _ in range(200):
        flip(folder, keys, chance)
    Log(folder, keys).verify()


def test_every_byte_of_a_small_log_counts(tmp_path: Path) -> None:
    write(tmp_path / "receipts", 2, batch=1, signed_every=1)
    folder = copy(tmp_path / "receipts", tmp_path / "copy")
    for name in (FIRST, "0000000000000000.heads", "checkpoint"):
        for place in flipped(folder / name):
            assert fault_of(folder), (name, place)
    Log(folder, TRUSTED).verify()


def test_every_byte_of_the_heads_counts_after_a_key_was_replaced(tmp_path: Path) -> None:
    """The head after the change has two signatures, and both count."""
    write(tmp_path / "receipts", 4)
    write(tmp_path / "receipts", 4, keys=[NEW, KEY])
    write(tmp_path / "receipts", 4, keys=[NEW, KEY])
    folder = copy(tmp_path / "receipts", tmp_path / "copy")
    for place in flipped(folder / HEADS):
        assert fault_of(folder), place
    Log(folder, TRUSTED).verify()


def test_a_whole_log_verifies(log: Path) -> None:
    whole = Log(log, TRUSTED)
    whole.verify()
    assert (whole.size, whole.signed, whole.torn) == (100, 100, 0)


@pytest.mark.parametrize("rotate", [1 << 30, 1000])
def test_a_log_that_is_written_meanwhile_verifies(tmp_path: Path, rotate: int) -> None:
    write(tmp_path, 20, rotate=rotate)
    written = []

    def write_more(number: int, leaf: bytes, entry: bytes) -> None:
        if number % 5 == 0 and len(written) < 4:
            written.append(number)
            write(tmp_path, 10, batch=5, signed_every=1, rotate=rotate)

    Log(tmp_path, TRUSTED).verify(write_more)
    assert len(written) == 4


def test_a_changed_record_is_named(log: Path) -> None:
    change(log, lambda held: held.__setitem__(43, held[43].replace(b"tools/call", b"tools/list")))
    assert fault_of(log) == f"{FIRST}, line 44: record 42 was changed: its hash is another one"


def test_a_removed_record_is_named(log: Path) -> None:
    change(log, lambda held: held.pop(43))
    assert "line 44: record 42 was changed, or records before it were removed" in fault_of(log)


def test_an_inserted_record_is_named(log: Path) -> None:
    change(log, lambda held: held.insert(43, held[7]))
    assert "line 44: record 42 was inserted" in fault_of(log)


def test_exchanged_records_are_named(log: Path) -> None:
    def exchange(held: list[bytes]) -> None:
        held[43], held[44] = held[44], held[43]

    change(log, exchange)
    assert "line 44: records 42 and 43 were exchanged" in fault_of(log)


def test_a_cut_tail_is_found_by_the_heads(log: Path) -> None:
    change(log, lambda held: held.pop())
    assert "records 99 to 99 are missing at the end: a signed head has 100" in fault_of(log)


def test_a_rewritten_log_is_found_by_the_heads(log: Path, tmp_path: Path) -> None:
    """All hashes are right again, but no key has signed them."""
    other = SigningKey(KEY.name, bytes(32))
    write(tmp_path / "other", 100, keys=[other])
    forged = tmp_path / "other" / FIRST
    path = log / FIRST
    header = path.read_bytes().splitlines(keepends=True)[0]
    held = forged.read_bytes().replace(b"tools/call", b"tools/list").splitlines(keepends=True)[1:]
    previous, made = verifier.NOTHING, [header]
    for line in held:
        previous = verifier.leaf_hash(previous + line[65:])
        made.append(previous.hex().encode() + b" " + line[65:])
    path.write_bytes(b"".join(made))
    assert fault_of(log) == (
        "0000000000000000.heads, head 1: records 0 to 9 are not those that were signed"
    )


def test_a_tail_cut_with_its_heads_is_found_with_an_earlier_head(tmp_path: Path) -> None:
    folder = tmp_path / "receipts"
    write(folder, 40)
    early = copy(folder, tmp_path / "early")
    write(folder, 60)
    since = SignedHead.parse((folder / "checkpoint").read_bytes())
    Log(folder, TRUSTED, since).verify()
    Log(folder, TRUSTED, SignedHead.parse((early / "checkpoint").read_bytes())).verify()
    Log(early, TRUSTED).verify()  # alone, it is a log that ends there
    assert fault_of(early, since=since) == (
        "records 40 to 99 are missing at the end: the log had 100 records"
    )


def test_another_log_is_found_with_an_earlier_head(tmp_path: Path) -> None:
    write(tmp_path / "one", 40)
    log = ReceiptLog(tmp_path / "two", lambda: [KEY], 1 << 30)
    log.open()
    log.append(lines(60, 7))
    log.sign()
    log.close()
    since = SignedHead.parse((tmp_path / "one" / "checkpoint").read_bytes())
    assert "are not those of the head given with --since" in fault_of(tmp_path / "two", since=since)


def test_missing_and_foreign_files_are_named(tmp_path: Path) -> None:
    folder = tmp_path / "receipts"
    write(folder, 200, rotate=5000)
    names = sorted(path.name for path in folder.glob("*.log"))
    assert len(names) > 3
    Log(folder, TRUSTED).verify()
    lost = copy(folder, tmp_path / "lost")
    (lost / names[2]).unlink()
    assert "a file is missing" in fault_of(lost)
    (lost / names[0]).unlink()
    (lost / names[1]).unlink()
    assert "a file is missing" in fault_of(lost)
    rest = Log(lost, TRUSTED, partial=True)
    rest.verify()
    assert rest.first == int(names[3][:16])
    assert rest.size == 200
    headless = copy(folder, tmp_path / "headless")
    (headless / names[1]).with_suffix(".heads").unlink()
    assert fault_of(headless) == f"{names[1][:16]}.heads is missing"
    (folder / "more.log").touch()
    assert fault_of(folder) == "more.log is not a file of this log"


@pytest.mark.parametrize("also", ["log", "log checkpoint", "heads", "heads checkpoint"])
def test_a_part_of_the_last_file_that_is_gone_is_named(tmp_path: Path, also: str) -> None:
    folder = tmp_path / "receipts"
    write(folder, 200, rotate=5000)
    last = max(folder.glob("*.log"))
    for name in also.split():
        (folder / "checkpoint" if name == "checkpoint" else last.with_suffix(f".{name}")).unlink()
    missing = f"{last.stem}.{also.split()[0]}"
    assert missing in fault_of(folder)
    assert "missing" in fault_of(folder)


def test_all_records_that_are_gone_are_named(log: Path) -> None:
    (log / FIRST).unlink()
    assert fault_of(log) == f"a file is missing: {FIRST}; {HEADS} is there"


@pytest.mark.parametrize("made", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to(path.name)])
@pytest.mark.parametrize("name", [FIRST, HEADS, "checkpoint"])
def test_what_is_not_a_file_is_named_and_not_read(log: Path, name: str, made) -> None:
    (log / name).unlink()
    made(log / name)
    assert name.partition(".")[0] in fault_of(log)


@pytest.mark.parametrize("size", [1, 100, verifier.LONGEST, 100_000])
def test_what_is_no_beginning_of_a_file_is_named(tmp_path: Path, size: int) -> None:
    """Only what the writer itself would have written there is taken for an interrupted write."""
    folder = tmp_path / "receipts"
    write(folder, 200, rotate=5000)
    last = max(folder.glob("*.log"))
    last.with_suffix(".heads").write_bytes(b"")
    (folder / "checkpoint").unlink()
    header = last.read_bytes().splitlines()[0]
    last.write_bytes(header)
    Log(folder, TRUSTED).verify()
    last.write_bytes((header + b"x" * size)[-size:])
    assert f"{last.name}, line 1" in fault_of(folder)


def test_a_signature_of_a_stranger_is_named(log: Path) -> None:
    path = log / HEADS
    notes = path.read_bytes().split(b"\n\n")
    stranger = SigningKey("example.com/stranger", bytes(32))
    notes[1] += b"\n" + stranger.signature(notes[0].decode() + "\n").encode()[:-1]
    path.write_bytes(b"\n\n".join(notes))
    assert "head 1: it is not signed by a key that is trusted" in fault_of(log)


def test_an_earlier_head_of_files_that_are_not_there_cannot_be_compared(tmp_path: Path) -> None:
    folder = tmp_path / "receipts"
    write(folder, 20)
    since = SignedHead.parse((folder / "checkpoint").read_bytes())
    write(folder, 200, rotate=5000)
    first, *others = sorted(folder.glob("*.log"))
    assert len(others) > 2
    first.unlink()
    Log(folder, TRUSTED, partial=True).verify()
    with pytest.raises(ValueError, match=r"is of 20 records, and the first .* are not here"):
        Log(folder, TRUSTED, since, partial=True).verify()


def test_a_torn_record_is_said_and_the_log_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "receipts"
    write(folder, 10)
    log = ReceiptLog(folder, lambda: [KEY], 1 << 30)
    log.open()
    log.append(lines(3))
    log.close()
    path = folder / FIRST
    path.write_bytes(path.read_bytes()[:-20])
    said = verifier.verify(folder, TRUSTED)
    assert "12 records" in said
    assert "the last 2 are not signed yet" in said
    assert "bytes of a torn record follow" in said
    write(folder, 5)
    assert verifier.verify(folder, TRUSTED).startswith("18 records")
    (torn,) = [record for record in records(folder) if record["kind"] == "torn"]
    assert torn["bytes"] > 0


@pytest.mark.parametrize("cut", [1, 2, 3, 50, 94, 95, 96, 97, 100, 120, 150, 190])
def test_a_torn_head_is_no_fault_and_the_log_goes_on(tmp_path: Path, cut: int) -> None:
    folder = tmp_path / "receipts"
    write(folder, 10, signed_every=100)
    (folder / "checkpoint").unlink()
    heads = folder / "0000000000000000.heads"
    heads.write_bytes(heads.read_bytes()[:-cut])
    assert Log(folder, TRUSTED).verify() is None
    write(folder, 10)
    whole = Log(folder, TRUSTED)
    whole.verify()
    assert whole.signed == whole.size == 20


@pytest.mark.parametrize("left", [0, 30])
@pytest.mark.parametrize("count", [0, 30])
def test_a_file_without_its_first_line_is_begun_again(
    tmp_path: Path, left: int, count: int
) -> None:
    """Its writer was killed while beginning it."""
    folder = tmp_path / "receipts"
    write(folder, count, rotate=1000)
    begun = max(folder.glob("*.log"))
    if count:
        assert begun.name != FIRST
        begun.with_suffix(".heads").write_bytes(b"")
        (folder / "checkpoint").unlink()
    begun.write_bytes(begun.read_bytes()[:left])
    if count:
        Log(folder, TRUSTED).verify()
    write(folder, 10)
    whole = Log(folder, TRUSTED)
    whole.verify()
    assert whole.signed == whole.size == int(begun.stem) + 10


def test_a_log_that_was_cut_is_not_continued(log: Path) -> None:
    path = log / FIRST
    path.write_bytes(path.read_bytes()[:-500])
    with pytest.raises(LogBroken, match=r"was cut: it ends after 9. records, and 100 were signed"):
        write(log, 10)


def test_a_log_is_continued_without_its_state(log: Path) -> None:
    (log / "state").unlink()
    write(log, 10)
    whole = Log(log, TRUSTED)
    whole.verify()
    assert whole.size == 110


def test_a_key_is_replaced_and_the_old_one_is_enough_to_verify(tmp_path: Path) -> None:
    folder = tmp_path / "receipts"
    new, newest = SigningKey(KEY.name, b"1" * 32), SigningKey(KEY.name, b"2" * 32)
    write(folder, 20, rotate=2000)
    write(folder, 20, rotate=2000, keys=[new, KEY])
    write(folder, 20, rotate=2000, keys=[newest, new, KEY])
    whole = Log(folder, TRUSTED)
    whole.verify()
    assert whole.size == whole.signed == 62
    assert [record["key"] for record in records(folder) if record["kind"] == "key"] == [
        new.vkey,
        newest.vkey,
    ]
    said = verifier.verify(folder, TRUSTED)
    assert said.endswith(f"as they were written; the key was replaced by {newest.vkey}")
    fault = fault_of(folder, keys=[verifier.VerifierKey(newest.vkey)])
    assert f"the log begins with a key that was not given: '{KEY.vkey}'" in fault
    assert "verified with its first key" in fault
    (proof,) = proofs.prove(folder, "3").values()
    with pytest.raises(verifier.Discrepancy, match=rf", but by {KEY.name}\+{newest.id.hex()}$"):
        verifier.Proof.parse(proof.encode()).verify(TRUSTED)
    verifier.Proof.parse(proof.encode()).verify([verifier.VerifierKey(newest.vkey)])


@pytest.mark.parametrize("state", ["before", "after", "lost"])
def test_a_key_that_was_named_and_has_not_signed_yet_is_replaced_all_the_same(
    tmp_path: Path, state: str
) -> None:
    """Its process was killed between the two; one that had started earlier signs next."""
    folder, keys = tmp_path / "receipts", [KEY]
    write(folder, 20)
    running = ReceiptLog(folder, lambda: keys, 1 << 30)
    running.open()
    heads = {name: (folder / name).read_bytes() for name in (HEADS, "checkpoint")}
    stored = (folder / "state").read_bytes()
    keys = [NEW, KEY]
    changing = ReceiptLog(folder, lambda: keys, 1 << 30)
    changing.open()
    changing.close()
    for name, data in heads.items():
        (folder / name).write_bytes(data)
    if state == "after":
        after = msgspec.json.decode((folder / "state").read_bytes(), type=State)
        after.signed, after.heads = 20, len(heads[HEADS])
        stored = msgspec.json.encode(after)
    (folder / "state").write_bytes(b"" if state == "lost" else stored)
    for start in range(20, 40, 10):
        running.append(lines(10, start))
        running.sign()
    running.close()
    write(folder, 10, keys=keys)
    whole = Log(folder, TRUSTED)
    whole.verify()
    assert whole.size == whole.signed == 51
    signers = [[signature[:4] for _, signature in head.signatures] for head in whole.heads[-3:]]
    assert signers == [[KEY.id, NEW.id], [NEW.id], [NEW.id]]


def test_a_head_of_a_later_key_is_a_part_of_a_log_that_the_first_key_verifies(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "receipts"
    write(folder, 20, rotate=2000)
    write(folder, 20, rotate=2000, keys=[NEW, KEY])
    kept = tmp_path / "kept"
    kept.write_bytes((folder / "checkpoint").read_bytes())
    write(folder, 20, rotate=2000, keys=[NEW, KEY])
    said = verifier.verify(folder, TRUSTED, kept)
    assert said.startswith("61 records of example.com/test are as they were written")
    other = SigningKey(KEY.name, b"3" * 32)
    for size in (41, 61, 70):
        forged = SignedHead.parse(make_checkpoint(KEY.name, size, bytes(32), [other]).encode())
        assert fault_of(folder, since=forged).startswith(
            "the head given with --since: it is not signed"
        )
    cut = SignedHead.parse(make_checkpoint(KEY.name, 70, bytes(32), [NEW]).encode())
    assert "records 61 to 69 are missing at the end" in fault_of(folder, since=cut)


@pytest.mark.parametrize("keys", [[KEY], [NEW, KEY]])
def test_every_beginning_of_a_head_at_the_end_is_taken_for_one_that_is_being_written(
    tmp_path: Path, keys: list[SigningKey]
) -> None:
    folder = tmp_path / "receipts"
    write(folder, 20)
    heads = folder / "0000000000000000.heads"
    before, checkpoint = heads.read_bytes(), (folder / "checkpoint").read_bytes()
    write(folder, 10, signed_every=100, keys=keys)
    added = heads.read_bytes()[len(before) :].partition(b"\n\n\n")[0]
    added = added[: added.index(b"\n\n", added.index(b"\n\n") + 2) + 1]
    (folder / "checkpoint").write_bytes(checkpoint)
    heads.write_bytes(before)
    with heads.open("ab", buffering=0) as file:
        for byte in added:
            Log(folder, TRUSTED).verify()
            file.write(bytes([byte]))


def test_records_that_are_being_written_are_shown_when_they_are_complete(tmp_path: Path) -> None:
    folder = tmp_path / "receipts"
    write(folder, 20)
    path = folder / FIRST
    whole = path.read_bytes()
    for cut in (1, 30, 100, 250):
        path.write_bytes(whole[:-cut])
        shown = []
        for each in proofs.records(folder):
            shown.append(each.number)
            path.write_bytes(whole)
        assert shown == list(range(len(shown)))
        assert len(shown) >= 18
    path.write_bytes(whole[:30])
    assert not list(proofs.records(folder))


def test_a_key_that_was_replaced_signs_no_more(tmp_path: Path) -> None:
    folder = tmp_path / "receipts"
    new = SigningKey(KEY.name, b"1" * 32)
    write(folder, 20)
    write(folder, 20, keys=[new, KEY])
    heads = folder / "0000000000000000.heads"
    pieces = heads.read_bytes().split(b"\n\n")
    forged = KEY.signature(pieces[-3].decode() + "\n").encode()
    heads.write_bytes(b"\n\n".join([*pieces[:-2], forged[:-1], b""]))
    (folder / "checkpoint").unlink()
    assert "it is not signed by a key that is trusted" in fault_of(folder)


def test_a_key_that_does_not_belong_to_the_log_is_refused(log: Path) -> None:
    from mcpearl.receipts.keys import KeyUnusable

    with pytest.raises(KeyUnusable, match="put the new one in front of it"):
        write(log, 1, keys=[SigningKey(KEY.name, bytes(32))])


def test_the_verifier_works_alone(log: Path, tmp_path: Path) -> None:
    """One file, in a Python that has nothing but `cryptography` to import besides its own library."""
    alone = tmp_path / "verify.py"
    alone.write_bytes(Path(verifier.__file__).read_bytes())
    program = (
        "import sys, runpy, importlib.abc\n"
        "class No(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name.split('.')[0] in ('mcpearl', 'msgspec'): raise ImportError(name)\n"
        "sys.meta_path.insert(0, No())\n"
        "sys.argv = sys.argv[1:]\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')\n"
    )

    def run(*arguments: str | Path) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-c", program, alone, *arguments],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            check=False,
        )
        assert not done.stderr
        return done.returncode, done.stdout.strip()

    said = "100 records of example.com/test are as they were written"
    assert run(log, "--key", KEY.vkey) == (0, said)
    assert run(log, "--key", log / "key.pub", "--since", log / "checkpoint") == (0, said)
    assert run(log, "--key", "nonsense+1+2")[0] == 2
    change(log, lambda held: held.pop(50))
    code, line = run(log, "--key", KEY.vkey)
    assert code == 1
    assert "\n" not in line
    assert "record 49" in line
