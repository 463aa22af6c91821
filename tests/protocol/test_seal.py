"""State that travels through a client and comes back whole, or not at all."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any

import pytest

from mcpearl.protocol.errors import LimitReached, McpError
from mcpearl.protocol.seal import Binding, Sealer, StateRefused, binding

KEY, OTHER_KEY, THIRD_KEY = b"k" * 32, b"o" * 32, b"t" * 32
CALL = binding("alice", "tools/call", "book", b'{"seat":"12A","count":2}')
PAYLOAD = b'{"answers":{"confirm":{"action":"accept"}}}'


def refusal(sealer: Sealer, token: str, bound: Binding = CALL, now: float = 0.0) -> str:
    with pytest.raises(StateRefused) as caught:
        sealer.open(token, bound, now)
    assert caught.value.code == -32602
    return str(caught.value.data["reason"])


def test_what_was_sealed_comes_back() -> None:
    sealer = Sealer([KEY], ttl=600)
    token = sealer.seal(PAYLOAD, CALL, now=1000.0)
    assert bytes(sealer.open(token, CALL, now=1001.0)) == PAYLOAD
    assert "confirm" not in token
    assert b"confirm" not in urlsafe_b64decode(token)


def test_the_same_state_never_seals_to_the_same_token() -> None:
    sealer = Sealer([KEY])
    assert sealer.seal(PAYLOAD, CALL, 0.0) != sealer.seal(PAYLOAD, CALL, 0.0)


def test_workers_that_share_a_key_open_each_others_states() -> None:
    token = Sealer([KEY]).seal(PAYLOAD, CALL, 0.0)
    assert bytes(Sealer([KEY]).open(token, CALL, 0.0)) == PAYLOAD


def test_without_keys_each_server_has_its_own() -> None:
    token = Sealer().seal(PAYLOAD, CALL, 0.0)
    assert "was not made by this process" in refusal(Sealer(), token)


def test_a_flipped_bit_anywhere_is_noticed() -> None:
    sealer = Sealer([KEY])
    raw = urlsafe_b64decode(sealer.seal(PAYLOAD, CALL, 0.0))
    for place in range(len(raw)):
        for bit in (0, 3, 7):
            broken = bytearray(raw)
            broken[place] ^= 1 << bit
            refusal(sealer, urlsafe_b64encode(broken).decode())


def test_any_other_character_anywhere_is_noticed() -> None:
    sealer = Sealer([KEY])
    token = sealer.seal(PAYLOAD, CALL, 0.0)
    for place, character in enumerate(token):
        for other in "AQgw_=!\u00e9":
            if other != character:
                refusal(sealer, token[:place] + other + token[place + 1 :])


def test_one_state_has_one_spelling() -> None:
    """Base64 decoders skip what they do not know and ignore the last bits."""
    sealer = Sealer([KEY])
    for size in range(3):
        token = sealer.seal(b'"%b"' % (b"x" * size), CALL, 0.0)
        for variant in (token + "\n", "!" + token, token[:9] + " " + token[9:], token + "===="):
            refusal(sealer, variant)
        bare = token.rstrip("=")
        for last in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_":
            if last != bare[-1]:
                refusal(sealer, bare[:-1] + last + token[len(bare) :])


def test_a_truncated_state_is_noticed() -> None:
    sealer = Sealer([KEY])
    token = sealer.seal(PAYLOAD, CALL, 0.0)
    for length in range(len(token)):
        refusal(sealer, token[:length])


@pytest.mark.parametrize(
    "token", ["", "=", "AAAA", "not base64 at all", "🔑", "\udcff", "a" * 5000]
)
def test_what_is_no_state_is_refused(token: str) -> None:
    assert "was not made by this server" in refusal(Sealer([KEY]), token)


def test_a_state_lasts_as_long_as_it_says() -> None:
    sealer = Sealer([KEY], ttl=600)
    token = sealer.seal(PAYLOAD, CALL, now=1000.0)
    sealer.open(token, CALL, now=1600.0)
    assert "expired" in refusal(sealer, token, now=1600.1)


@pytest.mark.parametrize(
    ("bound", "reason"),
    [
        (binding("bob", "tools/call", "book", b'{"seat":"12A","count":2}'), "another principal"),
        (binding(None, "tools/call", "book", b'{"seat":"12A","count":2}'), "another principal"),
        (binding(["alice"], "tools/call", "book", b'{"seat":"12A","count":2}'), "principal"),
        (binding("alice", "prompts/get", "book", b'{"seat":"12A","count":2}'), "another call"),
        (binding("alice", "tools/call", "cancel", b'{"seat":"12A","count":2}'), "another call"),
        (binding("alice", "tools/call", "book", b'{"seat":"12B","count":2}'), "another call"),
        (binding("alice", "tools/call", "book", b'{"seat":"12A","count":"2"}'), "another call"),
        (binding("alice", "tools/call", "book", b'{"seat":"12A"}'), "another call"),
        (binding("alice", "tools/call", "book", None), "another call"),
    ],
)
def test_a_state_fits_its_caller_and_its_call_only(bound: Binding, reason: str) -> None:
    sealer = Sealer([KEY])
    assert reason in refusal(sealer, sealer.seal(PAYLOAD, CALL, 0.0), bound)


@pytest.mark.parametrize(
    "arguments",
    [
        b'{"seat":"12A","count":2}',
        b'{"count":2,"seat":"12A"}',
        b' {\n "seat" : "12A",\t"count" : 2 }\r\n',
        b'{"seat":"\\u0031\\u0032A","count":2}',
        b'{"count":7,"seat":"12A","count":2}',
    ],
)
def test_how_arguments_are_spelled_does_not_matter(arguments: bytes) -> None:
    assert binding("alice", "tools/call", "book", arguments) == CALL


def test_no_arguments_and_empty_ones_are_the_same() -> None:
    assert (
        binding("a", "m", "n", None) == binding("a", "m", "n", b"") == binding("a", "m", "n", b"{}")
    )


def test_parts_of_a_binding_do_not_run_together() -> None:
    assert binding("a", "m", "n", b'"x"').call != binding("a", "m", 'n","x', None).call
    assert binding("a", "mn", "", None).call != binding("a", "m", "n", None).call


def test_nested_arguments_in_another_order_still_fit() -> None:
    one = binding(None, "m", "n", b'{"a":{"x":[{"p":1,"q":2}],"y":10000000000000000000000}}')
    other = binding(None, "m", "n", b'{"a":{"y":10000000000000000000000,"x":[{"q":2,"p":1}]}}')
    assert one == other


@pytest.mark.parametrize("arguments", [b'{"a":"\xff"}', b"{", b"[" * 10_000, b"1e999"])
def test_arguments_that_cannot_be_read_are_the_callers_mistake(arguments: bytes) -> None:
    with pytest.raises(McpError) as caught:
        binding("alice", "tools/call", "book", arguments)
    assert caught.value.code == -32602


def test_a_principal_may_be_any_json() -> None:
    claims: dict[str, Any] = {"sub": "alice", "aud": ["x"]}
    turned = dict(reversed(claims.items()))
    assert binding(claims, "m", "n", None) == binding(turned, "m", "n", None)


def test_keys_rotate() -> None:
    old = Sealer([KEY]).seal(PAYLOAD, CALL, 0.0)
    rotated = Sealer([OTHER_KEY, KEY])
    assert bytes(rotated.open(old, CALL, 0.0)) == PAYLOAD
    new = rotated.seal(PAYLOAD, CALL, 0.0)
    assert bytes(Sealer([OTHER_KEY]).open(new, CALL, 0.0)) == PAYLOAD
    assert "rotated out" in refusal(Sealer([KEY]), new)
    assert "rotated out" in refusal(Sealer([THIRD_KEY, OTHER_KEY]), old)


def test_a_token_under_the_id_of_another_key_is_noticed() -> None:
    one = urlsafe_b64decode(Sealer([KEY]).seal(PAYLOAD, CALL, 0.0))
    other = urlsafe_b64decode(Sealer([OTHER_KEY]).seal(PAYLOAD, CALL, 0.0))
    mixed = urlsafe_b64encode(other[:4] + one[4:]).decode()
    assert refusal(Sealer([KEY, OTHER_KEY]), mixed) == "was tampered with"


@pytest.mark.parametrize("size", [0, 16, 31, 33])
def test_a_key_has_its_size(size: int) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        Sealer([b"k" * size])


def test_too_much_state_is_refused_when_sealing() -> None:
    sealer = Sealer([KEY], max_size=400)
    sealer.seal(b'"%b"' % (b"x" * 50), CALL, 0.0)
    with pytest.raises(LimitReached, match=r"Limits\.max_request_state"):
        sealer.seal(b'"%b"' % (b"x" * 400), CALL, 0.0)


def test_too_much_state_is_refused_unread_when_opening() -> None:
    token = Sealer([KEY]).seal(b'"%b"' % (b"x" * 400), CALL, 0.0)
    assert "longer than any" in refusal(Sealer([KEY], max_size=400), token)
