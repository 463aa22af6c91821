"""The mcpearl server that agent libraries are tried on.

On stdio, or over HTTP at the port that `PORT` names; with `TOKEN`, only for those who bring it.
"""

import os
from typing import Literal

from mcpearl import Server
from mcpearl.auth import StaticTokens

token = os.environ.get("TOKEN")
app = Server("library", version="1", auth=StaticTokens({token: "library"}) if token else None)


@app.tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@app.tool
def greet(name: str, tone: Literal["warm", "formal"] = "warm") -> str:
    """Greet someone."""
    return f"{'Hello' if tone == 'warm' else 'Good day'}, {name}"


@app.tool
def fail() -> str:
    """Fail."""
    raise ValueError("on purpose")


if __name__ == "__main__":
    if "PORT" in os.environ:
        app.run("http", port=int(os.environ["PORT"]))
    else:
        app.run()
