"""The imports of a file: what its names are, where they come from now, which are not needed."""

import ast
import re
from collections.abc import Iterator

from mcpearl.cli.migrating import names
from mcpearl.cli.migrating.source import SourceFile

_LONGEST = 88  # characters of a line


def is_theirs(node: ast.AST) -> bool:
    """Return whether a node imports from one of the SDKs."""
    if isinstance(node, ast.ImportFrom):
        return not node.level and _theirs(node.module or "")
    return isinstance(node, ast.Import) and any(_theirs(each.name) for each in node.names)


def names_used(text: str) -> set[str]:
    """Return the names in a file that are used outside of its imports, quoted annotations included."""
    used = set[str]()
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Name(id=name):
                used.add(name)
            case ast.arg(annotation=quoted) | ast.AnnAssign(annotation=quoted):
                used |= _words(quoted)
            case ast.FunctionDef(returns=quoted) | ast.AsyncFunctionDef(returns=quoted):
                used |= _words(quoted)
            case ast.Assign(targets=[ast.Name(id="__all__")], value=listed):
                used |= _words(listed)
    return used


def _words(node: ast.AST | None) -> set[str]:
    """Return the words of the texts in an expression."""
    texts = (
        [] if node is None else [each for each in ast.walk(node) if isinstance(each, ast.Constant)]
    )
    return {word for each in texts for word in re.findall(r"\w+", str(each.value))}


class Imports:
    """What a file imports from the SDKs.

    Args:
        used: The names that the rewritten file uses; imports without counterpart that are not among
            them go. None keeps them all.
    """

    def __init__(self, source: SourceFile, tree: ast.Module, used: set[str] | None) -> None:
        self._source = source
        self._tree = tree
        self._used = used
        self.bound = set(_bound(tree))  # names that this file uses for something of its own
        self.local: dict[str, str] = {}  # names of this file to what they were imported as
        self.modules: set[str] = set()  # names of this file for whole modules
        self.types: set[str] = set()  # those of them that have the types of the protocol
        self.lowlevel: set[str] = set()  # names of this file for the low-level server
        self.has_lifespan_first = False  # `Context` is of `mcp` 2: `Context[App, Request]`
        self.has_lists = False  # the client is FastMCP's, whose lists are lists and no pages
        self._nodes = [node for node in ast.walk(tree) if is_theirs(node)]
        for node in self._nodes:
            if isinstance(node, ast.ImportFrom):
                self._note_from(node)
            elif isinstance(node, ast.Import):
                self._note(node)

    def original(self, node: ast.AST) -> str | None:
        """Return the name that an expression was imported as."""
        match node:
            case ast.Name(id=name):
                return self.local.get(name)
            case ast.Attribute(value=ast.Name(id=module), attr=name) if (
                module in self.modules | self.types
            ):
                return name
            case ast.Subscript(value=value):
                return self.original(value)
        return None

    def is_lowlevel(self, node: ast.AST) -> bool:
        """Return whether an expression is the class of low-level servers."""
        node = node.value if isinstance(node, ast.Subscript) else node
        return isinstance(node, ast.Name) and node.id in self.lowlevel

    def server_name(self) -> str:
        """Return what a server is called in this file; a class of its own may have the name."""
        return "McpearlServer" if "Server" in self.bound - self.lowlevel else "Server"

    def _note_from(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        for alias in node.names:
            local = alias.asname or alias.name
            self.local[local] = alias.name
            if alias.name == "types" and module == "mcp":
                self.types.add(local)
            elif alias.name == "base" and module.endswith(".prompts"):
                self.modules.add(local)
            elif alias.name == "Client" and module.startswith("fastmcp"):
                self.has_lists = True
            elif alias.name == "Context" and module.startswith("mcp.server.mcpserver"):
                self.has_lifespan_first = True
            elif alias.name == "Server" and module.startswith("mcp"):
                self.lowlevel.add(local)

    def _note(self, node: ast.Import) -> None:
        for alias in node.names:
            if alias.name in names.TYPES and (alias.asname or "." not in alias.name):
                self.types.add(alias.asname or alias.name)
            elif alias.name == "fastmcp":
                self.modules.add(alias.asname or alias.name)

    # What they become

    def rewrite(self, needed: dict[str, set[str]]) -> None:
        """Rewrite the imports, with those the file needs in addition: names by module."""
        for node in self._nodes:
            if isinstance(node, ast.ImportFrom):
                self._rewrite_from(node, needed)
            elif isinstance(node, ast.Import):
                self._rewrite(node)

    def _rewrite_from(self, node: ast.ImportFrom, needed: dict[str, set[str]]) -> None:
        module = node.module or ""
        homes: dict[str, set[str]] = {}
        for alias in node.names:
            lowlevel = (alias.asname or alias.name) in self.lowlevel
            if lowlevel and needed:
                for home, more in needed.items():
                    homes.setdefault(home, set()).update(more)
            home, text = self._home(module, alias, node, converted=lowlevel and bool(needed))
            if text:
                homes.setdefault(home, set()).add(text)
        order = sorted(homes, key=lambda home: (home != "", not home.startswith("mcpearl"), home))
        indent = " " * node.col_offset
        lines: list[str] = []
        for home in order:
            texts = sorted(homes[home])
            lines += texts if not home else _import_lines(home, texts)
        if not lines:
            self._remove(node)
        elif order != [module]:
            self._source.replace(node, f"\n{indent}".join(lines))

    def _home(
        self, module: str, alias: ast.alias, node: ast.AST, *, converted: bool
    ) -> tuple[str, str]:
        """Return the module a name comes from now, and how it is imported; empty if it is not."""
        suffix = f" as {alias.asname}" if alias.asname else ""
        name = alias.name
        if name == "types" and module == "mcp":
            return "mcpearl", "types" + suffix
        if name == "base" and module.endswith(".prompts"):
            return "", f"import mcpearl as {alias.asname or name}"
        if name == "get_logger" and module.endswith("utilities.logging"):
            return "logging", f"getLogger as {alias.asname or name}"
        if converted:
            return "mcpearl", "Server" + suffix
        if module in ("mcp", *names.TYPES) and name in names.type_names():
            return "mcpearl.types", name + suffix
        if module in ("mcp", *names.TYPES) and name in names.TYPES_RENAMED:
            return "mcpearl.types", names.TYPES_RENAMED[name][0] + (suffix or f" as {name}")
        lowlevel = (alias.asname or name) in self.lowlevel
        if name in names.RENAMED and not lowlevel:
            new = names.RENAMED[name]
            if name in names.SERVERS and not suffix and self.server_name() != new:
                suffix = f" as {self.server_name()}"
            if new != name and name not in names.SERVERS and not suffix:
                suffix = f" as {name}"
            return "mcpearl", new + suffix
        if not lowlevel and self._used is not None and (alias.asname or name) not in self._used:
            return "", ""
        advice = names.BY_HAND.get(name) or names.by_module(module)
        self._source.leave(node, f"from {module} import {name}", advice)
        return module, name + suffix

    def _rewrite(self, node: ast.Import) -> None:
        texts = []
        for alias in node.names:
            suffix = f" as {alias.asname}" if alias.asname else ""
            if alias.name in names.TYPES:
                local = suffix or (" as mcp_types" if alias.name == "mcp_types" else "")
                texts.append("mcpearl.types" + local)
            elif alias.name == "fastmcp":
                texts.append("mcpearl" + suffix)
            elif not _theirs(alias.name) or self._is_used(alias):
                texts.append(self._source.of(alias))
                if _theirs(alias.name):
                    self._source.leave(
                        node, f"import {alias.name}", "import the names that are used"
                    )
        if texts:
            self._source.replace(node, f"import {', '.join(texts)}")
        else:
            self._remove(node)

    def _is_used(self, alias: ast.alias) -> bool:
        local = alias.asname or alias.name.partition(".")[0]
        return self._used is None or local in self._used

    def _remove(self, node: ast.stmt) -> None:
        if node.col_offset:
            self._source.replace(node, "pass")
        else:
            self._source.remove_lines(node.lineno, node.end_lineno or node.lineno)


def _import_lines(module: str, texts: list[str]) -> list[str]:
    """Return an import on one line, or, if that gets long, on several."""
    line = f"from {module} import {', '.join(texts)}"
    if len(line) <= _LONGEST:
        return [line]
    return [f"from {module} import (", *(f"    {text}," for text in texts), ")"]


def _theirs(module: str) -> bool:
    return module.partition(".")[0] in names.ROOTS


def _bound(tree: ast.Module) -> Iterator[str]:
    """Yield the names that a file binds."""
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                yield name
            case ast.AsyncFunctionDef(name=name) | ast.Name(id=name, ctx=ast.Store()):
                yield name
            case ast.Import() | ast.ImportFrom() if not is_theirs(node):
                yield from (each.asname or each.name for each in node.names)
