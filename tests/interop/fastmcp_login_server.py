"""A server of FastMCP that is its own authorization server, and lets everybody in."""

import os

from fastmcp import FastMCP
from fastmcp.server.auth.auth import ClientRegistrationOptions
from fastmcp.server.auth.providers.in_memory import InMemoryOAuthProvider

PORT = int(os.environ["PORT"])

app = FastMCP(
    "fastmcp",
    auth=InMemoryOAuthProvider(
        base_url=f"http://127.0.0.1:{PORT}",
        client_registration_options=ClientRegistrationOptions(enabled=True, valid_scopes=["use"]),
        required_scopes=["use"],
    ),
)


@app.tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


if __name__ == "__main__":
    app.run(transport="http", port=PORT, show_banner=False)
