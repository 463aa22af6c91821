"""A fixed list of tokens: for a few clients, without an authorization server."""

import hmac
import logging
import os
import re
import stat
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path

from mcpearl.auth.principal import Principal
from mcpearl.auth.server.verifier import TokenRefused
from mcpearl.runtime import clock

logger = logging.getLogger("mcpearl.auth")
_SHORTEST = 16
_TOKEN = re.compile(r"[A-Za-z0-9\-._~+/]+=*")


class StaticTokens:
    """Accepts a fixed list of tokens. Only their keyed hashes are kept in memory.

    Args:
        tokens: The principal of each token, or its subject.

    >>> StaticTokens({os.environ["ALICE_TOKEN"]: Principal("alice", scopes=["notes:read"])})
    >>> StaticTokens.from_env("MCP_TOKENS")  # lines of: token, name, scopes
    >>> StaticTokens.from_file("tokens.txt")
    """

    def __init__(self, tokens: Mapping[str, Principal | str]) -> None:
        self._key = clock.random_bytes(32)
        self._known: dict[bytes, tuple[bytes, Principal]] = {}
        if not tokens:
            raise ValueError("`StaticTokens` needs at least one token")
        for token, who in tokens.items():
            if len(token) < _SHORTEST or not _TOKEN.fullmatch(token):
                raise ValueError(
                    f"a token needs {_SHORTEST} or more letters, digits or `-._~+/`; "
                    "`python -c 'import secrets; print(secrets.token_urlsafe(32))'` makes one"
                )
            digest = self._digest(token)
            principal = who if isinstance(who, Principal) else Principal(who)
            self._known[digest] = digest, principal

    @classmethod
    def from_env(cls, name: str) -> "StaticTokens":
        """Read the tokens from an environment variable, one per line: `token name scope scope…`.

        Args:
            name: The name of the variable.
        """
        text = os.environ.get(name, "")
        if not text.strip():
            raise ValueError(f"the environment variable {name} holds no tokens")
        return cls(_parse(text, name))

    @classmethod
    def from_file(cls, path: str | Path) -> "StaticTokens":
        """Read the tokens from a file, one per line: `token name scope scope…`.

        Args:
            path: The file, which only its owner should be able to read.
        """
        path = Path(path)
        if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            logger.warning("%s can be read by other users; run `chmod 600` on it", path)
        return cls(_parse(path.read_text(), str(path)))

    async def verify(self, token: str) -> Principal:
        """Return the principal of a token. Raises `TokenRefused`.

        Args:
            token: The access token.
        """
        # The key is secret, so clients cannot choose the digest; the time of the lookup therefore
        # reveals nothing about any token.
        digest = self._digest(token)
        found, principal = self._known.get(digest, (b"", None))
        if principal is None or not hmac.compare_digest(found, digest):
            raise TokenRefused("it is not known")
        if principal.time_left == 0.0:
            raise TokenRefused("it has expired")
        return principal

    def _digest(self, token: str) -> bytes:
        return blake2b(token.encode(), key=self._key, digest_size=32).digest()


def _parse(text: str, where: str) -> dict[str, Principal]:
    found: dict[str, Principal] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) < 2:
            raise ValueError(
                f"{where}, line {number}: a token must be followed by its owner's name"
            )
        token, name, *scopes = words
        if token in found:
            raise ValueError(f"{where}, line {number}: this token is listed twice")
        found[token] = Principal(name, scopes=scopes)
    return found
