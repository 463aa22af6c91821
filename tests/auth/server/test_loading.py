"""A program that does not use authorization does not load it."""

import subprocess
import sys

import pytest

import mcpearl.auth


def loaded(code: str) -> set[str]:
    """The modules a fresh interpreter has after running this."""
    script = f"{code}\nimport sys\nprint(' '.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    return set(done.stdout.split())


def test_a_server_without_auth_loads_none() -> None:
    modules = loaded(
        "from mcpearl import Server\napp = Server('x')\napp.add_tool(lambda: 1, name='y')"
    )
    assert not {name for name in modules if name.startswith(("mcpearl.auth", "joserfc"))}


def test_http_without_auth_loads_no_verifier() -> None:
    modules = loaded("from mcpearl import Server\nServer('x').asgi()")
    assert {name for name in modules if name.startswith("mcpearl.auth")} == {
        "mcpearl.auth",
        "mcpearl.auth.principal",
    }
    assert not {name for name in modules if name.startswith(("joserfc", "cryptography"))}


def test_verifiers_load_no_cryptography_before_they_need_it() -> None:
    modules = loaded(
        "from mcpearl import Server\nfrom mcpearl.auth import StaticTokens\n"
        "Server('x', auth=StaticTokens({'0123456789abcdef': 'me'})).asgi()"
    )
    assert not {name for name in modules if name.startswith(("joserfc", "cryptography"))}


def test_every_name_is_there() -> None:
    for name in mcpearl.auth.__all__:
        assert getattr(mcpearl.auth, name).__name__ == name
    assert dir(mcpearl.auth) == sorted(mcpearl.auth.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        mcpearl.auth.Nothing  # noqa: B018
