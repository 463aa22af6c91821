"""The rewriting of one file: what it imports, the names it uses, the calls it makes."""

import ast
from collections.abc import Iterator
from typing import NamedTuple

from mcpearl.cli.migrating import names


class Leftover(NamedTuple):
    """Something that has to be changed by hand."""

    line: int
    text: str


class Rewritten(NamedTuple):
    """A file as it should be, and what is left to do."""

    text: str
    leftovers: list[Leftover]


class _Edit(NamedTuple):
    begin: int
    end: int
    text: str


def rewrite(source: str) -> Rewritten:
    """Rewrite the source of a file; one that uses neither SDK stays as it is.

    Raises:
        SyntaxError: The source is not Python.
    """
    tree = ast.parse(source)
    if not any(_roots(node) for node in ast.walk(tree)):
        return Rewritten(source, [])
    work = _Rewriting(source, tree)
    work.do()
    return Rewritten(work.text(), sorted(set(work.leftovers)))


def _bound(tree: ast.Module) -> Iterator[str]:
    """Yield the names that a file binds, but for those that become imports from mcpearl."""
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                yield name
            case ast.AsyncFunctionDef(name=name) | ast.Name(id=name, ctx=ast.Store()):
                yield name
            case ast.alias():
                yield node.asname or node.name


def _roots(node: ast.AST) -> bool:
    """Return whether a node imports from one of the SDKs."""
    if isinstance(node, ast.ImportFrom):
        return not node.level and _is_theirs(node.module or "")
    return isinstance(node, ast.Import) and any(_is_theirs(each.name) for each in node.names)


def _is_theirs(module: str) -> bool:
    return module.partition(".")[0] in names.ROOTS


class _Rewriting:
    """One file while it is rewritten."""

    def __init__(self, source: str, tree: ast.Module) -> None:
        self._source = source.encode()
        self._tree = tree
        self._lines = [0]
        for line in self._source.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))
        self._edits: list[_Edit] = []
        self.leftovers: list[Leftover] = []
        self._bound = set(_bound(tree))  # names that this file uses for something of its own
        self._local: dict[str, str] = {}  # names of this file to what they were imported as
        self._modules: set[str] = set()  # names of this file for whole modules
        self._types: set[str] = set()  # those of them that have the types of the protocol

    def text(self) -> str:
        """Return the source with all edits; edits inside of others do not happen."""
        result, at = bytearray(), 0
        for edit in sorted(self._edits):
            if edit.begin < at:
                continue
            result += self._source[at : edit.begin] + edit.text.encode()
            at = edit.end
        return (bytes(result) + self._source[at:]).decode()

    def do(self) -> None:
        """Find everything that has to change."""
        for node in ast.walk(self._tree):
            if isinstance(node, ast.ImportFrom) and _roots(node):
                self._import_from(node)
            elif isinstance(node, ast.Import) and _roots(node):
                self._import(node)
        servers, contexts, clients = self._servers(), self._contexts(), self._clients()
        for node in ast.walk(self._tree):
            match node:
                case ast.Name(id=name) if (
                    self._local.get(name) in names.SERVERS and name == (self._local[name])
                ):
                    self._replace(node, self._new_name(name))
                case ast.Call():
                    self._call(node, servers, clients)
                case ast.Attribute(value=ast.Name(id=owner), attr=member) if owner in contexts:
                    self._leave(node, names.CONTEXT_BY_HAND.get(member), f"ctx.{member}")
                case ast.Attribute(attr=member) if member in names.snake_members():
                    self._rename_member(node, names.snake_members()[member])

    # Places

    def _offset(self, line: int, column: int) -> int:
        return self._lines[line - 1] + column

    def _span(self, node: ast.AST) -> tuple[int, int]:
        begin = self._offset(node.lineno, node.col_offset)  # type: ignore[attr-defined]
        end = self._offset(node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]
        return begin, end

    def _replace(self, node: ast.AST, text: str) -> None:
        self._edits.append(_Edit(*self._span(node), text))

    def _rename_member(self, node: ast.Attribute, text: str) -> None:
        _, end = self._span(node)
        self._edits.append(_Edit(end - len(node.attr), end, text))

    def _rename_keyword(self, keyword: ast.keyword, text: str) -> None:
        begin, _ = self._span(keyword)
        self._edits.append(_Edit(begin, begin + len((keyword.arg or "").encode()), text))

    def _source_of(self, node: ast.AST) -> str:
        begin, end = self._span(node)
        return self._source[begin:end].decode()

    def _leave(self, node: ast.AST, advice: str | None, what: str) -> None:
        if advice is not None:
            self.leftovers.append(Leftover(node.lineno, f"{what}: {advice}"))  # type: ignore[attr-defined]

    # Imports

    def _new_name(self, name: str) -> str:
        """Return what a server is called in this file; a class of its own may have the name."""
        return "McpearlServer" if "Server" in self._bound else names.RENAMED[name]

    def _import_from(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        homes: dict[str, list[str]] = {}
        for alias in node.names:
            home, text = self._home(module, alias, node)
            homes.setdefault(home, []).append(text)
            self._local[alias.asname or alias.name] = alias.name
        order = sorted(homes, key=lambda home: (not home.startswith("mcpearl"), home))
        indent = " " * node.col_offset
        lines = [f"from {home} import {', '.join(sorted(homes[home]))}" for home in order]
        if order != [module]:
            self._replace(node, f"\n{indent}".join(lines))

    def _home(self, module: str, alias: ast.alias, node: ast.AST) -> tuple[str, str]:
        """Return the module a name comes from now, and how it is imported."""
        suffix = f" as {alias.asname}" if alias.asname else ""
        name = alias.name
        lowlevel = name == "Server" and module.startswith("mcp")
        if name == "types" and module == "mcp":
            self._types.add(alias.asname or name)
            return "mcpearl", "types" + suffix
        if module in ("mcp.types", "mcp") and name in names.type_names():
            return "mcpearl.types", name + suffix
        if name in names.RENAMED and not lowlevel:
            new = names.RENAMED[name]
            if name in names.SERVERS and not suffix and "Server" in self._bound:
                suffix = " as McpearlServer"
            return "mcpearl", new + suffix
        advice = names.BY_HAND.get(name, "it has no counterpart by this name")
        self._leave(node, advice, f"from {module} import {name}")
        return module, name + suffix

    def _import(self, node: ast.Import) -> None:
        texts = []
        for alias in node.names:
            if alias.name == "mcp.types":
                if alias.asname:
                    self._types.add(alias.asname)
                texts.append("mcpearl.types" + (f" as {alias.asname}" if alias.asname else ""))
            elif alias.name == "fastmcp":
                texts.append("mcpearl" + (f" as {alias.asname}" if alias.asname else ""))
                self._modules.add(alias.asname or alias.name)
            else:
                texts.append(self._source_of(alias))
                if _is_theirs(alias.name):
                    self._leave(node, "import the names that are used", f"import {alias.name}")
        self._replace(node, f"import {', '.join(texts)}")

    # What is what

    def _original(self, node: ast.AST) -> str | None:
        """Return the name that an expression was imported as."""
        match node:
            case ast.Name(id=name):
                return self._local.get(name)
            case ast.Attribute(value=ast.Name(id=module), attr=name) if (
                module in self._modules | self._types
            ):
                return name
            case ast.Subscript(value=value):
                return self._original(value)
        return None

    def _servers(self) -> set[str]:
        """Return the variables that hold a server."""
        return {*self._assigned(names.SERVERS), *self._annotated(names.SERVERS)}

    def _contexts(self) -> set[str]:
        return set(self._annotated({"Context"}))

    def _clients(self) -> set[str]:
        """Return the variables that hold a client of FastMCP."""
        found = set(self._assigned({"Client"}))
        for node in ast.walk(self._tree):
            if isinstance(node, ast.withitem) and isinstance(node.optional_vars, ast.Name):
                made = node.context_expr
                if isinstance(made, ast.Call) and self._original(made.func) == "Client":
                    found.add(node.optional_vars.id)
        return found

    def _assigned(self, kinds: set[str]) -> Iterator[str]:
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Call):
                if self._original(node.value.func) not in kinds:
                    continue
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                yield from (each.id for each in targets if isinstance(each, ast.Name))

    def _annotated(self, kinds: set[str]) -> Iterator[str]:
        for node in ast.walk(self._tree):
            if isinstance(node, ast.arg) and node.annotation is not None:
                parts = ast.walk(node.annotation)
                if any(self._original(part) in kinds for part in parts):
                    yield node.arg

    # Calls

    def _call(self, node: ast.Call, servers: set[str], clients: set[str]) -> None:
        original = self._original(node.func)
        if original in names.SERVERS:
            self._construction(node)
        elif original in names.type_names() and original not in names.RENAMED:
            self._snake_keywords(node)
        match node.func:
            case ast.Attribute(value=ast.Name(id=owner), attr=method) if owner in servers:
                self._method(node, node.func, method)
            case ast.Attribute(value=owner, attr=method) if self._original(owner) in names.SERVERS:
                self._leave(node, names.METHODS_BY_HAND.get(method), f".{method}()")
            case ast.Attribute(value=ast.Name(id=owner), attr="call_tool") if owner in clients:
                self._raise_on_error(node)
            case ast.Attribute(value=ast.Name(id=module), attr=name) if module in self._modules:
                if name in names.RENAMED:
                    self._edits.append(
                        _Edit(*self._span(node.func), f"mcpearl.{names.RENAMED[name]}")
                    )

    def _construction(self, node: ast.Call) -> None:
        from inspect import signature

        from mcpearl.server.server import Server

        known = signature(Server.__init__).parameters
        if len(node.args) > 1:  # FastMCP has instructions there, mcpearl the version
            begin, _ = self._span(node.args[1])
            self._edits.append(_Edit(begin, begin, "instructions="))
        if not node.args and not any(each.arg in ("name", None) for each in node.keywords):
            begin = self._span(node.func)[1]
            at = self._source.index(b"(", begin) + 1
            self._edits.append(_Edit(at, at, '"server"' + (", " if node.keywords else "")))
        for keyword in node.keywords:
            name = keyword.arg
            if name in names.SERVER_KEYWORDS:
                self._rename_keyword(keyword, names.SERVER_KEYWORDS[name])
            elif name is not None and name in names.OF_RUN:
                self._leave(keyword.value, "it belongs to `app.run(…)` now", f"{name}=")
            elif name is not None and name not in known:
                self._leave(keyword.value, "a server has no such option", f"{name}=")

    def _snake_keywords(self, node: ast.Call) -> None:
        for keyword in node.keywords:
            if keyword.arg in names.snake_members():
                self._rename_keyword(keyword, names.snake_members()[keyword.arg])

    def _method(self, node: ast.Call, function: ast.Attribute, method: str) -> None:
        if method in names.METHODS:
            self._rename_member(function, names.METHODS[method])
        elif method in ("tool", "prompt", "resource"):
            self._registration(node, method)
        elif method == "mount":
            self._mount(node)
        self._leave(node, names.METHODS_BY_HAND.get(method), f".{method}()")
        if method in ("run", "run_async"):
            self._run(node)

    def _registration(self, node: ast.Call, method: str) -> None:
        from mcpearl.server.registry.options import PromptOptions, ToolOptions

        kinds = {"tool": ToolOptions, "prompt": PromptOptions}
        if method not in kinds:
            return
        if node.args and not isinstance(node.args[0], ast.Name | ast.Attribute | ast.Lambda):
            begin, _ = self._span(node.args[0])
            self._edits.append(_Edit(begin, begin, "name="))
        for keyword in node.keywords:
            if keyword.arg and keyword.arg not in kinds[method].__annotations__:
                self._leave(keyword.value, f"a {method} has no such option", f"{keyword.arg}=")

    def _run(self, node: ast.Call) -> None:
        for number, keyword in enumerate(node.keywords):
            if keyword.arg in names.RUN_KEYWORDS:
                self._rename_keyword(keyword, names.RUN_KEYWORDS[keyword.arg])
            elif keyword.arg in names.RUN_DROPPED:
                self._drop(node, number)
            elif keyword.arg in names.RUN_BY_HAND:
                self._leave(keyword.value, names.RUN_BY_HAND[keyword.arg], f"{keyword.arg}=")

    def _drop(self, node: ast.Call, number: int) -> None:
        """Remove a keyword, with the comma before it or, of the first argument, after it."""
        begin, end = self._span(node.keywords[number])
        before = [self._span(each)[1] for each in (*node.args, *node.keywords[:number])]
        if before:
            begin = max(before)
        elif number + 1 < len(node.keywords):
            end = self._span(node.keywords[number + 1])[0]
        self._edits.append(_Edit(begin, end, ""))

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
            self._leave(node, 'give it a name: `app.mount("name", other)`', ".mount()")
            return
        begin = self._span(node.func)[1]
        end = self._span(node)[1]
        text = f"({self._source_of(name)}, {self._source_of(other)})"
        self._edits.append(_Edit(begin, end, text))

    def _raise_on_error(self, node: ast.Call) -> None:
        """Keep what FastMCP does: a tool that fails raises."""
        if any(each.arg in ("raise_on_error", None) for each in node.keywords):
            return
        last = max((self._span(each)[1] for each in (*node.args, *node.keywords)), default=0)
        if last:
            self._edits.append(_Edit(last, last, ", raise_on_error=True"))
