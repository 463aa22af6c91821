"""Ten servers as they come from the registries, with one call to each that shows it at work."""

import json
import sys
from pathlib import Path
from typing import Any

from git import Actor, Repo

from tests.interop.peers import EVERYTHING_SERVER, LIBRARIES, NODE, PACKAGES

Call = tuple[str, dict[str, Any], str]
"""A tool, its arguments, and a text that is in the result."""


def from_npm(name: str, *arguments: str) -> dict[str, Any]:
    script = PACKAGES / f"server-{name}" / "dist" / "index.js"
    return {"command": NODE, "args": [str(script), *arguments]}


def configuration(folder: Path) -> dict[str, Any]:
    """Return an `mcp.json` with the servers, which work in the folder."""
    folder.mkdir()
    (folder / "note.txt").write_text("written before\n")
    with Repo.init(folder) as repo:
        repo.index.add(["note.txt"])
        author = Actor("Ada", "ada@example.com")
        repo.index.commit("The first note", author=author, committer=author)
    memory = from_npm("memory")
    memory["env"] = {"MEMORY_FILE_PATH": str(folder / "memory.jsonl")}
    sqlite = ["-c", "from mcp_server_sqlite import main; main()", "--db-path"]
    servers = {
        "time": {"command": sys.executable, "args": ["-m", "mcp_server_time"]},
        "git": {"command": sys.executable, "args": ["-m", "mcp_server_git"]},
        "fetch": {
            "command": sys.executable,
            "args": ["-m", "mcp_server_fetch", "--ignore-robots-txt", "--allow-private-ips"],
        },
        "sqlite": {"command": LIBRARIES, "args": [*sqlite, str(folder / "data.db")]},
        "calculator": {"command": LIBRARIES, "args": ["-m", "mcp_server_calculator"]},
        "editor": {"command": LIBRARIES, "args": ["-c", "from mcp_text_editor import run; run()"]},
        "filesystem": from_npm("filesystem", str(folder)),
        "memory": memory,
        "thinking": from_npm("sequential-thinking"),
        "everything": {"command": NODE, "args": [*EVERYTHING_SERVER[1:], "stdio"]},
    }
    return {"mcpServers": servers}


def calls(folder: Path, page: str) -> dict[str, Call]:
    """Return a call for each server; `page` is the address of a page that contains a greeting."""
    note = str(folder / "note.txt")
    entity = {"name": "Ada", "entityType": "person", "observations": ["writes programs"]}
    thought = {
        "thought": "One step is enough.",
        "thoughtNumber": 1,
        "totalThoughts": 1,
        "nextThoughtNeeded": False,
    }
    return {
        "time": ("get_current_time", {"timezone": "Europe/Oslo"}, "Europe/Oslo"),
        "git": ("git_log", {"repo_path": str(folder)}, "The first note"),
        "fetch": ("fetch", {"url": page}, "A greeting"),
        "sqlite": ("read_query", {"query": "SELECT 6 * 7 AS answer"}, "42"),
        "calculator": ("calculate", {"expression": "6 * 7"}, "42"),
        "editor": (
            "get_text_file_contents",
            {"files": [{"file_path": note, "ranges": [{"start": 1}]}]},
            "written before",
        ),
        "filesystem": ("read_text_file", {"path": note}, "written before"),
        "memory": ("create_entities", {"entities": [entity]}, "writes programs"),
        "thinking": ("sequentialthinking", thought, "totalThoughts"),
        "everything": ("get-sum", {"a": 40, "b": 2}, "42"),
    }


def write(file: Path, folder: Path) -> Path:
    """Write the configuration into a file."""
    file.write_text(json.dumps(configuration(folder)))
    return file
