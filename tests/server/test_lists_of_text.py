"""Where a list is meant, text is refused: iterating over it would yield its characters."""

from collections.abc import Callable
from typing import Any

import pytest

from mcpearl import Http, Server
from mcpearl.auth import (
    ClientCredentials,
    JWTVerifier,
    OAuth,
    Principal,
    ResourceServer,
)

JWT: Any = {"issuer": "https://a.example", "audience": "https://b.example"}


@pytest.mark.parametrize(
    ("option", "make"),
    [
        ("scopes", lambda text: Server("any").tool(scopes=text)(lambda: 1)),
        ("scopes", lambda text: Server("any").resource("a://b", scopes=text)(lambda: "")),
        ("scopes", lambda text: Principal("ada", scopes=text)),
        ("scopes", lambda text: ResourceServer(JWTVerifier(**JWT), scopes=text)),
        ("admin", lambda text: ResourceServer(JWTVerifier(**JWT), implies={"admin": text})),
        (
            "authorization_servers",
            lambda text: ResourceServer(JWTVerifier(**JWT), authorization_servers=text),
        ),
        ("algorithms", lambda text: JWTVerifier(**JWT, algorithms=text)),
        ("scopes", lambda text: OAuth(scopes=text)),
        ("scopes", lambda text: ClientCredentials("id", client_secret="s", scopes=text)),
        ("state_keys", lambda text: Server("any", state_keys=text)),
        ("versions", lambda text: Server("any", versions=text)),
        ("allowed_hosts", lambda text: Http(allowed_hosts=text)),
    ],
)
def test_text_is_refused_by_the_same_sentence(option: str, make: Callable[[Any], Any]):
    with pytest.raises(TypeError) as raised:
        make("abc")
    assert str(raised.value) == f"`{option}` must be a list, as in `{option}=['abc']`"
