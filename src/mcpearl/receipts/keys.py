"""The keys that sign the heads of a log, and the notes they sign (c2sp.org/signed-note).

A key is one line of text, `PRIVATE+KEY+<name>+<id>+<key>`, the format of other tools for signed notes. A
key file may hold several: the first signs, the others are those it replaced.
"""

import os
from base64 import b64decode, b64encode
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from mcpearl.runtime import clock

ENVIRONMENT = "MCPEARL_RECEIPTS_KEY"
_PREFIX = "PRIVATE+KEY+"
_ED25519 = b"\x01"


class KeyUnusable(ValueError):
    """A key that cannot sign receipts."""


class SigningKey:
    """An Ed25519 key with the name of the log it signs.

    Args:
        name: The name of the log.
        seed: The 32 bytes of the private key.
    """

    __slots__ = ("_key", "id", "name", "seed", "vkey")

    def __init__(self, name: str, seed: bytes) -> None:
        if not name or "+" in name or not name.isprintable() or any(map(str.isspace, name)):
            raise KeyUnusable(f"{name!r} cannot name a log: it must not contain spaces or `+`")
        self.name = name
        self.seed = seed
        self._key = Ed25519PrivateKey.from_private_bytes(seed)
        public = self._key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        self.id = sha256(name.encode() + b"\n" + _ED25519 + public).digest()[:4]
        self.vkey = f"{name}+{self.id.hex()}+{b64encode(_ED25519 + public).decode()}"

    @classmethod
    def new(cls, name: str | None = None) -> "SigningKey":
        """Generate a key; without a name, a random name is generated too."""
        return cls(name or f"mcpearl/{clock.random_bytes(8).hex()}", clock.random_bytes(32))

    @classmethod
    def parse(cls, text: str) -> "SigningKey":
        """Read a key from its line of text."""
        try:
            name, id, key = text.strip().removeprefix(_PREFIX).split("+", 2)
            material = b64decode(key, validate=True)
        except ValueError:
            name, id, material = "", "", b""
        if not text.strip().startswith(_PREFIX) or material[:1] != _ED25519 or len(material) != 33:
            raise KeyUnusable(f"it is not of the form `{_PREFIX}name+id+key` with an Ed25519 key")
        parsed = cls(name, material[1:])
        if parsed.id.hex() != id:
            raise KeyUnusable(f"the id of the key of {name} is {parsed.id.hex()}, not {id[:8]!r}")
        return parsed

    def __str__(self) -> str:
        return f"{_PREFIX}{self.name}+{self.id.hex()}+{b64encode(_ED25519 + self.seed).decode()}"

    def __repr__(self) -> str:
        return f"<SigningKey {self.vkey}>"

    def signature(self, text: str) -> str:
        """Return the line that signs the text of a note."""
        signed = b64encode(self.id + self._key.sign(text.encode())).decode()
        return f"\N{EM DASH} {self.name} {signed}\n"

    def salts(self) -> bytes:
        """Return the secret from which the salts of digests are derived."""
        return sha256(b"mcpearl receipts salts\n" + self.seed).digest()


def checkpoint(origin: str, size: int, root: bytes, keys: Sequence[SigningKey]) -> str:
    """Return the signed head of a log (c2sp.org/tlog-checkpoint)."""
    text = f"{origin}\n{size}\n{b64encode(root).decode()}\n"
    return text + "\n" + "".join(key.signature(text) for key in keys)


def find_keys(
    given: "str | Path | Sequence[str] | None", folder: Path, name: str | None
) -> list[SigningKey]:
    """Return the keys of a log, the one that signs first.

    Args:
        given: A key file, which is created if there is none; or the keys themselves as text. Without
            it, the environment variable `MCPEARL_RECEIPTS_KEY` is used, or else the file `<folder>.key`.
        folder: The log.
        name: The name of the log, for a new key.
    """
    if given is None and (lines := os.environ.get(ENVIRONMENT, "").split()):
        return parse_keys(lines, ENVIRONMENT)
    if given is None:
        given = folder.with_name(f"{folder.name}.key")
    if isinstance(given, str) and given.startswith(_PREFIX):
        given = given.split()
    if isinstance(given, (str, Path)):
        path = Path(given)
        if not path.exists():
            _create(path, SigningKey.new(name))
        return read_keys(path)
    return parse_keys(given, "the given key")


def read_keys(path: Path) -> list[SigningKey]:
    """Read the keys in a file, one per line."""
    try:
        lines = path.read_text().split()
    except UnicodeDecodeError:
        raise KeyUnusable(
            f"the key of the receipts cannot be used ({path}): it is not a file of text"
        ) from None
    return parse_keys(lines, str(path))


def parse_keys(lines: Sequence[str], source: str) -> list[SigningKey]:
    """Read keys, one per line; `source` says where they come from."""
    try:
        keys = [SigningKey.parse(line) for line in lines]
    except KeyUnusable as error:
        raise KeyUnusable(f"the key of the receipts cannot be used ({source}): {error}") from None
    if not keys:
        raise KeyUnusable(f"there is no key for the receipts in {source}")
    if any(key.name != keys[0].name for key in keys):
        raise KeyUnusable(f"the keys for the receipts have different names ({source})")
    return keys


def rotate(path: Path) -> SigningKey:
    """Put a new key in front of those in a key file, and return it."""
    keys = read_keys(path)
    new = SigningKey.new(keys[0].name)
    fresh = path.with_name(f"{path.name}.new")
    _write(fresh, [new, *keys])
    fresh.replace(path)
    return new


def _create(path: Path, key: SigningKey) -> None:
    """Write a key file that only its owner can read, unless another process has just done so."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.{clock.random_bytes(6).hex()}")
    _write(fresh, [key])
    try:
        os.link(fresh, path)
    except FileExistsError:
        pass
    finally:
        fresh.unlink()


def _write(path: Path, keys: Sequence[SigningKey]) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.writelines(f"{key}\n" for key in keys)
        file.flush()
        os.fsync(file.fileno())
