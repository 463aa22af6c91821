"""Check that imports only go down the layers.

Each package of `mcpearl` belongs to a layer. A module may import from its own package and from any
layer below, except where `CLOSED` shuts a door. Imports for type checking count too, except for the
pairs in `TYPING_ONLY`.
"""

import ast
import sys
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "mcpearl"

# From the bottom up. Packages in one row do not import each other. `stores`, `telemetry`, `gateway`,
# `console` and `cli` have their place before their first module.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("_version",),
    ("types",),
    ("schema",),
    ("protocol",),
    ("runtime",),
    ("net",),
    ("stores",),
    ("transports",),
    ("auth",),
    ("server", "client"),
    ("gateway", "console", "telemetry"),
    ("cli",),
    ("__init__",),
)
RANK = {package: rank for rank, row in enumerate(LAYERS) for package in row}

# What a package may not import although it lies below: `net` knows sockets and HTTP, and no MCP.
CLOSED = {"net": {"types", "schema", "protocol"}}

# Where a name is needed for annotations only: the client can be given a server object.
TYPING_ONLY = {("client", "server")}


def package_of(module: str) -> str:
    """Name the package a dotted module of mcpearl belongs to."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def imports(path: Path) -> list[tuple[int, str, bool]]:
    """List what a file imports from mcpearl: line, module, and whether for typing only."""
    tree = ast.parse(path.read_text())
    typing_lines = {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for child in node.body
        for line in range(child.lineno, (child.end_lineno or child.lineno) + 1)
    }
    found = []
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                raise SystemExit(f"{path}:{node.lineno}: relative import; write it in full")
            names = [node.module or ""]
        found += [
            (node.lineno, name, node.lineno in typing_lines)
            for name in names
            if name.split(".")[0] == "mcpearl"
        ]
    return found


def violations(path: Path) -> list[str]:
    """List the imports of a file that go up, or sideways."""
    relative = path.relative_to(SOURCE)
    own = relative.parts[0] if len(relative.parts) > 1 else relative.stem
    if own not in RANK:
        return [f"{path}: package `{own}` has no layer; add it to tools/check_layers.py"]
    wrong = []
    for line, module, typing_only in imports(path):
        other = package_of(module)
        if other == own or (typing_only and (own, other) in TYPING_ONLY):
            continue
        if RANK.get(other, len(LAYERS)) >= RANK[own] or other in CLOSED.get(own, ()):
            wrong.append(f"{path}:{line}: `{own}` must not import `{module}`")
    return wrong


def main() -> int:
    """Check every module; the exit code is 1 when one reaches up."""
    files = sorted(SOURCE.rglob("*.py"))
    wrong = [line for path in files for line in violations(path)]
    print("\n".join(wrong) if wrong else f"layers: {len(files)} modules, imports go down only")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
