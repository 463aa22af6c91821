"""The calls that serve a server or make an application of it, and the options that they take."""

import ast
from collections.abc import Callable, Mapping

from mcpearl.cli.migrating import names
from mcpearl.cli.migrating.source import SourceFile


class ServingCalls:
    """Rewrites `run`, `http_app` and their like in one file.

    Args:
        source: The file.
        original: Returns the name that an expression has in the SDK it was imported from.
        of_run: Options of constructors that belong to these calls now, by the variable of the server.
    """

    def __init__(
        self,
        source: SourceFile,
        original: Callable[[ast.AST], str | None],
        of_run: Mapping[str, list[ast.keyword]],
    ) -> None:
        self._source = source
        self._original = original
        self._of_run = of_run

    def rewrite(self, node: ast.Call, method: str, owner: str) -> None:
        """Rewrite the arguments of a call.

        Args:
            node: The call.
            method: The method of the server, as it was called before.
            owner: The variable of the server.
        """
        if method in names.SERVES:
            at = self._source.find("(", self._source.span(node.func)[1]) + 1
            more = ", " if node.args or node.keywords else ""
            self._source.edit(at, at, names.SERVES[method] + more)
        for keyword in node.keywords:
            if keyword.arg in names.RUN_KEYWORDS:
                self._source.rename_keyword(keyword, names.RUN_KEYWORDS[keyword.arg])
            elif (
                keyword.arg in names.RUN_DROPPED
                or (keyword.arg == "transport" and method not in ("run", "run_async"))
                or (keyword.arg in names.ASGI_DROPPED and method in names.ASGI)
            ):
                self._source.drop_keyword(node, keyword)
            elif security := self._security(keyword):
                self._source.replace(keyword, security)
            elif keyword.arg in names.RUN_BY_HAND:
                advice = names.RUN_BY_HAND[keyword.arg]
                self._source.leave(keyword.value, f"{keyword.arg}=", advice)
        self._take_options(node, method, owner)

    def _security(self, keyword: ast.keyword) -> str:
        """Return the options in `transport_security=TransportSecuritySettings(allowed_hosts=…)`."""
        match keyword:
            case ast.keyword(
                arg="transport_security", value=ast.Call(func=made, args=[], keywords=given)
            ) if self._original(made) == "TransportSecuritySettings":
                if {each.arg for each in given} <= names.SECURITY:
                    return ", ".join(self._source.of(each) for each in given)
        return ""

    def _take_options(self, node: ast.Call, method: str, owner: str) -> None:
        """Take the options that the constructor had, where the server is served over HTTP."""
        here = {names.RUN_KEYWORDS.get(each.arg or "", each.arg) for each in node.keywords}
        options = []
        for keyword in self._of_run.get(owner, ()):
            name = names.OF_RUN[keyword.arg or ""]
            if name is not None and name not in here:
                if name in ("host", "port") and method in names.ASGI:
                    continue
                options.append(f"{name}={self._source.of(keyword.value)}")
        if not options:
            return
        wire = self._wire(node) if method in ("run", "run_async") else "http"
        if wire == "http":
            self._source.add_arguments(node, ", ".join(options))
        elif wire is None:
            advice = f"where it serves over HTTP, it needs {', '.join(options)}"
            self._source.leave(node, f".{method}()", advice)

    def _wire(self, node: ast.Call) -> str | None:
        """Return the wire that a server is run on, None if that is decided at run time."""
        given = [*node.args, *(each.value for each in node.keywords if each.arg == "transport")]
        if not given:
            return "stdio"
        first = given[0]
        if not isinstance(first, ast.Constant):
            return None
        return "stdio" if first.value == "stdio" else "http"
