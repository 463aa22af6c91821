"""Which variables of a file hold a server, a context or a client, as they are written there."""

import ast
from collections.abc import Callable, Iterator, Set

from mcpearl.cli.migrating import names
from mcpearl.cli.migrating.source import SourceFile


class Variables:
    """The variables of one file.

    Args:
        source: The file.
        tree: Its syntax tree.
        original: Returns the name that an expression has in the SDK it was imported from.
        imported: Names of servers that were imported from other files.
    """

    def __init__(
        self,
        source: SourceFile,
        tree: ast.Module,
        original: Callable[[ast.AST], str | None],
        imported: Set[str],
    ) -> None:
        self._source = source
        self._tree = tree
        self._original = original
        self._imported = imported

    def servers(self) -> set[str]:
        """Return the variables that hold a server."""
        made = {name for name, _ in self.made(names.SERVERS)}
        found = {*self._imported, *made, *self._annotated(names.SERVERS)}
        return found | set(self._handed_on(found))

    def contexts(self) -> set[str]:
        """Return the variables that hold the context of a call."""
        return set(self._annotated({"Context", "ServerRequestContext"}))

    def clients(self) -> set[str]:
        """Return the variables that hold a client of FastMCP."""
        found = {name for name, _ in self.made({"Client"})}
        for node in ast.walk(self._tree):
            if isinstance(node, ast.withitem) and isinstance(node.optional_vars, ast.Name):
                made = node.context_expr
                if isinstance(made, ast.Call) and self._original(made.func) == "Client":
                    found.add(node.optional_vars.id)
        return found

    def made(self, kinds: Set[str]) -> Iterator[tuple[str, ast.Call]]:
        """Yield the variables that get a new object of certain classes, each with the call that makes it.

        Args:
            kinds: The names of the classes.
        """
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Call):
                if self._original(node.value.func) not in kinds:
                    continue
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                for target in targets:
                    if isinstance(target, ast.Name | ast.Attribute):
                        yield self._source.of(target), node.value

    def _annotated(self, kinds: Set[str]) -> Iterator[str]:
        for node in ast.walk(self._tree):
            if isinstance(node, ast.arg) and node.annotation is not None:
                parts = ast.walk(node.annotation)
                if any(self._original(part) in kinds for part in parts):
                    yield node.arg

    def _handed_on(self, servers: set[str]) -> Iterator[str]:
        """Find variables that get a server from an attribute, or from a function annotated so."""
        attributes = {each.rpartition(".")[2] for each in servers if "." in each}
        makers = {
            node.name
            for node in ast.walk(self._tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and node.returns is not None
            and self._original(node.returns) in names.SERVERS
        }
        for node in ast.walk(self._tree):
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Attribute(attr=attribute)):
                    if attribute in attributes:
                        yield name
                case ast.Assign(
                    targets=[ast.Name(id=name)],
                    value=ast.Call(func=ast.Name(id=maker))
                    | ast.Await(value=ast.Call(func=ast.Name(id=maker))),
                ):
                    if maker in makers:
                        yield name
