"""The metadata of an authorization server (RFC 8414, OpenID Connect Discovery)."""

from typing import Any
from urllib.parse import urlsplit

from mcpearl.auth.fetch import FetchError, FetchFailed, FetchPolicy, fetch_json
from mcpearl.net.http_client.urls import origin_of


def well_known(issuer: str) -> list[str]:
    """Return the URLs where an issuer's metadata may be, in the order to try them."""
    parts = urlsplit(issuer)
    origin, path = origin_of(parts), parts.path.rstrip("/")
    found = [
        f"{origin}/.well-known/oauth-authorization-server{path}",
        f"{origin}/.well-known/openid-configuration{path}",
    ]
    return [*found, f"{origin}{path}/.well-known/openid-configuration"] if path else found


async def issuer_metadata(issuer: str, policy: FetchPolicy) -> dict[str, Any]:
    """Fetch the metadata of an issuer, which must name that issuer. Raises `FetchError`."""
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
            reasons.append(f"{url} is the metadata of another issuer")
        else:
            return fetched.body
    raise FetchFailed(f"the metadata of the issuer {issuer} was not found: {'; '.join(reasons)}")
