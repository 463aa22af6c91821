"""An authorization server of the tests' own, on loopback: keys, metadata, introspection, tokens.

Tokens are signed with PyJWT, so that another implementation than the one under test makes them.
"""

import asyncio
import base64
import hashlib
import json
import uuid
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from mcpearl.runtime import clock as source

AUDIENCE = "urn:test:mcp"
_CURVES = {"ES256": ec.SECP256R1, "ES384": ec.SECP384R1, "ES512": ec.SECP521R1}


class KeyPair:
    """A private key, and how its public half is published."""

    def __init__(self, algorithm: str = "ES256", kid: str | None = None, bits: int = 2048) -> None:
        self.algorithm = algorithm
        self.kid = kid
        self.private: Any
        if algorithm in _CURVES:
            self.private = ec.generate_private_key(_CURVES[algorithm]())
            jwk = ECAlgorithm.to_jwk(self.private.public_key(), as_dict=True)
        elif algorithm == "EdDSA":
            self.private = ed25519.Ed25519PrivateKey.generate()
            jwk = OKPAlgorithm.to_jwk(self.private.public_key(), as_dict=True)
        else:
            self.private = rsa.generate_private_key(65537, bits)
            jwk = RSAAlgorithm.to_jwk(self.private.public_key(), as_dict=True)
            jwk.pop("key_ops", None)
        self.jwk: dict[str, Any] = dict(jwk)
        if kid is not None:
            self.jwk["kid"] = kid

    def sign(self, claims: dict[str, Any], headers: dict[str, Any] | None = None) -> str:
        whole = {"kid": self.kid, **(headers or {})} if self.kid else headers
        return jwt.encode(claims, self.private, self.algorithm, whole)

    @property
    def thumbprint(self) -> str:
        """RFC 7638, by hand."""
        needed = {"EC": "crv kty x y", "RSA": "e kty n", "OKP": "crv kty x"}[self.jwk["kty"]]
        canonical = json.dumps({name: self.jwk[name] for name in needed.split()}, separators=",:")
        return b64(hashlib.sha256(canonical.encode()).digest())

    def proof(self, token: str, url: str, method: str = "POST", **changes: Any) -> str:
        """A DPoP proof; a claim that is given as None is left out."""
        headers = {"typ": "dpop+jwt", "jwk": self.jwk, **changes.pop("headers", {})}
        claims = {
            "jti": uuid.uuid4().hex,
            "htm": method,
            "htu": url,
            "iat": int(source.now()),
            "ath": b64(hashlib.sha256(token.encode()).digest()),
            **changes,
        }
        given = {name: value for name, value in claims.items() if value is not None}
        return jwt.encode(given, self.private, self.algorithm, headers)


class Issuer:
    """Issues tokens and answers questions about them."""

    def __init__(self) -> None:
        self.port = 0
        self.keys: dict[str, KeyPair] = {}
        self.current = ""
        self.asked: Counter[str] = Counter()  # requests by path
        self.active: dict[str, dict[str, Any]] = {}  # what introspection says, by token
        self.logins: list[str] = []  # Authorization headers of introspections
        self.broken = False
        self.delay = 0.0
        self.metadata_changes: dict[str, Any] = {}
        self.rotate()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def jwks_url(self) -> str:
        return f"{self.url}/keys"

    def rotate(self, algorithm: str = "ES256") -> str:
        """Sign with a new key from now on; the old ones stay published."""
        self.current = f"key-{len(self.keys) + 1}-{uuid.uuid4().hex[:6]}"
        self.keys[self.current] = KeyPair(algorithm, self.current)
        return self.current

    def claims(self, **changes: Any) -> dict[str, Any]:
        now = int(source.now())
        claims = {
            "iss": self.url,
            "sub": "alice",
            "aud": AUDIENCE,
            "client_id": "app",
            "iat": now,
            "exp": now + 300,
            **changes,
        }
        return {name: value for name, value in claims.items() if value is not None}

    def token(self, headers: dict[str, Any] | None = None, **changes: Any) -> str:
        """A signed access token; a claim that is given as None is left out."""
        return self.keys[self.current].sign(self.claims(**changes), headers)

    def _answer(self, path: str, head: bytes, body: bytes) -> tuple[int, Any]:
        match path:
            case "/keys":
                return 200, {"keys": [key.jwk for key in self.keys.values()]}
            case "/.well-known/openid-configuration":
                known = {"issuer": self.url, "jwks_uri": self.jwks_url}
                return 200, {**known, **self.metadata_changes}
            case "/introspect":
                lines = head.decode("latin-1").split("\r\n")
                self.logins += [line for line in lines if line.lower().startswith("authorization:")]
                token = parse_qs(body.decode())["token"][0]
                return 200, self.active.get(token, {"active": False})
        return 404, {}

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = [line for line in head.lower().split(b"\r\n") if b"content-length:" in line]
            body = await reader.readexactly(int(length[0].split(b":")[1])) if length else b""
            path = head.split()[1].decode()
            self.asked[path] += 1
            if self.delay:
                await asyncio.sleep(self.delay)
            status, answer = (500, {}) if self.broken else self._answer(path, head, body)
            data = json.dumps(answer).encode()
            writer.write(
                b"HTTP/1.1 %d Said\r\nContent-Type: application/json\r\n" % status
                + b"Content-Length: %d\r\nConnection: close\r\n\r\n" % len(data)
                + data
            )
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def issuing() -> AsyncIterator[Issuer]:
    """Run an issuer on a free port."""
    issuer = Issuer()
    server = await asyncio.start_server(issuer._serve, "127.0.0.1", 0)
    issuer.port = int(server.sockets[0].getsockname()[1])
    async with server:
        yield issuer


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def unsigned(header: dict[str, Any], claims: dict[str, Any], signature: bytes = b"") -> str:
    """A token made by hand, whatever libraries think of it."""
    parts = (json.dumps(header).encode(), json.dumps(claims).encode(), signature)
    return ".".join(b64(part) for part in parts)
