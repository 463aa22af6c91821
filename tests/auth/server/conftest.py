"""What the tests of a protected server share. No token may ever show up in a log."""

import logging
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.auth.logs import said_in
from tests.auth.server.issuer import Issuer, KeyPair, issuing


@pytest.fixture(autouse=True)
def no_token_is_logged(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Look through everything that was logged for what was signed."""
    made: list[str] = []
    sign, proof = KeyPair.sign, KeyPair.proof

    def signing(*args: object, **options: object) -> str:
        made.append(sign(*args, **options))  # type: ignore[arg-type]
        return made[-1]

    def proving(*args: object, **options: object) -> str:
        made.append(proof(*args, **options))  # type: ignore[arg-type]
        return made[-1]

    monkeypatch.setattr(KeyPair, "sign", signing)
    monkeypatch.setattr(KeyPair, "proof", proving)
    with caplog.at_level(logging.DEBUG):
        yield
    said = said_in(caplog)
    for token in made:
        for part in token.split(".")[1:]:
            assert part not in said


@pytest.fixture
async def issuer() -> AsyncIterator[Issuer]:
    async with issuing() as running:
        yield running
