"""Signed notes agree with the examples of c2sp.org/signed-note, and are read strictly."""

import pytest

from mcpearl.receipts.keys import KeyUnusable, SigningKey, checkpoint, find_keys, parse_keys, rotate
from mcpearl.receipts.verifier import Discrepancy, SignedHead, VerifierKey
from tests.receipts.logs import KEY, TRUSTED

VKEY = "example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k"
TEXT = b"This is an example message.\n"
SIGNATURE = (
    "Uw2QOkn8srV1yJGh2VYRlL1Tnagv1YEq6TfXppzi2ONncAlTgK7Ztg1ERYNZXsYjOBH3mFXmRKuwHjG1Yu72IneyaQM="
)


def test_the_example_of_the_specification_verifies() -> None:
    from base64 import b64decode

    key, signature = VerifierKey(VKEY), b64decode(SIGNATURE)
    assert (key.name, key.id) == ("example.com/foo", signature[:4])
    assert key.has_signed(TEXT, signature[4:])
    assert not key.has_signed(TEXT + b"\n", signature[4:])


def test_the_checkpoint_of_the_specification_is_read() -> None:
    note = (
        "example.com/behind-the-sofa\n20852163\nCsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n\n"
        "\N{EM DASH} example.com/behind-the-sofa Az3grlgtzPICa5OS8npVmf1Myq/5IZniMp+ZJurmRDeOoRDe4U"
        "RYN7u5/Zhcyv2q1gGzGku9nTo+zyWE+xeMcTOAYQ8=\n"
    )
    head = SignedHead.parse(note.encode())
    assert (head.origin, head.size) == ("example.com/behind-the-sofa", 20852163)
    with pytest.raises(Discrepancy, match="not signed by a key that is trusted"):
        head.check(TRUSTED)


def test_what_is_signed_verifies_with_several_signatures() -> None:
    new = SigningKey(KEY.name, bytes(32))
    note = checkpoint(KEY.name, 7, bytes(32), [KEY, new]).encode()
    head = SignedHead.parse(note)
    head.check(TRUSTED)
    head.check([VerifierKey(new.vkey)])
    assert str(SigningKey.parse(str(KEY))) == str(KEY)


def test_every_flipped_bit_of_a_head_is_found() -> None:
    note = checkpoint(KEY.name, 7, bytes(range(32)), [KEY]).encode()
    for place in range(len(note) * 8):
        changed = bytearray(note)
        changed[place // 8] ^= 1 << place % 8
        with pytest.raises(Discrepancy):
            SignedHead.parse(bytes(changed)).check(TRUSTED)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "not of the form"),
        ("PRIVATE+KEY+a+b", "not of the form"),
        (str(KEY)[:-4], "not of the form"),
        (str(KEY).replace("test+", "other+"), "the id of the key"),
        (str(KEY).replace("+", " ", 3), "not of the form"),
    ],
)
def test_a_key_that_cannot_be_used_is_named(text: str, why: str) -> None:
    with pytest.raises(KeyUnusable, match=why):
        parse_keys([text], "a test")


def test_a_key_file_is_made_once_for_its_owner_only(tmp_path, monkeypatch) -> None:
    folder = tmp_path / "receipts"
    (made,) = find_keys(None, folder, "example.com/weather")
    file = tmp_path / "receipts.key"
    assert made.name == "example.com/weather"
    assert file.stat().st_mode & 0o777 == 0o600
    assert [str(key) for key in find_keys(None, folder, None)] == [str(made)]
    new = rotate(file)
    assert file.stat().st_mode & 0o777 == 0o600
    assert [key.vkey for key in find_keys(str(file), folder, None)] == [new.vkey, made.vkey]
    monkeypatch.setenv("MCPEARL_RECEIPTS_KEY", str(KEY))
    assert [key.vkey for key in find_keys(None, folder, None)] == [KEY.vkey]
    assert [p.name for p in tmp_path.iterdir()] == ["receipts.key"]
    monkeypatch.setenv("MCPEARL_RECEIPTS_KEY", str(file))
    with pytest.raises(KeyUnusable, match=r"\(MCPEARL_RECEIPTS_KEY\): it is not of the form"):
        find_keys(None, folder, None)


def test_keys_of_different_logs_do_not_go_together() -> None:
    with pytest.raises(KeyUnusable, match="different names"):
        parse_keys([str(KEY), str(SigningKey("example.com/other", bytes(32)))], "a test")
