"""A protected server, and what its answers say about authorization."""

import re
from typing import Any

from mcpearl import Context, Server
from tests.transports.raw_http import Raw, Response


def make_app(**options: Any) -> Server:
    """A server with tools and resources for every caller, and some that need scopes."""
    app = Server("protected", grace=1.0, list_ttl_ms=1000, **options)

    @app.tool
    async def whoami(ctx: Context) -> dict[str, Any]:
        """Return the caller."""
        principal = ctx.principal
        if principal is None:
            return {"subject": None}
        return {
            "subject": principal.subject,
            "client_id": principal.client_id,
            "issuer": principal.issuer,
            "scopes": sorted(principal.scopes),
            "department": principal.claims.get("department"),
        }

    @app.tool(scopes=["notes:write"])
    async def write() -> str:
        return "written"

    @app.tool
    async def reads(uri: str, ctx: Context) -> str:
        return str((await ctx.read_resource(uri))[0].text)  # type: ignore[union-attr]

    @app.tool
    async def ask(ctx: Context) -> str:
        schema = {"type": "object", "properties": {"city": {"type": "string"}}}
        answer = await ctx.elicit("Which city?", schema)
        return f"{answer.action} {answer.data}"

    @app.resource("notes://public")
    def public() -> str:
        return "for everybody"

    @app.resource("notes://secret", scopes=["notes:read"])
    def secret() -> str:
        return "for few"

    @app.resource("notes://secret/{name}", scopes=["notes:read"])
    def secrets(name: str) -> str:
        return f"for few: {name}"

    @app.prompt
    def hello() -> str:
        return "Hello."

    @app.prompt(scopes=["notes:read"])
    def review(name: str) -> str:
        return f"Review {name}."

    @app.complete("review", "name")
    def names(typed: str) -> list[str]:
        return ["secret"]

    return app


def bearer(token: str) -> dict[str, str | None]:
    return {"Authorization": f"Bearer {token}"}


def as_bearer(client: Raw, token: str) -> Raw:
    """The same client with a token."""
    other = Raw(client.port, client.path)
    other.headers = bearer(token)
    return other


def challenge(answer: Response) -> tuple[str, dict[str, str]]:
    """The scheme and the parameters of `WWW-Authenticate`."""
    scheme, _, rest = answer.headers["www-authenticate"].partition(" ")
    return scheme, dict(re.findall(r'(\w+)="([^"]*)"', rest))


def structured(answer: Response) -> Any:
    assert answer.status == 200, (answer.status, answer.body)
    return answer.json["result"]["structuredContent"]
