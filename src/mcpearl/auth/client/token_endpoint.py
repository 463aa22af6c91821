"""Requests to a token endpoint, with client authentication and, for bound tokens, a proof."""

from collections.abc import Mapping
from typing import Any

from mcpearl.auth.client.discovery import AuthServer, ServerMetadata
from mcpearl.auth.client.dpop import ProofKey
from mcpearl.auth.client.identity import ClientIdentity
from mcpearl.auth.client.token import Token, read_token
from mcpearl.auth.client.web import Web
from mcpearl.auth.fetch import Fetched
from mcpearl.protocol.errors import AuthorizationFailed, brief

_MAX_NONCES = 3  # attempts with a server that demands another nonce each time


class GrantRefused(AuthorizationFailed):
    """The authorization server refused; `error` is its error code."""

    def __init__(self, issuer: str, error: str, description: str) -> None:
        said = f" ({description})" if description else ""
        super().__init__(f"{issuer} refused to issue a token: {error}{said}")
        self.error = error


async def request_token(
    web: Web,
    place: AuthServer,
    identity: ClientIdentity | None,
    form: Mapping[str, str],
    requested: tuple[str, ...],
    key: ProofKey | None,
) -> Token:
    """Request a token for a resource; the form contains the grant."""
    members = {**form, "resource": place.resource}
    body = await post_form(web, place.server, identity, members, key)
    return read_token(body, place.server.issuer, place.resource, requested)


async def post_form(
    web: Web,
    server: ServerMetadata,
    identity: ClientIdentity | None,
    form: Mapping[str, str],
    key: ProofKey | None = None,
) -> Any:
    """Send a form to a token endpoint, again if the server demands its nonce in the proof."""
    members, headers = ({}, []) if identity is None else identity.authenticate(server)
    endpoint = server.token_endpoint
    for _ in range(_MAX_NONCES):
        proof = [] if key is None else [key.proof("POST", endpoint)]
        fetched = await web.fetch(
            endpoint, method="POST", form={**form, **members}, headers=[*headers, *proof]
        )
        renewed = key is not None and key.learn(endpoint, fetched.headers)
        if not (renewed and _error(fetched) == "use_dpop_nonce"):
            break
    return _good(fetched, server.issuer)


def _good(fetched: Fetched, issuer: str) -> Any:
    """Return the body of a successful response, or raise the error of another."""
    if fetched.status == 200:
        return fetched.body
    error = _error(fetched)
    if error is None:
        raise AuthorizationFailed(f"{issuer} answered with HTTP status {fetched.status}")
    raise GrantRefused(issuer, plain(error), plain(fetched.body.get("error_description") or ""))


def _error(fetched: Fetched) -> str | None:
    error = fetched.body.get("error") if isinstance(fetched.body, dict) else None
    return error if isinstance(error, str) and fetched.status >= 400 else None


def plain(text: object) -> str:
    """Shorten text of a server, and remove characters that could disturb a terminal or log."""
    return brief("".join(c for c in str(text) if c.isprintable()), 200)
