"""The files of a log: records in a hash chain, a Merkle tree over them, and signed heads of the tree.

The records are in files called segments. Any number of processes may append to one folder. Each append
takes a lock, reads what the others have appended since, and writes the state of the log to the file
`state`; so all of them write one chain and one tree. That file is only a shortcut: if it is missing or
outdated, it is rebuilt from the newest segment. The format is described in docs/receipts.md.
"""

import fcntl
import json
import os
from binascii import hexlify
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from itertools import chain
from pathlib import Path

import msgspec

from mcpearl.receipts.keys import KeyUnusable, SigningKey, checkpoint
from mcpearl.receipts.tree import Tree
from mcpearl.runtime import clock

FORMAT = "mcpearl-receipts/1"
NOTHING = bytes(32)  # stands for the record before the first
LONGEST = 16 * 1024  # bytes of a line
_leaf = sha256(b"\x00").copy
_HASH = 65  # a hash in hexadecimal, and a space
_STATE = 8192  # bytes of the file `state`


class LogBroken(Exception):
    """A log cannot be continued, because its files are not as they were written."""


class State(msgspec.Struct):
    """What a process has to know to append to a log."""

    segment: int
    """The number of the first record of the newest file."""
    offset: int
    """The size of that file."""
    last: int
    """Where its last record begins; 0 while it has none."""
    size: int
    """How many records the log has."""
    previous: str
    """The hash of the last record."""
    tree: list[str]
    """The roots of the complete subtrees."""
    signed: int
    """How many records the last signed head covers."""
    key: str
    """The verifier key of the key that signs now."""
    heads: int = 0
    """The size of the file of heads."""
    changed: int = 0
    """How many records there were when another key was last named; 0 if that is in an older file."""
    replaced: str = ""
    """The verifier key that signed before."""


class ReceiptLog:
    """A log that this process appends to.

    Args:
        folder: Where its files are; created if it does not exist.
        find_keys: Returns the keys; the first of them signs.
        rotate: Bytes after which a new segment is begun.
    """

    def __init__(
        self, folder: Path, find_keys: Callable[[], list[SigningKey]], rotate: int
    ) -> None:
        self.folder = folder
        self._lock_path = folder / "lock"
        self._find_keys = find_keys
        self._keys: list[SigningKey] = []
        self._rotate = rotate
        self._lock = self._state_file = self._file = self._heads = -1
        self._state = State(0, 0, 0, 0, NOTHING.hex(), [], 0, "")
        self._stored = b""  # `state` as this process last read or wrote it
        self._tree = Tree()
        self._previous = NOTHING
        self._torn = 0  # bytes of an incomplete record that was cut off
        self._spoiled = False  # whether a write failed and may have left something behind

    @property
    def unsigned(self) -> int:
        """How many records are not covered by a head yet."""
        return self._state.size - self._state.signed

    @property
    def key(self) -> SigningKey:
        """The key that this process signs with."""
        return self._keys[0]

    # Opening and closing

    def open(self) -> None:
        """Open the log, or begin a new one. Raises `LogBroken`, `KeyUnusable` or `OSError`."""
        self._keys = self._find_keys()
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = self._opened("lock")
        self._state_file = self._opened("state")
        with self._locked():
            if self._segments():
                self._refresh()
                self._check_key()
            else:
                self._state.key = self.key.vkey
                self._begin_segment()
                self._store()
            (self.folder / "key.pub").write_text(f"{self.key.vkey}\n")

    def close(self) -> None:
        """Close the files."""
        self._close_segment()
        for descriptor in (self._lock, self._state_file):
            if descriptor >= 0:
                os.close(descriptor)
        self._lock = self._state_file = -1

    def _opened(self, name: str) -> int:
        return os.open(self.folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._lock, fcntl.LOCK_UN)

    def _check_key(self) -> None:
        """Switch to the first key for signing, if the key that has signed so far is among the others."""
        current, new = self._state.key, self.key
        if current == new.vkey:
            return
        old = next((key for key in self._keys if key.vkey == current), None)
        if old is None:
            raise KeyUnusable(
                f"the receipts in {self.folder} are signed by {current}, and the key is {new.vkey}; "
                "to replace a key, put the new one in front of it, or begin another log"
            )
        note = {"kind": "key", "at": clock.now(), "key": new.vkey}
        state = self._state
        before = state.key, state.changed, state.replaced
        self._change_key(new.vkey, self._tree.size + 1)  # it is stored together with the record
        try:
            self._append([json.dumps(note, separators=(",", ":")).encode() + b"\n"])
        except OSError:
            state.key, state.changed, state.replaced = before
            raise
        self._sign()

    def _change_key(self, key: str, size: int) -> None:
        """Note that the last of `size` records names another key; the next head has two signatures."""
        state = self._state
        if state.changed <= state.signed:
            state.replaced = state.key
        state.key, state.changed = key, size

    # Appending

    def append(self, lines: list[bytes], *, durable: bool = False) -> None:
        """Append records, each a line of JSON that ends with a line feed.

        Raises `OSError` or `LogBroken`.
        """
        with self._locked():
            self._refresh()
            if self._torn:
                torn = {"kind": "torn", "at": clock.now(), "bytes": self._torn}
                lines = [json.dumps(torn, separators=(",", ":")).encode() + b"\n", *lines]
            if self._state.offset >= self._rotate:
                self._sign()
                self._begin_segment()
            self._append(lines)
            self._torn = 0
        if durable:
            os.fdatasync(self._file)

    def _append(self, lines: list[bytes]) -> None:
        previous = self._previous
        leaves: list[bytes] = []
        parts: list[bytes] = []
        leaf, hexadecimal = _leaf, hexlify
        add_leaf, add_part = leaves.append, parts.append
        for line in lines:
            state = leaf()
            state.update(previous + line)
            previous = state.digest()
            add_leaf(previous)
            add_part(hexadecimal(previous) + b" " + line)
        data = b"".join(parts)
        self._write(data)
        self._tree.extend(leaves)
        self._previous = previous
        self._state.offset += len(data)
        self._state.last = self._state.offset - len(lines[-1]) - _HASH
        self._store()

    def _write(self, data: bytes) -> None:
        try:
            _write_all(self._file, data)
        except OSError:
            self._spoiled = True
            self._undo()
            raise

    def _undo(self) -> None:
        """Cut off what a failed write left behind."""
        with suppress(OSError):
            os.ftruncate(self._file, self._state.offset)
            self._spoiled = False

    def _begin_segment(self) -> None:
        state = self._state
        first = self._tree.size
        name = segment_name(first)
        header = header_line(self.key.name, first, self._previous, self._tree.subtrees, state.key)
        if self._file >= 0:
            os.fdatasync(self._file)
        self._stored = b""  # if this fails, what there is has to be read again
        heads = self._heads_of(first)
        try:
            file = os.open(
                self.folder / f"{name}.log",
                os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC,
                0o600,
            )
        except OSError:
            os.close(heads)
            raise
        self._close_segment()
        self._file, self._heads = file, heads
        state.segment, state.offset, state.last, state.heads = first, 0, 0, 0
        self._write(header)
        state.offset = len(header)

    def _close_segment(self) -> None:
        for descriptor in (self._file, self._heads):
            if descriptor >= 0:
                os.close(descriptor)
        self._file = self._heads = -1

    def _heads_of(self, first: int) -> int:
        path = self.folder / f"{segment_name(first)}.heads"
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def _store(self) -> None:
        state, tree = self._state, self._tree
        state.size, state.previous = tree.size, self._previous.hex()
        state.tree = [subtree.hex() for subtree in tree.subtrees]
        self._stored = msgspec.json.encode(state).ljust(_STATE)
        os.pwrite(self._state_file, self._stored, 0)

    # Signing

    def sign(self, *, durable: bool = False) -> None:
        """Sign a head, if there are records that no head covers."""
        with self._locked():
            self._refresh()
            if self.unsigned:
                self._sign()
        if durable:
            os.fdatasync(self._heads)

    def _signer(self, vkey: str) -> SigningKey:
        """Return a key of the log; another process may have replaced the previous one."""
        for key in chain(self._keys, self._found_keys()):
            if key.vkey == vkey:
                return key
        raise KeyUnusable(f"the receipts in {self.folder} are signed by {vkey} by now")

    def _found_keys(self) -> Iterator[SigningKey]:
        yield from self._find_keys()  # once the known ones were looked at

    def _sign(self) -> None:
        tree, state = self._tree, self._state
        self._mend_heads()
        if state.signed == tree.size:
            return
        # The first head after a change of keys has both signatures, whichever process signs it.
        vkeys = [state.key] if state.changed <= state.signed else [state.replaced, state.key]
        keys = [self._signer(vkey) for vkey in vkeys]
        note = checkpoint(keys[0].name, tree.size, tree.root(), keys).encode()
        try:
            _write_all(self._heads, note + b"\n")
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._heads, state.heads)
            raise
        state.heads += len(note) + 1
        fresh = self.folder / "checkpoint.new"
        fresh.write_bytes(note)
        fresh.replace(self.folder / "checkpoint")
        state.signed = tree.size
        self._store()

    # Reading what is there

    def _segments(self) -> list[int]:
        return sorted(int(path.stem) for path in self.folder.glob("[0-9]*.log"))

    def _refresh(self) -> None:
        """Read what other processes, or an earlier run of this one, have appended."""
        self._check_place()
        stored = os.pread(self._state_file, _STATE, 0)
        if stored == self._stored and self._file >= 0:
            self._check_size()
            return
        try:
            state = msgspec.json.decode(stored, type=State)
            self._adopt(state)
        except (msgspec.MsgspecError, ValueError, OSError):
            self._recover()
        self._stored = stored

    def _check_place(self) -> None:
        """Raise `OSError` if the folder was removed or moved: what is written there would be lost."""
        if not os.path.samestat(self._lock_path.stat(), os.fstat(self._lock)):
            raise FileNotFoundError(
                f"another folder has taken the place of {self.folder}; restart to begin a log there"
            )

    def _check_size(self) -> None:
        size = os.fstat(self._file).st_size
        if size == self._state.offset:
            return
        if size < self._state.offset:
            self._recover()
        elif self._spoiled:
            self._undo()
        else:
            self._replay()

    def _adopt(self, state: State) -> None:
        """Continue from a stored state; raises if it does not match the files."""
        if state.segment != max(self._segments(), default=-1):
            raise ValueError("there is a newer file")
        self._use(state.segment)
        if os.fstat(self._file).st_size < state.offset:
            raise ValueError("it is of a longer file")
        mark = os.pread(self._file, 64, state.last) if state.last else state.previous.encode()
        if mark != state.previous.encode():
            raise ValueError("the last record is another one")
        self._state = state
        self._tree = Tree(state.size, [bytes.fromhex(subtree) for subtree in state.tree])
        self._previous = bytes.fromhex(state.previous)
        self._replay()

    def _use(self, segment: int) -> None:
        if self._file >= 0 and segment == self._state.segment:
            return
        self._close_segment()
        path = self.folder / f"{segment_name(segment)}.log"
        self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        self._heads = self._heads_of(segment)

    def _recover(self) -> None:
        """Rebuild the state from the newest segment."""
        segment = self._segments()[-1]
        self._use(segment)
        header, complete, _ = os.pread(self._file, LONGEST, 0).partition(b"\n")
        if not complete and len(header) < LONGEST:
            self._discard(segment)
            return
        try:
            start = msgspec.json.decode(header, type=_Header)
            tree = Tree(start.first, [bytes.fromhex(subtree) for subtree in start.tree])
            self._previous = bytes.fromhex(start.previous)
        except (msgspec.MsgspecError, ValueError) as error:
            raise LogBroken(
                f"{self.folder / segment_name(segment)}.log does not begin as a file of receipts does "
                f"({error}); move the folder away to begin another log"
            ) from None
        self._tree = tree
        self._state = State(
            *(segment, len(header) + 1, 0, tree.size, start.previous, start.tree),
            *(segment, start.key),
        )
        self._mend_heads()
        self._replay()
        if tree.size < self._state.signed:
            raise LogBroken(
                f"{self.folder / segment_name(segment)}.log was cut: it ends after {tree.size} records, "
                f"and {self._state.signed} were signed; move the folder away to begin another log"
            )

    def _discard(self, segment: int) -> None:
        """Remove a segment whose writer was killed before it had written the first line."""
        self._close_segment()
        (self.folder / f"{segment_name(segment)}.log").unlink()
        if self._segments():
            self._recover()
        else:
            self._state.key = self.key.vkey
            self._begin_segment()

    def _replay(self) -> None:
        """Read the records after those that are known; cut off one that was not written completely."""
        offset = self._state.offset
        size = os.fstat(self._file).st_size
        if size == offset:
            return
        self._mend_heads()
        leaves = []
        with os.fdopen(os.dup(self._file), "rb") as file:
            file.seek(offset)
            while (line := file.readline(LONGEST + _HASH)).endswith(b"\n"):
                state = _leaf()
                state.update(self._previous + line[_HASH:])
                if state.hexdigest().encode() + b" " != line[:_HASH]:
                    raise LogBroken(
                        f"{self.folder / segment_name(self._state.segment)}.log was changed at byte "
                        f"{offset}; verify it, and move the folder away to begin another log"
                    )
                self._previous = state.digest()
                leaves.append(self._previous)
                self._state.last = offset
                offset += len(line)
                if line[_HASH:].startswith(b'{"kind":"key"'):
                    size_then = self._tree.size + len(leaves)
                    self._change_key(json.loads(line[_HASH:])["key"], size_then)
        if size > offset:
            self._torn += size - offset
            os.ftruncate(self._file, offset)
        self._state.offset = offset
        self._tree.extend(leaves)
        self._state.size = self._tree.size
        self._stored = b""

    def _mend_heads(self) -> None:
        """Read heads that were signed after those that are known; cut off an incomplete one."""
        state = self._state
        size = os.fstat(self._heads).st_size
        if size == state.heads:
            return
        if size < state.heads:
            state.heads = 0  # some heads are gone, which the verifier reports
        notes = os.pread(self._heads, size - state.heads, state.heads)
        pieces = notes.split(b"\n\n")  # text and signatures in turn
        complete = pieces[: (len(pieces) - 1) // 2 * 2]
        state.heads += sum(len(piece) + 2 for piece in complete)
        if complete:
            state.signed = int(complete[-2].split(b"\n")[1])
        os.ftruncate(self._heads, state.heads)


class _Header(msgspec.Struct):
    log: str
    origin: str
    first: int
    previous: str
    tree: list[str]
    key: str


def header_line(origin: str, first: int, previous: bytes, tree: list[bytes], key: str) -> bytes:
    """Return the first line of a segment."""
    header = {
        "log": FORMAT,
        "origin": origin,
        "first": first,
        "previous": previous.hex(),
        "tree": [subtree.hex() for subtree in tree],
        "key": key,
    }
    return json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def segment_name(first: int) -> str:
    """Return the file name, without its suffix, of the segment that begins with record `first`."""
    return f"{first:016d}"


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
