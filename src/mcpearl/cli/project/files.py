"""The files of a new project, as text; `NAME` stands for its package."""

from mcpearl._version import __version__

_SERVER = '''"""The server of NAME."""

from typing import Annotated

from mcpearl import Context, Server

app = Server("NAME", version="0.1.0", instructions="Adds numbers, and greets people.")


@app.tool
async def add(
    a: Annotated[int, "The first number."],
    b: Annotated[int, "The second number."],
) -> int:
    """Add two numbers."""
    return a + b


@app.tool
async def greet(name: Annotated[str, "The person to greet."], *, ctx: Context) -> str:
    """Greet somebody."""
    await ctx.info(f"greeting {name}")
    return f"Hello {name}!"


@app.resource("info://about")
def about() -> str:
    """What this server is."""
    return "A server that adds numbers and greets people."


@app.prompt
def introduce(name: str) -> str:
    """Have a model introduce somebody."""
    return f"Introduce {name} in two sentences."


def main() -> None:
    """Serve on stdio, or on what MCPEARL_TRANSPORT names."""
    app.run()


if __name__ == "__main__":
    main()
'''

_TEST = '''"""The server of NAME, called as a client would. `mcp_client` is connected to it."""

import pytest

from mcpearl import Client


async def test_add(mcp_client: Client) -> None:
    result = await mcp_client.call_tool("add", {"a": 2, "b": 3})
    assert result.data == 5


async def test_what_is_not_a_number_is_refused(mcp_client: Client) -> None:
    result = await mcp_client.call_tool("add", {"a": 2, "b": "three"})
    assert result.is_error


async def test_greet(mcp_client: Client) -> None:
    result = await mcp_client.call_tool("greet", {"name": "Ada"})
    assert result.text == "Hello Ada!"


async def test_about(mcp_client: Client) -> None:
    result = await mcp_client.read_resource("info://about")
    assert "adds numbers" in result.contents[0].text


@pytest.mark.mcpearl(wire=["stdio", "http"], era=["legacy", "modern"])
async def test_as_hosts_reach_it(mcp_client: Client) -> None:
    tools = {tool.name async for tool in mcp_client.tools()}
    assert tools == {"add", "greet"}
'''

_PYPROJECT = f"""[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "NAME"
version = "0.1.0"
description = "A server of the Model Context Protocol."
readme = "README.md"
requires-python = ">=3.11"
dependencies = ["mcpearl>={__version__}"]

[project.scripts]
NAME = "NAME.server:main"

[dependency-groups]
dev = ["mcpearl[testing]"]

[tool.hatch.build.targets.wheel]
packages = ["src/NAME"]

[tool.pytest.ini_options]
pythonpath = ["src"]
testpaths = ["tests"]
mcpearl_app = "src/NAME/server.py:app"
"""

_README = """# NAME

A server of the [Model Context Protocol](https://modelcontextprotocol.io), made with mcpearl.

```
mcpearl dev src/NAME/server.py
mcpearl call src/NAME/server.py add a=2 b=3
mcpearl inspect src/NAME/server.py
mcpearl install src/NAME/server.py
python -m pytest
```

The first serves it over HTTP and reloads it when it changes, with a console in the browser. The others
call a tool, show what the server offers and what hosts would refuse, put it into the hosts on this
computer, and run the tests, which need pytest (`python -m pip install pytest`).
"""

_IGNORED = "__pycache__/\n.venv/\ndist/\n.pytest_cache/\n.env\n"


def project_files(name: str) -> dict[str, str]:
    """Return the files of a new project by their paths.

    Args:
        name: the name of the project and of its package.
    """
    files = {
        f"src/{name}/__init__.py": '"""NAME."""\n',
        f"src/{name}/server.py": _SERVER,
        "tests/test_server.py": _TEST,
        "pyproject.toml": _PYPROJECT,
        "README.md": _README,
        ".gitignore": _IGNORED,
    }
    return {path: text.replace("NAME", name) for path, text in files.items()}
