"""Verifies receipts. This file works alone: it needs Python and `cryptography`, nothing from mcpearl.

    python verifier.py receipts/ --key receipts.pub
    python verifier.py receipts/ --key receipts.pub --since checkpoint-of-last-month
    python verifier.py record.tlog-proof --key receipts.pub

It prints one line. The exit code is 0 if everything is as it was written, 1 if not, 2 if that cannot be
determined.
The format is described in docs/receipts.md.
"""

import argparse
import base64
import binascii
import json
import re
import sys
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

FORMAT = "mcpearl-receipts/1"
PROOF = "c2sp.org/tlog-proof@v1"
LONGEST = 16 * 1024  # bytes of a line
LARGEST_NOTE = 64 * 1024
NOTHING = bytes(32)  # stands for the record before the first
DASH = "\N{EM DASH} "


class Discrepancy(Exception):
    """Something is not as it was written; the message says what and where."""


class VerifierKey:
    """A key that heads may be signed with, from its text `name+id+key`."""

    def __init__(self, text: str) -> None:
        self.text = text.strip()
        if "PRIVATE+KEY+" in self.text:  # messages are kept in logs: it must not be in one
            raise ValueError(
                "a private key was given, and its public half is needed: `key.pub` in the folder"
            )
        try:
            self.name, id, material = self.text.split("+", 2)
            raw = _base64(material)
        except ValueError:
            raise ValueError(f"{self.text[:80]!r} is not a key of the form `name+id+key`") from None
        self.id = sha256(self.name.encode() + b"\n" + raw).digest()[:4]
        if raw[:1] != b"\x01" or len(raw) != 33 or self.id.hex() != id:
            raise ValueError(f"{self.text[:80]!r} is not an Ed25519 key with its id")
        self._verify = Ed25519PublicKey.from_public_bytes(raw[1:]).verify

    def has_signed(self, text: bytes, signature: bytes) -> bool:
        """Whether a signature was made with this key."""
        try:
            self._verify(signature, text)
        except InvalidSignature:
            return False
        return True


class SignedHead(NamedTuple):
    """A signed head of a log (c2sp.org/tlog-checkpoint)."""

    origin: str
    size: int
    root: bytes
    text: bytes
    signatures: list[tuple[str, bytes]]

    @classmethod
    def parse(cls, note: bytes) -> "SignedHead":
        """Read a signed note; raises `Discrepancy` if the text is not one."""
        if len(note) > LARGEST_NOTE:
            raise Discrepancy("it is too long for a signed head")
        try:
            text, separator, signed = note.decode().rpartition(f"\n\n{DASH}")
            origin, size, root, *more = text.split("\n")
            lines = (DASH + signed).split("\n")
            signatures = [_signature(line) for line in lines[:-1]]
            if not separator or lines[-1] or not origin or not re.fullmatch("0|[1-9][0-9]*", size):
                raise ValueError
            if len(size) > 18 or not all(more) or not signatures:
                raise ValueError
            return cls(origin, int(size), _hash(root), f"{text}\n".encode(), signatures)
        except ValueError:
            raise Discrepancy("it is not a signed head") from None

    def check(self, keys: list[VerifierKey], others: list[VerifierKey] | None = None) -> None:
        """Raise unless one of the keys has signed it and no signature by these keys is wrong.

        Args:
            keys: The keys that are trusted.
            others: Keys that may have signed it too; by default any, and that is not checked.
        """
        found, known = False, [*keys, *(others or ())]
        for name, signature in self.signatures:
            signers = [key for key in known if key.name == name and key.id == signature[:4]]
            if not all(key.has_signed(self.text, signature[4:]) for key in signers):
                raise Discrepancy(f"the signature of {name} is not valid")
            if others is not None and not signers:
                raise Discrepancy(f"it is not signed by a key that is trusted: {name}")
            found = found or any(key in keys for key in signers)
        if not found:
            by = ", ".join(f"{name}+{signature[:4].hex()}" for name, signature in self.signatures)
            raise Discrepancy(f"it is not signed by a key that is trusted, but by {by:.99}")
        if self.origin != keys[0].name:
            raise Discrepancy(f"it is of another log: {self.origin!r}")


def _signature(line: str) -> tuple[str, bytes]:
    dash, name, signature = line.split(" ")
    raw = _base64(signature)
    if f"{dash} " != DASH or not name or len(raw) < 5:
        raise ValueError
    return name, raw


def _base64(text: str) -> bytes:
    """Decode base64; raises unless it is in canonical form."""
    try:
        raw = base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from None
    if base64.b64encode(raw).decode() != text:
        raise ValueError("not canonical")
    return raw


def _hash(text: str) -> bytes:
    raw = _base64(text)
    if len(raw) != 32:
        raise ValueError("not a hash")
    return raw


# The tree of RFC 9162


def leaf_hash(entry: bytes) -> bytes:
    """Return the hash of a leaf."""
    return sha256(b"\x00" + entry).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Return the hash of two subtrees."""
    return sha256(b"\x01" + left + right).digest()


def add_leaf(subtrees: list[bytes], size: int, leaf: bytes) -> None:
    """Add a leaf to the complete subtrees of a tree with `size` leaves."""
    while size & 1:
        leaf = node_hash(subtrees.pop(), leaf)
        size >>= 1
    subtrees.append(leaf)


def root_of(subtrees: list[bytes]) -> bytes:
    """Return the root of a tree from its complete subtrees."""
    if not subtrees:
        return sha256(b"").digest()
    *larger, root = subtrees
    for subtree in reversed(larger):
        root = node_hash(subtree, root)
    return root


def root_from_path(leaf: bytes, index: int, size: int, path: list[bytes]) -> bytes:
    """Return the root that an inclusion proof leads to (RFC 9162, section 2.1.3.2)."""
    if index >= size:
        raise Discrepancy(f"record {index} is not in a log of {size}")
    node, last, root = index, size - 1, leaf
    for step in path:
        if last == 0:
            raise Discrepancy("the proof is too long")
        if node & 1 or node == last:
            root = node_hash(step, root)
            while not node & 1 and node:
                node, last = node >> 1, last >> 1
        else:
            root = node_hash(root, step)
        node, last = node >> 1, last >> 1
    if last:
        raise Discrepancy("the proof is too short")
    return root


# A folder


class Segment:
    """One file of records, and its heads."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.first = int(path.stem)

    def heads(self, *, is_last: bool) -> list[SignedHead]:
        """Return the heads in order, without an incomplete one at the very end of the log."""
        path = self.path.with_suffix(".heads")
        try:
            notes = path.read_bytes()
        except FileNotFoundError:
            raise Discrepancy(f"{path.name} is missing") from None
        pieces = notes.split(b"\n\n")  # text and signatures in turn
        rest = pieces[len(pieces) - 1 & ~1 :]
        if rest != [b""] and not (is_last and _is_torn_head(b"\n\n".join(rest))):
            raise Discrepancy(f"{path.name} does not end with a signed head")
        heads = []
        for number in range(0, len(pieces) - 2, 2):
            try:
                heads.append(
                    SignedHead.parse(pieces[number] + b"\n\n" + pieces[number + 1] + b"\n")
                )
            except Discrepancy as fault:
                raise Discrepancy(f"{path.name}, head {number // 2 + 1}: {fault}") from None
        return heads


def _has_contents(path: Path) -> bool:
    return not path.is_file() or path.stat().st_size > 0


def segment_files(folder: Path) -> list[Path]:
    """Return the files of records in order, without a gap even if more are begun meanwhile."""

    def listed() -> list[Path]:
        return sorted(path for path in folder.iterdir() if path.suffix == ".log")

    # Listing a folder may leave out a file that is made meanwhile, and not the one made after it.
    seen = listed()
    return [path for path in listed() if path <= seen[-1]] if seen else []


_TORN_HEAD = re.compile(
    rb"[^\n\x00-\x1f]*|[^\n\x00-\x1f]+\n([0-9]*|[0-9]+\n([A-Za-z0-9+/]{0,43}=?|[A-Za-z0-9+/]{43}=\n"
    rb"(\n(\xe2\x80\x94 [^\n\x00-\x20]+ [A-Za-z0-9+/]{91}=\n)*"
    rb"(\xe2?|\xe2\x80|\xe2\x80\x94 ?[^\n\x00-\x20]*|\xe2\x80\x94 [^\n\x00-\x20]+ "
    rb"([A-Za-z0-9+/]{0,91}=?|[A-Za-z0-9+/]{91}=\n)))?))"
)


def _is_torn_head(rest: bytes) -> bool:
    """Whether bytes are the beginning of a head, and not one that was changed."""
    return len(rest) < LARGEST_NOTE and _TORN_HEAD.fullmatch(rest) is not None


class Log:
    """Goes through a folder record by record, and compares it with its heads.

    Args:
        folder: The folder.
        keys: The keys that are trusted for its first records.
        since: A head of the log as it was before, which must be a part of it.
        partial: Whether the first files may be missing.
    """

    def __init__(
        self,
        folder: Path,
        keys: list[VerifierKey],
        since: SignedHead | None = None,
        *,
        partial: bool = False,
    ) -> None:
        self.folder = folder
        self.size = 0
        self.signed = 0
        self.first = 0
        self.torn = 0  # bytes of an incomplete record at the end
        self.new_key = ""  # the key that has replaced those that were given, if one has
        self.heads: list[SignedHead] = []
        self.subtrees: list[bytes] = []
        self._keys = keys
        self._since = since
        self._since_passed = False
        self._partial = partial
        self._previous = NOTHING
        self._key = ""  # the key that signs at this point, as the log says
        self._new_key = ""  # a key that a record names, until a head confirms it

    def verify(self, each: Callable[[int, bytes, bytes], None] | None = None) -> None:
        """Check everything; raises `Discrepancy` with the first place that is not as it was written.

        Args:
            each: Called with each record: its number, its hash, and what was hashed.
        """
        given = self._keys
        latest = self._latest()  # first: a log that is written meanwhile gets newer heads
        segments = self._segments()
        for segment in segments:
            is_last = segment is segments[-1]
            heads = segment.heads(is_last=is_last)
            self._check_segment(segment, heads, is_last=is_last, each=each)
        self._check_latest(latest)
        since = self._since
        if since is not None and not self._since_passed:
            self._check_since(since, [*given, *self._keys])
            if since.size < self.first:
                raise ValueError(
                    f"the head given with --since is of {since.size} records, and the first "
                    f"{self.first} are not here"
                )
            if since.size > self.size:
                raise Discrepancy(
                    f"records {self.size} to {since.size - 1} are missing at the end: "
                    f"the log had {since.size} records"
                )

    def _latest(self) -> bytes | None:
        """Return what is in the file `checkpoint`: a copy of the last head, for convenience."""
        path = self.folder / "checkpoint"
        if not path.exists() and not path.is_symlink():
            return None
        if not path.is_file():
            raise Discrepancy("checkpoint is not a file of this log")
        return path.read_bytes()

    def _check_latest(self, latest: bytes | None) -> None:
        if latest is None:
            return
        try:
            head = SignedHead.parse(latest)
        except Discrepancy as fault:
            raise Discrepancy(f"checkpoint: {fault}") from None
        if head not in self.heads:
            raise Discrepancy("checkpoint: it is not one of the heads of this log")

    def _segments(self) -> list[Segment]:
        try:
            heads = [path for path in self.folder.glob("*.heads") if _has_contents(path)]
            names = segment_files(
                self.folder
            )  # after the heads: a file is begun before it is signed
        except OSError as error:
            raise ValueError(f"{self.folder} cannot be read: {error.strerror}") from None
        wrong = [path for path in names if not re.fullmatch(r"[0-9]{16}", path.stem)]
        wrong += [path for path in [*names, *heads] if not path.is_file()]
        if wrong:
            raise Discrepancy(f"{wrong[0].name} is not a file of this log")
        for path in sorted(heads):
            if self._partial and names and path.stem < names[0].stem:
                continue
            if not path.with_suffix(".log").exists():
                raise Discrepancy(f"a file is missing: {path.stem}.log; {path.name} is there")
        if not names:
            raise ValueError(f"there are no receipts in {self.folder}")
        return [Segment(path) for path in names]

    def _check_segment(
        self,
        segment: Segment,
        heads: list[SignedHead],
        *,
        is_last: bool,
        each: Callable[[int, bytes, bytes], None] | None,
    ) -> None:
        with segment.path.open("rb") as file:
            header = file.readline(LONGEST)
            if is_last and segment.first == self.size and not heads and self._is_torn(header):
                self.torn = len(header)  # its writer was killed before it had written a record
                return
            self._check_header(segment, header)
            marks = self._marks(segment, heads)
            self._pass(marks)
            previous, size, subtrees = self._previous, self.size, self.subtrees
            next_mark = self._next(marks)
            for line in _lines(file):
                record = line[65:]
                leaf = leaf_hash(previous + record)
                if line[:65] != b"%b " % binascii.hexlify(leaf) or line[-1:] != b"\n":
                    self._previous = previous
                    if not line.endswith(b"\n") and is_last and len(line) < LONGEST:
                        self.torn = len(line)
                        break
                    raise Discrepancy(
                        _diagnosis(segment, self.size, previous, line, file, heads, subtrees)
                    )
                if each is not None:
                    each(size, leaf, previous + record)
                previous = leaf
                add_leaf(subtrees, size, leaf)
                self.size = size = size + 1
                if record.startswith(b'{"kind":"key"'):
                    self._note_key(segment, record)
                if size == next_mark:
                    self._pass(marks)
                    next_mark = self._next(marks)
            self._previous = previous
        if marks:
            raise Discrepancy(
                f"{segment.path.name}: records {self.size} to {min(marks) - 1} are missing at the end: a "
                f"signed head has {min(marks)}"
                + (
                    f", and {self.torn} bytes of an incomplete record are there"
                    if self.torn
                    else ""
                )
            )
        if not is_last and self.signed != self.size:
            raise Discrepancy(f"{segment.path.name} does not end with a signed head")

    def _check_header(self, segment: Segment, line: bytes) -> None:
        name = segment.path.name
        try:
            header = json.loads(line)
            tree = [bytes.fromhex(subtree) for subtree in header["tree"]]
            previous, key = bytes.fromhex(header["previous"]), header["key"]
            if not isinstance(key, str):
                raise TypeError
        except (ValueError, TypeError, KeyError, RecursionError):
            raise Discrepancy(
                f"{name}, line 1: it is not the beginning of a file of receipts"
            ) from None
        if not self.size and not self.heads and self._partial and segment.first:
            self.first = self.size = self.signed = segment.first
            self.subtrees, self._previous = tree, previous
        if segment.first != self.size:
            raise Discrepancy(
                f"{name}: it begins with record {segment.first}, and record {self.size} is "
                f"expected: {'a file is missing' if segment.first > self.size else 'it is there twice'}"
            )
        if not self._key and key not in [trusted.text for trusted in self._keys]:
            raise Discrepancy(
                f"{name}, line 1: the log begins with a key that was not given: {key[:99]!r}; a log "
                "whose key was replaced is verified with its first key"
            )
        self._key = self._key or key
        if line != self._header(self._key):
            raise Discrepancy(f"{name}, line 1: it was changed, or is of another log")

    def _header(self, key: str) -> bytes:
        """Return the first line that a file which begins here has."""
        expected = {
            "log": FORMAT,
            "origin": self._keys[0].name,
            "first": self.size,
            "previous": self._previous.hex(),
            "tree": [subtree.hex() for subtree in self.subtrees],
            "key": key,
        }
        return json.dumps(expected, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"

    def _is_torn(self, line: bytes) -> bool:
        """Whether this is the beginning of the first line of a file that begins here."""
        keys = [self._key] if self._key else [key.text for key in self._keys]
        return any(line != (whole := self._header(key)) and whole.startswith(line) for key in keys)

    def _marks(
        self, segment: Segment, heads: list[SignedHead]
    ) -> "dict[int, list[tuple[str, SignedHead]]]":
        """Return the heads to compare with, by the number of records that each covers."""
        marks: dict[int, list[tuple[str, SignedHead]]] = {}
        last = self.signed
        for number, head in enumerate(heads, 1):
            where = f"{segment.path.with_suffix('.heads').name}, head {number}"
            if head.size < max(last, segment.first):
                raise Discrepancy(f"{where}: it is not in order")
            last = head.size
            marks.setdefault(head.size, []).append((where, head))
        return marks

    def _next(self, marks: "dict[int, list[tuple[str, SignedHead]]]") -> int:
        """Return the number of records after which to compare the tree next; -1 if there is none."""
        due = list(marks)
        if self._since is not None and self._since.size > self.size:
            due.append(self._since.size)
        return min(due, default=-1)

    def _pass(self, marks: "dict[int, list[tuple[str, SignedHead]]]") -> None:
        """Compare the tree with the heads that cover as many records as it has."""
        root, trusted = b"", self._keys
        others = [VerifierKey(self._new_key)] if self._new_key else []
        for where, head in marks.pop(self.size, ()):
            root = root or root_of(self.subtrees)
            try:
                head.check(trusted, others)
            except Discrepancy as fault:
                raise Discrepancy(f"{where}: {fault}") from None
            if head.root != root:
                raise Discrepancy(
                    f"{where}: records {self.signed} to {self.size - 1} are not those that were signed"
                )
            self.signed = self.size
            self.heads.append(head)
            if self._new_key:
                self._keys = [VerifierKey(self._new_key)]
                self.new_key = self._key = self._new_key
                self._new_key = ""
        since = self._since
        if since is not None and since.size == self.size and not self._since_passed:
            self._since_passed = True
            self._check_since(since, [*trusted, *self._keys])
            if root_of(self.subtrees) != since.root:
                raise Discrepancy(
                    f"the first {self.size} records are not those of the head given with --since"
                )

    def _check_since(self, since: SignedHead, keys: list[VerifierKey]) -> None:
        try:
            since.check(keys)
        except Discrepancy as fault:
            raise Discrepancy(f"the head given with --since: {fault}") from None

    def _note_key(self, segment: Segment, record: bytes) -> None:
        """Note the key that a record names; it is trusted once the current key signs a head over it."""
        try:
            self._new_key = VerifierKey(json.loads(record)["key"]).text
        except (ValueError, TypeError, KeyError, RecursionError):
            raise Discrepancy(
                f"{segment.path.name}: record {self.size - 1} does not name a key"
            ) from None


def _lines(file: BinaryIO) -> Iterator[bytes]:
    while line := file.readline(LONGEST):
        yield line


def _diagnosis(
    segment: Segment,
    number: int,
    previous: bytes,
    line: bytes,
    file: BinaryIO,
    heads: list[SignedHead],
    subtrees: list[bytes],
) -> str:
    """Return what was done to a record that does not follow the one before it."""
    first_line = number - segment.first + 2
    where = f"{segment.path.name}, line {first_line}"
    if len(line) < 66 or not re.fullmatch(rb"[0-9a-f]{64} ", line[:65]) or line[-1:] != b"\n":
        return f"{where}: record {number} was changed: it is not a line of a record any more"
    following = file.readline(LONGEST)
    stored = bytes.fromhex(line[:64].decode())
    if _is_line(following) and _follows(bytes.fromhex(following[:64].decode()), line):
        return f"{where}: records {number} and {number + 1} were exchanged"
    if _follows(previous, following):
        return f"{where}: record {number} was inserted: the next one follows the one before it"
    if _follows(stored, following):
        if _matches_next_head(number, stored, following, file, heads, subtrees):
            return f"{where}: record {number} was changed: its hash is another one"
        return f"{where}: record {number} was changed, or records before it were removed"
    return f"{where}: record {number} was changed, removed or moved, and so was the next one"


def _is_line(line: bytes) -> bool:
    return re.fullmatch(rb"[0-9a-f]{64} ", line[:65]) is not None


def _follows(previous: bytes, line: bytes) -> bool:
    return bool(line) and line[:64] == binascii.hexlify(leaf_hash(previous + line[65:]))


def _matches_next_head(
    number: int,
    stored: bytes,
    following: bytes,
    file: BinaryIO,
    heads: list[SignedHead],
    subtrees: list[bytes],
) -> bool:
    """Whether the hashes stored in the file lead to the root in the next head."""
    subtrees = subtrees.copy()
    add_leaf(subtrees, number, stored)
    number += 1
    expected = {head.size: head.root for head in heads if head.size >= number}
    if number in expected:
        return root_of(subtrees) == expected[number]
    line = following
    while line and _is_line(line):
        add_leaf(subtrees, number, bytes.fromhex(line[:64].decode()))
        number += 1
        if number in expected:
            return root_of(subtrees) == expected[number]
        line = file.readline(LONGEST)
    return False


# One record


class Proof(NamedTuple):
    """A record with the proof that it is in a log (c2sp.org/tlog-proof)."""

    entry: bytes
    number: int
    path: list[bytes]
    head: SignedHead

    @classmethod
    def parse(cls, data: bytes) -> "Proof":
        """Read a proof; raises `Discrepancy` if the text is not one."""
        front, separator, note = data.partition(b"\n\n")
        try:
            first, extra, index, *path = front.decode().split("\n")
            number = index.removeprefix("index ")
            if first != PROOF or not separator or not extra.startswith("extra "):
                raise ValueError
            if index == number or not re.fullmatch("0|[1-9][0-9]{0,17}", number) or len(path) > 64:
                raise ValueError
            entry = _base64(extra.removeprefix("extra "))
            hashes = [_hash(line) for line in path]
        except ValueError:
            raise Discrepancy(
                f"it is not a proof of the form {PROOF} with the record in `extra`"
            ) from None
        return cls(entry, int(number), hashes, SignedHead.parse(note))

    @property
    def record(self) -> dict[str, Any]:
        """The record itself."""
        record = json.loads(self.entry[32:])
        if not isinstance(record, dict):
            raise Discrepancy("it is not a record")
        return record

    def verify(self, keys: list[VerifierKey]) -> None:
        """Raise `Discrepancy` unless the record is in the log that these keys sign."""
        self.head.check(keys)
        root = root_from_path(leaf_hash(self.entry), self.number, self.head.size, self.path)
        if root != self.head.root:
            raise Discrepancy(f"record {self.number} is not the one that was signed")


def load_keys(given: list[str]) -> list[VerifierKey]:
    """Return keys from their texts, or from files with one on each line."""
    keys = []
    for text in given:
        lines = [text] if "+" in text and not Path(text).exists() else _read(text).split()
        keys += [VerifierKey(line) for line in lines]
    if not keys:
        raise ValueError("there is no key to verify with")
    return keys


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from None


def verify(
    path: Path, keys: list[VerifierKey], since: Path | None = None, *, partial: bool = False
) -> str:
    """Verify a folder or a proof; return a line with the result. Raises `Discrepancy` or `ValueError`."""
    if not path.is_dir():
        if since is not None:
            raise ValueError("--since is compared with a folder: a proof has one head, its own")
        proof = Proof.parse(path.read_bytes())
        proof.verify(keys)
        record = proof.entry[32:].decode().strip()
        return f"record {proof.number} of {proof.head.origin} is genuine: {record}"
    head = None if since is None else _earlier_head(since)
    log = Log(path, keys, head, partial=partial)
    log.verify()
    line = f"{log.size - log.first} records of {keys[0].name} are as they were written"
    if log.first:
        line += f", from record {log.first} on"
    if log.new_key:
        line += f"; the key was replaced by {log.new_key}"
    if log.size > log.signed:
        line += f"; the last {log.size - log.signed} are not signed yet"
    if log.torn:
        line += f"; {log.torn} bytes of a torn record follow: its writer is writing, or was ended"
    return line


def _earlier_head(path: Path) -> SignedHead:
    """Read the file given with `--since`. If it is not a head, that says nothing about the log."""
    try:
        return SignedHead.parse(path.read_bytes())
    except Discrepancy as fault:
        raise ValueError(f"{path} cannot be compared with: {fault}") from None


def compare(proof: Path, contents: Path, salt: str | None) -> str:
    """Compare contents with the digests of a verified record; return which of them matches."""
    if salt is None:
        raise ValueError("contents are compared with their salt: --salt")
    if proof.is_dir():
        raise ValueError("contents are compared with a proof of one record, not with a folder")
    if not re.fullmatch("[0-9a-fA-F]+", salt) or len(salt) % 2:
        raise ValueError(f"{salt[:80]!r} is not a salt: it is not hexadecimal")
    digest = sha256(bytes.fromhex(salt) + contents.read_bytes()).hexdigest()
    record = Proof.parse(proof.read_bytes()).record
    for which in ("arguments", "result"):
        if record.get(which) == digest:
            return f"{contents} has its {which}"
    raise Discrepancy(f"{contents} has neither its arguments nor its result")


def printable(line: str) -> str:
    """Return a line without characters that act on a terminal: clients choose what is in records."""
    return "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in line)


def main(arguments: list[str] | None = None) -> int:
    """Verify what the command line names."""
    parser = argparse.ArgumentParser(prog="verifier", description="Verify receipts.")
    parser.add_argument("path", type=Path, help="the folder of a log, or a proof of one record")
    parser.add_argument("--key", action="append", required=True, help="a key, or a file with keys")
    parser.add_argument("--since", type=Path, help="a head of the log as it was before")
    parser.add_argument("--contents", type=Path, help="the arguments or result of a proven record")
    parser.add_argument("--salt", help="the salt of these contents")
    parser.add_argument("--partial", action="store_true", help="the first files may be missing")
    given = parser.parse_args(arguments)
    try:
        line = verify(given.path, load_keys(given.key), given.since, partial=given.partial)
        if given.contents is not None:
            line += f"; {compare(given.path, given.contents, given.salt)}"
        print(printable(line))
    except Discrepancy as fault:
        print(printable(f"NOT as written: {given.path}: {fault}"))
        return 1
    except (ValueError, OSError) as error:
        print(printable(f"cannot verify: {error}"))
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
