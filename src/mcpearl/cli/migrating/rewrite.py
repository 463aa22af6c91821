"""The rewriting of one file: what it imports, the names it uses, the calls it makes."""

import ast
from collections.abc import Iterator, Set
from functools import cache
from typing import NamedTuple

from mcpearl.cli.migrating import names
from mcpearl.cli.migrating.imports import Imports, is_theirs, names_used
from mcpearl.cli.migrating.lowlevel import LowLevel
from mcpearl.cli.migrating.serving import ServingCalls
from mcpearl.cli.migrating.source import Leftover, SourceFile
from mcpearl.cli.migrating.variables import Variables

Elsewhere = Set[tuple[str, str]]  # servers of other files, by module and variable


class Rewritten(NamedTuple):
    """A file as it should be, and what is left to do."""

    text: str
    leftovers: list[Leftover]


def rewrite(source: str, elsewhere: Elsewhere = frozenset()) -> Rewritten:
    """Rewrite the source of a file; one that uses neither SDK stays as it is.

    Args:
        source: The text of the file.
        elsewhere: The servers of other files, which this one may import.

    Raises:
        SyntaxError: The source is not Python.
    """
    tree = ast.parse(source)
    if not any(is_theirs(node) for node in ast.walk(tree)) and not imported(tree, elsewhere):
        return Rewritten(source, [])
    used = names_used(_Rewriting(source, tree, None, elsewhere).do().text())
    done = _Rewriting(source, tree, used, elsewhere).do()
    return Rewritten(done.text(), sorted(set(done.leftovers)))


def servers_of(source: str, module: str) -> Elsewhere:
    """Return the variables of a file that hold a server, as other files import them.

    Args:
        source: The text of the file.
        module: The last part of the file's name as a module.

    Raises:
        SyntaxError: The source is not Python.
    """
    tree = ast.parse(source)
    if not any(is_theirs(node) for node in ast.walk(tree)):
        return frozenset()
    outside = {
        name.id
        for node in _outside_functions(tree)
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for name in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(name, ast.Name)
    }
    return frozenset(
        (module, name) for name in _Rewriting(source, tree, None).variables.servers() & outside
    )


def _outside_functions(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what is run when a file is imported, branches of conditions included."""
    for each in ast.iter_child_nodes(node):
        if not isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield each
            yield from _outside_functions(each)


def imported(tree: ast.Module, elsewhere: Elsewhere) -> set[str]:
    """Return the names under which a file has imported servers of other files."""
    return {
        each.asname or each.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and not is_theirs(node)
        for each in node.names
        if ((node.module or "").rpartition(".")[2], each.name) in elsewhere
    }


class _Rewriting:
    """One file while it is rewritten."""

    def __init__(
        self,
        source: str,
        tree: ast.Module,
        used: set[str] | None,
        elsewhere: Elsewhere = frozenset(),
    ) -> None:
        self._source = SourceFile(source)
        self._tree = tree
        self._imports = Imports(self._source, tree, used)
        self._original = self._imports.original
        self.variables = Variables(self._source, tree, self._original, imported(tree, elsewhere))
        self._awaited = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Await)}
        self._outer = {  # attributes that are taken of attributes
            id(node.value): node for node in ast.walk(tree) if isinstance(node, ast.Attribute)
        }
        self._alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        # Options of the constructor that belong to `run` now, by the variable of the server.
        self._of_run: dict[str, list[ast.keyword]] = {}
        for name, made in self.variables.made(names.SERVERS):
            moving = [each for each in made.keywords if each.arg in names.OF_RUN]
            if moving:
                self._of_run[name] = moving
        self._serving = ServingCalls(self._source, self._original, self._of_run)

    def do(self) -> SourceFile:
        """Find everything that has to change."""
        lowlevel = LowLevel(
            self._source, self._tree, self._imports.is_lowlevel, self._imports.bound
        )
        lowlevel.rewrite()
        self._imports.rewrite(lowlevel.needed(self._imports.local))
        variables = self.variables
        servers, contexts, clients = variables.servers(), variables.contexts(), variables.clients()
        for node in ast.walk(self._tree):
            match node:
                case ast.Name(id=name) if self._imports.local.get(name) in names.SERVERS:
                    if name == self._imports.local[name]:
                        self._source.replace(node, self._imports.server_name())
                case ast.Name(id="fastmcp") if "fastmcp" in self._imports.modules:
                    self._source.replace(node, "mcpearl")
                case ast.Attribute(value=ast.Name(id=module), attr=name) if (
                    module in self._imports.modules
                ):
                    if name in names.RENAMED:
                        self._source.rename_member(node, names.RENAMED[name])
                    else:
                        advice = names.BY_HAND.get(name, "it has no counterpart by this name")
                        self._source.leave(node, f"{module}.{name}", advice)
                case ast.Subscript(value=value) if self._original(value) in names.SERVERS:
                    self._source.edit(self._source.span(value)[1], self._source.span(node)[1], "")
                case ast.Subscript(value=value, slice=ast.Tuple(elts=[first, second, *_])) if (
                    self._original(value) == "Context"
                ):
                    is_first = self._imports.has_lifespan_first
                    self._typed_context(node, first if is_first else second)
                case ast.Call():
                    self._call(node, servers, contexts, clients)
                case ast.Await(value=ast.Call(func=ast.Attribute(value=ast.Name(id=owner)))) if (
                    owner in clients and self._imports.has_lists
                ):
                    self._list(node, owner)
                case ast.Attribute(value=ast.Name(id=owner)) if owner in contexts:
                    self._context_member(node, owner)
                case ast.Attribute(attr=member) if member in names.snake_members():
                    self._source.rename_member(node, names.snake_members()[member])
                case ast.Attribute(value=owner, attr=member) if self._source.of(
                    owner
                ) in servers and (member == "settings" or member.startswith("_")):
                    self._source.leave(node, f".{member}", names.SERVER_MEMBERS)
        return self._source

    # Contexts

    def _typed_context(self, node: ast.Subscript, lifespan: ast.expr) -> None:
        """Leave the type of the lifespan: second of `mcp` 1's `Context`, and first of `mcp` 2's."""
        context = self._source.of(node.value)
        nothing = isinstance(lifespan, ast.Constant) and lifespan.value is None
        self._source.replace(
            node, context if nothing else f"{context}[{self._source.of(lifespan)}]"
        )

    def _context_member(self, node: ast.Attribute, owner: str) -> None:
        member = node.attr
        if member == "request_context":
            outer = self._outer.get(id(node))
            if outer is not None and outer.attr in names.REQUEST_CONTEXT:
                self._source.replace(outer, f"{owner}.{names.REQUEST_CONTEXT[outer.attr]}")
                return
        elif member in names.CONTEXT_RENAMED:
            self._source.rename_member(node, names.CONTEXT_RENAMED[member])
            return
        elif member == "session":
            outer = self._outer.get(id(node))
            if outer is not None and outer.attr in names.SESSION_BY_HAND:
                advice = names.SESSION_BY_HAND[outer.attr]
                self._source.leave(node, f"ctx.session.{outer.attr}", advice)
            return
        elif member in names.STATE:
            return
        unknown = None if member in _context_members() else "a context has no such member"
        self._source.leave(node, f"ctx.{member}", names.CONTEXT_BY_HAND.get(member, unknown))

    def _state(self, node: ast.Call, owner: str, method: str) -> None:
        """Take values of one call to `ctx.state`; those of a session are awaited."""
        if id(node) in self._awaited:
            self._source.replace(node.func, f"{owner}.session.{names.STATE[method]}")
        elif method == "get_state":
            self._source.replace(node.func, f"{owner}.state.get")
        elif method == "set_state" and len(node.args) == 2 and id(node) in self._alone:
            key, value = (self._source.of(each) for each in node.args)
            self._source.replace(node, f"{owner}.state[{key}] = {value}")
        else:
            self._source.leave(node, f"ctx.{method}", "`ctx.state` is a dict for one call")

    # Calls

    def _call(
        self, node: ast.Call, servers: set[str], contexts: set[str], clients: set[str]
    ) -> None:
        original = self._original(node.func)
        if original in names.SERVERS:
            self._construction(node)
        elif original in ("McpError", "MCPError"):
            self._error(node)
        elif original == "TaskConfig":
            self._task(node)
        elif original in names.TYPES_RENAMED:
            self._renamed_type(node, *names.TYPES_RENAMED[original])
        elif original in names.type_names() and original not in names.RENAMED:
            self._snake_keywords(node)
        match node.func:
            case ast.Attribute(value=owner, attr=method) if self._source.of(owner) in servers:
                self._method(node, node.func, method, self._source.of(owner))
            case ast.Attribute(value=owner, attr=method) if self._original(owner) in names.SERVERS:
                self._source.leave(node, f".{method}()", names.METHODS_BY_HAND.get(method))
            case ast.Attribute(value=ast.Name(id=owner), attr=method) if (
                owner in contexts and method in names.STATE
            ):
                self._state(node, owner, method)
            case ast.Attribute(value=ast.Name(id=owner), attr="call_tool") if owner in clients:
                self._raise_on_error(node)

    def _task(self, node: ast.Call) -> None:
        """Write how a tool is a task: `TaskConfig(mode="required")` is `Tasks(required=True)`."""
        match node.keywords:
            case [] if not node.args:
                return
            case [ast.keyword(arg="mode", value=ast.Constant(value=mode))] if (
                mode in names.TASK_MODES
            ):
                written = names.TASK_MODES[mode]
                self._source.replace(
                    node, written.replace("TaskConfig", self._source.of(node.func))
                )
            case _:
                self._source.leave(node, "TaskConfig()", names.TASK_BY_HAND)

    def _list(self, node: ast.Await, owner: str) -> None:
        """Have lists stay lists, over all pages."""
        call = node.value
        assert isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
        method = call.func.attr
        if method in names.WALKS and not call.args and not call.keywords:
            walk = f"{owner}.{names.WALKS[method]}()"
            self._source.replace(node, f"[each async for each in {walk}]")

    def _error(self, node: ast.Call) -> None:
        """Take the members out of `McpError(ErrorData(code=…, message=…))`."""
        match node.args:
            case [ast.Call(func=made, keywords=given, args=[]) as data] if (
                self._original(made) == "ErrorData"
            ):
                parts = {each.arg: self._source.of(each.value) for each in given}
                order = [parts[name] for name in ("code", "message", "data") if name in parts]
                self._source.replace(data, ", ".join(order))

    def _construction(self, node: ast.Call) -> None:
        known = _server_options()
        if (
            len(node.args) > 1
        ):  # FastMCP has instructions there, `mcp` 2 the title, mcpearl the version
            begin, _ = self._source.span(node.args[1])
            second = "title=" if self._original(node.func) == "MCPServer" else "instructions="
            self._source.edit(begin, begin, second)
        if not node.args and not any(each.arg in ("name", None) for each in node.keywords):
            at = self._source.find("(", self._source.span(node.func)[1]) + 1
            self._source.edit(at, at, '"server"' + (", " if node.keywords else ""))
        for keyword in node.keywords:
            name = keyword.arg
            if name is None:
                continue
            if name in names.SERVER_KEYWORDS:
                self._source.rename_keyword(keyword, names.SERVER_KEYWORDS[name])
                if name == "list_page_size" and not isinstance(keyword.value, ast.Constant):
                    self._source.leave(keyword.value, f"{name}=", names.PAGE_SIZE)
            elif name in names.OF_RUN:
                self._source.drop_keyword(node, keyword)
                if not self._moved(keyword):
                    advice = "dropped; it is an option of `app.run(…)` and `app.asgi(…)` now"
                    self._source.leave(keyword.value, f"{name}=", advice)
            elif name in names.SERVER_DROPPED:
                self._source.drop_keyword(node, keyword)
                self._source.leave(keyword.value, f"{name}=", names.SERVER_DROPPED[name])
            elif name not in known:
                advice = names.SERVER_BY_HAND.get(name, "a server has no such option")
                self._source.leave(keyword.value, f"{name}=", advice)

    def _moved(self, keyword: ast.keyword) -> bool:
        """Return whether the file runs the server, so that the option can go there."""
        for owner, options in self._of_run.items():
            if keyword in options:
                return any(self._is_run(node, owner) for node in ast.walk(self._tree))
        return False

    def _is_run(self, node: ast.AST, owner: str) -> bool:
        match node:
            case ast.Call(func=ast.Attribute(value=value, attr=method)):
                return method in names.RUNS and self._source.of(value) == owner
        return False

    def _snake_keywords(self, node: ast.Call) -> None:
        for keyword in node.keywords:
            if keyword.arg in names.snake_members():
                self._source.rename_keyword(keyword, names.snake_members()[keyword.arg])

    def _renamed_type(self, node: ast.Call, name: str, needed: str) -> None:
        """Make an object of a type that has another name, and say what that name no longer says."""
        if isinstance(node.func, ast.Attribute):
            self._source.rename_member(node.func, name)
        self._snake_keywords(node)
        keyword = needed.partition("=")[0]
        if keyword and not any(each.arg in (keyword, None) for each in node.keywords):
            self._source.add_arguments(node, needed)

    def _method(self, node: ast.Call, function: ast.Attribute, method: str, owner: str) -> None:
        if method in names.METHODS:
            self._source.rename_member(function, names.METHODS[method])
            if method == "custom_route":
                for keyword in node.keywords:
                    if keyword.arg in names.ROUTE_DROPPED:
                        self._source.drop_keyword(node, keyword)
        elif method in ("tool", "prompt", "resource"):
            self._registration(node, method)
        elif method == "mount":
            self._mount(node)
        elif method == "add_extension" and self._is_built_in(node):
            self._source.replace(node, "pass")
            made = node.args[0]
            if isinstance(made, ast.Call) and (made.args or made.keywords):
                self._source.leave(node, ".add_extension()", names.EXTENSION_DROPPED)
            return
        self._source.leave(node, f".{method}()", names.METHODS_BY_HAND.get(method))
        if method in names.RUNS:
            self._serving.rewrite(node, method, owner)

    def _is_built_in(self, node: ast.Call) -> bool:
        """Return whether a statement adds an extension that every server has here."""
        made = node.args[0] if node.args and id(node) in self._alone else None
        return isinstance(made, ast.Call) and self._original(made.func) in names.BUILT_IN

    def _registration(self, node: ast.Call, method: str) -> None:
        given = node.args[0] if node.args else None
        functions = ast.Name | ast.Attribute | ast.Lambda
        if method != "resource" and given is not None and not isinstance(given, functions):
            begin, _ = self._source.span(given)
            self._source.edit(begin, begin, "name=")
        for keyword in node.keywords:
            name = keyword.arg
            if name is None or name in _registration_options(method) or name == "uri":
                continue
            if name in names.REGISTRATION_DROPPED:
                self._source.drop_keyword(node, keyword)
                advice = names.REGISTRATION_DROPPED[name]
                self._source.leave(keyword.value, f"{name}=", advice)
            else:
                self._source.leave(keyword.value, f"{name}=", f"a {method} has no such option")

    def _mount(self, node: ast.Call) -> None:
        """Put the name first: `mount(other, prefix="x")` is `mount("x", other)`."""
        given = {each.arg: each.value for each in node.keywords}
        name = given.get("prefix") or given.get("namespace")
        arguments = list(node.args)
        if name is None and len(arguments) == 2:
            if isinstance(arguments[0], ast.Constant):
                return  # it is in this order already
            arguments, name = arguments[:1], arguments[1]
        other = arguments[0] if arguments else given.get("server")
        if name is None or other is None:
            self._source.leave(node, ".mount()", 'give it a name: `app.mount("name", other)`')
            return
        text = f"({self._source.of(name)}, {self._source.of(other)})"
        self._source.edit(self._source.span(node.func)[1], self._source.span(node)[1], text)

    def _raise_on_error(self, node: ast.Call) -> None:
        """Keep what FastMCP does: a tool that fails raises."""
        said = any(each.arg in ("raise_on_error", None) for each in node.keywords)
        if not said and (node.args or node.keywords):
            self._source.add_arguments(node, "raise_on_error=True")


@cache
def _server_options() -> frozenset[str]:
    from inspect import signature

    from mcpearl.server.server import Server

    return frozenset(signature(Server.__init__).parameters)


@cache
def _context_members() -> frozenset[str]:
    from mcpearl.server.context import Context

    return frozenset(dir(Context))


@cache
def _registration_options(method: str) -> frozenset[str]:
    from mcpearl.server.registry.options import PromptOptions, ResourceOptions, ToolOptions

    kinds = {"tool": ToolOptions, "prompt": PromptOptions, "resource": ResourceOptions}
    found: set[str] = set()
    for kind in kinds[method].__mro__:
        found.update(getattr(kind, "__annotations__", ()))
    return frozenset(found | set(kinds[method].__annotations__))
