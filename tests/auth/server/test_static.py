"""Tokens from a list, a variable or a file."""

import asyncio
import logging
from pathlib import Path

import pytest

from mcpearl.auth import Principal, StaticTokens, TokenRefused
from mcpearl.runtime import clock as source
from mcpearl.testing.clock import MovableClock
from tests.auth.server.protected import as_bearer, make_app, structured
from tests.transports.raw_http import serving

ALICE = "alice-0123456789abcdef"
BOB = "bob-0123456789abcdef"


async def test_over_http() -> None:
    tokens = StaticTokens({ALICE: Principal("alice", scopes=["notes:write"]), BOB: "bob"})
    async with serving(make_app(), auth=tokens) as client:
        assert structured(await as_bearer(client, ALICE).call("write")) == {"result": "written"}
        assert structured(await as_bearer(client, BOB).call("whoami"))["subject"] == "bob"
        assert (await as_bearer(client, BOB).call("write")).status == 403
        for wrong in (ALICE[:-1], ALICE + "x", ALICE.upper(), "x" * len(ALICE)):
            assert (await as_bearer(client, wrong).call("whoami")).status == 401
        where = "/.well-known/oauth-protected-resource"
        assert (await client.request("GET", {}, path=where)).status == 404
        # There is nowhere to log in, so the challenge does not send anybody there.
        assert (await client.call("whoami")).headers["www-authenticate"] == "Bearer"


async def test_a_token_whose_principal_expires(clock: MovableClock) -> None:
    tokens = StaticTokens({ALICE: Principal("alice", expires=source.now() + 60), BOB: "bob"})
    async with serving(make_app(), auth=tokens) as client:
        assert (await as_bearer(client, ALICE).call("whoami")).status == 200
        clock.move(61)
        answer = await as_bearer(client, ALICE).call("whoami")
        assert answer.status == 401
        assert "it has expired" in answer.json["error"]["message"]
        assert (await as_bearer(client, BOB).call("whoami")).status == 200


async def test_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKENS", f"\n# people\n{ALICE} alice notes:read notes:write\n{BOB} bob\n")
    tokens = StaticTokens.from_env("TOKENS")
    alice = await tokens.verify(ALICE)
    assert (alice.subject, alice.scopes) == ("alice", {"notes:read", "notes:write"})
    assert (await tokens.verify(BOB)).scopes == frozenset()
    monkeypatch.delenv("TOKENS")
    with pytest.raises(ValueError, match="TOKENS holds no tokens"):
        StaticTokens.from_env("TOKENS")


async def test_from_a_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "tokens.txt"
    path.write_text(f"{ALICE} alice\n")
    path.chmod(0o600)
    with caplog.at_level(logging.WARNING):
        tokens = StaticTokens.from_file(path)
        assert caplog.text == ""
        path.chmod(0o644)
        StaticTokens.from_file(str(path))
    assert "can be read by other users" in caplog.text
    assert ALICE not in caplog.text
    assert (await tokens.verify(ALICE)).subject == "alice"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("short x", "16 or more"),
        ("has,commas,in,it,0123456789 x", "16 or more"),
        (ALICE, "line 1: a token must be followed by"),
        (f"{ALICE} a\n{ALICE} b", "line 2: this token is listed twice"),
        ("# nothing", "at least one token"),
    ],
)
def test_a_list_that_is_wrong(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "tokens.txt"
    path.write_text(text)
    with pytest.raises(ValueError, match=reason) as error:
        StaticTokens.from_file(path)
    assert ALICE not in str(error.value)


def test_the_tokens_themselves_are_not_kept() -> None:
    tokens = StaticTokens({ALICE: "alice"})
    assert ALICE not in repr(vars(tokens))
    assert ALICE.encode() not in b"".join(tokens._known)


async def test_each_process_hashes_with_a_key_of_its_own() -> None:
    """So an attacker cannot work out which token would be found, or nearly found."""
    one, other = StaticTokens({ALICE: "alice"}), StaticTokens({ALICE: "alice"})
    assert set(one._known) != set(other._known)
    with pytest.raises(TokenRefused):
        await asyncio.wait_for(one.verify("é" * 20), 30)
