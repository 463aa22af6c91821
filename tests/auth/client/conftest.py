"""The world most tests of logging in take place in."""

import logging
from collections.abc import AsyncIterator

import pytest

from tests.auth.client.world import Authority, Guarded, authority, guarded
from tests.auth.logs import said_in


@pytest.fixture
async def issuer() -> AsyncIterator[Authority]:
    async with authority() as made:
        yield made


@pytest.fixture
async def server(issuer: Authority) -> AsyncIterator[Guarded]:
    async with guarded(issuer) as made:
        yield made


@pytest.fixture(autouse=True)
def nothing_secret_is_logged(
    caplog: pytest.LogCaptureFixture, request: pytest.FixtureRequest
) -> "AsyncIterator[None]":
    """Whatever a test does, no token, code, state or verifier reaches a log."""
    caplog.set_level(logging.DEBUG, logger="mcpearl")
    yield
    if "issuer" in request.fixturenames:
        authority = request.node.funcargs["issuer"]
        for secret in authority.secrets():
            assert secret not in said_in(caplog)
