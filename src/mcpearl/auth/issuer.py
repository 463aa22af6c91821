"""What an authorization server publishes of itself (RFC 8414, OpenID Connect Discovery)."""

from typing import Any
from urllib.parse import urlsplit

from mcpearl.auth.fetch import FetchError, FetchFailed, FetchPolicy, fetch_json
from mcpearl.net.http_client.urls import origin_of


def well_known(issuer: str) -> list[str]:
    """Give where the metadata of an issuer may be, in the order to look."""
    parts = urlsplit(issuer)
    origin, path = origin_of(parts), parts.path.rstrip("/")
    found = [
        f"{origin}/.well-known/oauth-authorization-server{path}",
        f"{origin}/.well-known/openid-configuration{path}",
    ]
    return [*found, f"{origin}{path}/.well-known/openid-configuration"] if path else found


async def issuer_metadata(issuer: str, policy: FetchPolicy) -> dict[str, Any]:
    """Fetch the metadata of an issuer, or raise `FetchError`. It must speak of this very issuer."""
    reasons = []
    for url in well_known(issuer):
        try:
            fetched = await fetch_json(url, policy=policy)
        except FetchError as error:
            reasons.append(str(error))
            continue
        if fetched.status != 200 or not isinstance(fetched.body, dict):
            reasons.append(f"{url} answered {fetched.status}")
        elif fetched.body.get("issuer") != issuer:
            reasons.append(f"{url} speaks of another issuer")
        else:
            return fetched.body
    raise FetchFailed(f"no metadata of the issuer {issuer}: {'; '.join(reasons)}")
