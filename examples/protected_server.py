"""A server that requires an access token.

    ISSUER=https://login.example.com AUDIENCE=https://mcp.example.com/mcp \
        python examples/protected_server.py

A request without a token is answered with the place to log in, so clients need no configuration.
"""

import os

from mcpearl import Context, Server
from mcpearl.auth import JWTVerifier

issuer = os.environ.get("ISSUER", "https://login.example.com")
audience = os.environ.get("AUDIENCE", "http://127.0.0.1:8000/mcp")
app = Server("protected", auth=JWTVerifier(issuer=issuer, audience=audience))
notes: list[str] = []


@app.tool
async def whoami(ctx: Context) -> str:
    """Return the caller's subject and issuer."""
    assert ctx.principal is not None
    return f"{ctx.principal.subject} of {ctx.principal.issuer}"


@app.tool(scopes=["notes:write"])
async def write(text: str) -> int:
    """Write a note. Only callers with the scope `notes:write` see this tool."""
    notes.append(text)
    return len(notes)


if __name__ == "__main__":
    app.run("http", port=int(os.environ.get("PORT", "8000")))
