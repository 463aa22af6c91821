"""A log is what docs/receipts.md says: read here with other packages, and nothing of mcpearl's reader.

`pymerkle` makes the tree of RFC 9162, `cryptography` checks signatures.
"""

import json
from base64 import b64decode
from hashlib import sha256, shake_256
from pathlib import Path
from typing import Any

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from pymerkle import InmemoryTree

from mcpearl import Client, Receipts, Server
from tests.cli.running import mcpearl


async def make_log(folder: Path) -> list[bytes]:
    """Have a server write a log of several files; return the contents that clients sent."""
    app = Server("weather", receipts=Receipts(folder, name="example.com/weather", rotate=5000))

    @app.tool
    async def forecast(city: str) -> str:
        return "sun"

    cities = [f"city {number}" for number in range(40)]
    for part in (cities[:20], cities[20:]):
        async with Client(app, telemetry=False, protocol="2025-11-25") as client:
            for city in part:
                await client.call_tool("forecast", {"city": city})
    params = ({"name": "forecast", "arguments": {"city": city}} for city in cities)
    return [json.dumps(each, separators=(",", ":")).encode() for each in params]


def entries_of(folder: Path) -> list[bytes]:
    """Return what the leaves of the tree are of, and check the chain on the way."""
    entries, previous = list[bytes](), bytes(32)
    files = sorted(folder.glob("*.log"))
    assert len(files) > 2
    for path in files:
        header, *lines = path.read_bytes().splitlines(keepends=True)
        start = json.loads(header)
        assert (start["first"], start["previous"]) == (len(entries), previous.hex())
        for line in lines:
            said, text = line.split(b" ", 1)
            entries.append(previous + text)
            previous = sha256(b"\x00" + entries[-1]).digest()
            assert said.decode() == previous.hex()
    return entries


def tree_of(entries: list[bytes]) -> InmemoryTree:
    tree = InmemoryTree(algorithm="sha256")
    for entry in entries:
        tree.append_entry(entry)
    return tree


def check_note(note: str, vkey: str) -> list[str]:
    """Check the signature of a note (c2sp.org/signed-note); return its lines."""
    name, key_id, encoded = vkey.split("+", 2)
    key = b64decode(encoded)
    assert sha256(name.encode() + b"\n" + key).digest()[:4].hex() == key_id
    assert key[0] == 1, "Ed25519"
    text, _, signatures = note.partition("\n\n")
    dash, signer, signature = signatures.strip().split(" ")
    assert (dash, signer) == ("\N{EM DASH}", name)
    signed = b64decode(signature)
    assert signed[:4].hex() == key_id
    Ed25519PublicKey.from_public_bytes(key[1:]).verify(signed[4:], text.encode() + b"\n")
    return text.split("\n")


async def test_the_root_of_another_tree_is_what_is_signed(tmp_path: Path) -> None:
    folder = tmp_path / "receipts"
    await make_log(folder)
    note, vkey = (folder / "checkpoint").read_text(), (folder / "key.pub").read_text().strip()
    origin, size, root = check_note(note, vkey)
    entries = entries_of(folder)
    assert (origin, int(size)) == ("example.com/weather", len(entries))
    assert b64decode(root) == tree_of(entries).get_root()
    with pytest.raises(InvalidSignature):
        check_note(note.replace(size, str(int(size) + 1), 1), vkey)
    entries[7] += b" "
    assert b64decode(root) != tree_of(entries).get_root()


async def test_another_tree_has_the_path_of_a_proof(tmp_path: Path) -> None:
    folder = tmp_path / "receipts"
    await make_log(folder)
    entries = entries_of(folder)
    tree, vkey = tree_of(entries), (folder / "key.pub").read_text().strip()
    call = json.loads(entries[30][32:])["call"]
    done = mcpearl("receipts", "prove", call, folder, "--output", tmp_path)
    assert done.code == 0, done.err
    proofs = list(tmp_path.glob("*.tlog-proof"))
    assert len(proofs) == 2
    for path in proofs:
        form, extra, index, rest = path.read_text().split("\n", 3)
        hashes, _, note = rest.partition("\n\n")
        assert form == "c2sp.org/tlog-proof@v1"
        number = int(index.removeprefix("index "))
        assert b64decode(extra.removeprefix("extra ")) == entries[number]
        _, size, root = check_note(note, vkey)
        assert b64decode(root) == tree.get_root()
        theirs = tree.prove_inclusion(number + 1, int(size))
        leaf = sha256(b"\x00" + entries[number]).digest()
        assert {leaf, *map(b64decode, hashes.split("\n"))} == set(theirs.path)


async def test_a_digest_is_made_with_the_salt_that_is_described(tmp_path: Path) -> None:
    folder = tmp_path / "receipts"
    sent = await make_log(folder)
    held = [json.loads(entry[32:]) for entry in entries_of(folder)]
    begun: list[dict[str, Any]] = [
        each for each in held if (each["kind"], each.get("name")) == ("begin", "forecast")
    ]
    assert len(begun) == len(sent)
    key = (tmp_path / "receipts.key").read_text().strip().split("+", 4)[4]
    secret = sha256(b"mcpearl receipts salts\n" + b64decode(key)[1:]).digest()
    for record, params in zip(begun, sent, strict=True):
        run, number = record["call"].rsplit("-", 1)
        block, place = divmod(int(number), 256)
        made = shake_256(secret + run.encode() + block.to_bytes(8, "big")).digest(8192)
        salt = made[place * 32 : place * 32 + 16]
        assert record["arguments"] == sha256(salt + params).hexdigest()
