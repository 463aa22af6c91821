"""Checks that imports go down the layers only.

Each package of `mcpearl` belongs to a layer. A module may import from its own package and from any layer
below, except where `CLOSED` forbids it. Imports for type checking count too, and modules that are loaded
by name. What a layer has an upper one do is behind a door (`runtime/doors`) that the root package hangs.
"""

import ast
import sys
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "mcpearl"

# From the bottom up. Packages in one row do not import each other.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("_version",),
    ("types",),
    ("schema",),
    ("protocol",),
    ("runtime",),
    ("net",),
    ("stores", "receipts"),
    ("transports",),
    ("auth",),
    ("telemetry",),
    ("server", "client"),
    ("host",),
    ("gateway", "console", "sync"),
    ("cli",),
    ("testing",),
    ("__init__", "__main__"),
)
RANK = {package: rank for rank, row in enumerate(LAYERS) for package in row}

# Lower packages that a package may not import: `net` knows sockets and HTTP, but not MCP.
CLOSED = {"net": {"types", "schema", "protocol"}}


def package_of(module: str) -> str:
    """Return the package of a dotted module of mcpearl."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def is_package(name: str) -> bool:
    """Return whether a name that is imported from `mcpearl` itself is a package in it."""
    return (SOURCE / name / "__init__.py").exists()


def imports(path: Path) -> list[tuple[int, str]]:
    """Return what a file imports from mcpearl: each with its line and module."""
    tree = ast.parse(path.read_text())
    found = []
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.Call):
            names = loaded_by_name(node)
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                raise SystemExit(f"{path}:{node.lineno}: relative import; write it in full")
            names = [node.module or ""]
            if node.module == "mcpearl":
                names = [f"mcpearl.{alias.name}" for alias in node.names if is_package(alias.name)]
                names += ["mcpearl"] * (len(names) < len(node.names))
        found += [(node.lineno, name) for name in names if name.split(".")[0] == "mcpearl"]
    return found


def loaded_by_name(call: ast.Call) -> list[str]:
    """Return the module that a call of `import_module` names, where it is written there."""
    function = call.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    if name != "import_module" or not call.args:
        return []
    module = call.args[0]
    return [module.value] if isinstance(module, ast.Constant) else []


def violations(path: Path) -> list[str]:
    """Return the forbidden imports of a file."""
    relative = path.relative_to(SOURCE)
    own = relative.parts[0] if len(relative.parts) > 1 else relative.stem
    if own not in RANK:
        return [f"{path}: package `{own}` has no layer; add it to tools/check_layers.py"]
    wrong = []
    for line, module in imports(path):
        other = package_of(module)
        if other == own:
            continue
        if RANK.get(other, len(LAYERS)) >= RANK[own] or other in CLOSED.get(own, ()):
            wrong.append(f"{path}:{line}: `{own}` must not import `{module}`")
    return wrong


def main() -> int:
    """Check every module. Return 1 if there is a forbidden import."""
    files = sorted(SOURCE.rglob("*.py"))
    wrong = [line for path in files for line in violations(path)]
    print("\n".join(wrong) if wrong else f"layers: {len(files)} modules, imports go down only")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
