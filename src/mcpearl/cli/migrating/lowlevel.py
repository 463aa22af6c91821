"""The rewriting of `mcp`'s low-level `Server`: its functions become what a `Handler` calls.

The functions stay where they are. A class in front of the server calls them by name, so they have to be
in the scope in which the server is made; a server whose functions are elsewhere is left, and listed.
"""

import ast
from collections.abc import Callable, Container, Iterator
from typing import NamedTuple

from mcpearl.cli.migrating.source import SourceFile

_BY_HAND = "write a `Handler`, with a method for each request, and `Server(name, handler=…)`"
_CLASS = "LowLevelHandler"
_PAGES = {
    "list_tools": ("ListToolsResult", "tools"),
    "list_resources": ("ListResourcesResult", "resources"),
    "list_resource_templates": ("ListResourceTemplatesResult", "resource_templates"),
    "list_prompts": ("ListPromptsResult", "prompts"),
}
_ONES = {"call_tool", "read_resource", "get_prompt", "subscribe_resource", "unsubscribe_resource"}
_NEEDLESS = {"set_logging_level": "the server keeps the level of each client by itself"}
_SCOPES = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef


class _Function(NamedTuple):
    """A function that answers a kind of request."""

    kind: str
    name: str
    node: ast.FunctionDef | ast.AsyncFunctionDef | None
    modern: bool  # of `mcp` 2: it takes a context and params

    @property
    def returns(self) -> str:
        """Return its annotation of what it returns."""
        returns = self.node.returns if self.node is not None else None
        return ast.unparse(returns) if returns is not None else ""

    def call(self, arguments: str) -> str:
        """Return the expression that calls it."""
        waits = self.node is None or isinstance(self.node, ast.AsyncFunctionDef)
        return f"{'await ' if waits else ''}{self.name}({arguments})"


class LowLevel:
    """The low-level servers of one file."""

    def __init__(
        self,
        source: SourceFile,
        tree: ast.Module,
        is_server: Callable[[ast.AST], bool],
        bound: set[str],
    ) -> None:
        self._source = source
        self._tree = tree
        self._is_server = is_server
        self._bound = bound
        self.names: set[str] = set()  # of mcpearl that the file needs now
        self.types: set[str] = set()
        self.decodes = False  # whether it uses msgspec
        self.servers: set[str] = set()  # the expressions that are servers now

    def needed(self, present: Container[str]) -> dict[str, set[str]]:
        """Return the names that the rewritten file needs and that are not `present`, by module.

        The module "" has whole imports.
        """
        if not self.names:
            return {}
        types = {name for name in self.types if name not in present}
        found = {"mcpearl": self.names} | ({"mcpearl.types": types} if types else {})
        if self.decodes:
            found[""] = {"import msgspec"}
        return found

    def rewrite(self) -> None:
        """Rewrite every server that can be."""
        for scope in ast.walk(self._tree):
            if not isinstance(scope, _SCOPES):
                continue
            for statement in _statements(scope):
                match statement:
                    case (
                        ast.Assign(targets=[target], value=ast.Call() as made)
                        | ast.AnnAssign(target=target, value=ast.Call() as made)
                    ) if self._is_server(made.func):
                        self._server(scope, statement, target, made)
                    case ast.Return(value=ast.Call() as made) if self._is_server(made.func):
                        self._server(scope, statement, None, made)

    def _server(
        self,
        scope: ast.Module | ast.FunctionDef | ast.AsyncFunctionDef,
        statement: ast.stmt,
        target: ast.expr | None,
        made: ast.Call,
    ) -> None:
        owner = self._source.of(target) if target is not None else ""
        functions = [*self._decorated(owner), *self._given(made)]
        local = set(_statements(scope))
        if not all(each.node is None or each.node in local for each in functions):
            self._source.leave(made, "Server(…)", _BY_HAND)
            return
        texts = [self._method(each) for each in functions]
        if not functions or None in texts or {"Handler", "Context", _CLASS} & self._bound:
            self._source.leave(made, "Server(…)", _BY_HAND)
            return
        self.servers.add(owner)
        self.names |= {"Handler", "Context", "Server"}
        self._insert(statement, [text for text in texts if text])
        self._construction(made, owner)
        for each in functions:
            self._undecorate(each, owner)
        if owner:
            self._running(owner, made)

    # What answers

    def _decorated(self, owner: str) -> Iterator[_Function]:
        for node in ast.walk(self._tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                for decorator in node.decorator_list:
                    kind = self._kind(decorator, owner)
                    if kind is not None:
                        yield _Function(kind, node.name, node, modern=False)

    def _kind(self, decorator: ast.expr, owner: str) -> str | None:
        match decorator:
            case ast.Call(func=ast.Attribute(value=value, attr=kind)) if (
                owner and self._source.of(value) == owner
            ):
                return kind
        return None

    def _given(self, made: ast.Call) -> Iterator[_Function]:
        """Yield the functions that `mcp` 2 is given as `on_list_tools=` and so on."""
        for keyword in made.keywords:
            if keyword.arg and keyword.arg.startswith("on_"):
                kind = keyword.arg.removeprefix("on_")
                yield _Function(kind, self._source.of(keyword.value), None, modern=True)

    def _method(self, function: _Function) -> str | None:
        """Return the method that calls a function, empty if none is needed, None if none can be made."""
        if function.kind in _NEEDLESS:
            return ""
        if function.node is not None and function.node.args.args:
            takes = len(function.node.args.args)
        else:
            takes = 0
        if function.kind in _PAGES:
            return None if takes and not function.modern else self._page(function)
        if function.kind not in _ONES:
            return None
        return {
            "call_tool": self._call_tool,
            "read_resource": self._read_resource,
            "get_prompt": self._get_prompt,
            "subscribe_resource": self._subscribe,
            "unsubscribe_resource": self._subscribe,
        }[function.kind](function)

    def _page(self, function: _Function) -> str:
        result, member = _PAGES[function.kind]
        self.types.add(result)
        if function.modern:
            self.types.add("PaginatedRequestParams")
            value = function.call("ctx, PaginatedRequestParams(cursor=cursor)")
        elif result in function.returns:
            value = function.call("")
        else:
            value = f"{result}({member}=[*{function.call('')}])"
        return (
            f"async def {function.kind}(self, cursor: str | None, ctx: Context) -> {result}:\n"
            f"    return {value}\n"
        )

    def _call_tool(self, function: _Function) -> str:
        self.types |= {"CallToolRequestParams", "CallToolResult"}
        self.decodes = True
        head = (
            "async def call_tool(self, params: CallToolRequestParams, ctx: Context) -> CallToolResult:\n"
            '    arguments = msgspec.json.decode(params.arguments or b"{}")\n'
        )
        if function.modern:
            made = "msgspec.structs.replace(params, arguments=arguments)"
            return f"{head}    return {function.call(f'ctx, {made}')}\n"
        call = function.call("params.name, arguments")
        if "CallToolResult" in function.returns:
            return f"{head}    return {call}\n"
        if function.returns.lower().startswith("dict"):
            self.types.add("TextContent")
            return (
                f"{head}    result = {call}\n"
                "    text = TextContent(text=msgspec.json.encode(result).decode())\n"
                "    return CallToolResult(content=[text], structured_content=result)\n"
            )
        return f"{head}    return CallToolResult(content=[*{call}])\n"

    def _read_resource(self, function: _Function) -> str | None:
        self.types.add("ReadResourceResult")
        head = "async def read_resource(self, uri: str, ctx: Context) -> ReadResourceResult:\n"
        if function.modern:
            self.types.add("ReadResourceRequestParams")
            value = function.call("ctx, ReadResourceRequestParams(uri=uri)")
            return f"{head}    return {value}\n"
        call = function.call(self._uri(function))
        if "ReadResourceResult" in function.returns:
            return f"{head}    return {call}\n"
        if function.returns != "str":
            return None
        self.types.add("TextResourceContents")
        return (
            f"{head}    text = {call}\n"
            "    return ReadResourceResult(contents=[TextResourceContents(uri=uri, text=text)])\n"
        )

    def _get_prompt(self, function: _Function) -> str:
        self.types.add("GetPromptResult")
        if function.modern:
            self.types.add("GetPromptRequestParams")
            value = function.call("ctx, GetPromptRequestParams(name=name, arguments=arguments)")
        else:
            value = function.call("name, arguments")
        return (
            "async def get_prompt(\n"
            "    self, name: str, arguments: dict[str, str], ctx: Context\n"
            f") -> GetPromptResult:\n    return {value}\n"
        )

    def _subscribe(self, function: _Function) -> str | None:
        if function.modern:
            return None
        kind = function.kind.removesuffix("_resource")
        call = function.call(self._uri(function))
        return f"async def {kind}(self, uri: str, ctx: Context) -> None:\n    {call}\n"

    def _uri(self, function: _Function) -> str:
        """Return the URI as a function takes it; `mcp` 1 has objects for them."""
        first = function.node.args.args[0].annotation if function.node is not None else None
        return "AnyUrl(uri)" if first is not None and "AnyUrl" in ast.unparse(first) else "uri"

    # Where it stands

    def _insert(self, statement: ast.stmt, methods: list[str]) -> None:
        indent = " " * statement.col_offset
        lines = [
            f"class {_CLASS}(Handler):",
            '    """Answers requests with the functions of this file."""',
        ]
        for method in methods:
            lines += ["", *(f"    {line}" for line in method.splitlines())]
        lines += ["", ""] if not indent else [""]
        text = "".join(f"{indent}{line}\n" if line else "\n" for line in lines)
        at = self._source.line_begin(statement.lineno)
        self._source.edit(at, at, text)

    def _construction(self, made: ast.Call, owner: str) -> None:
        if isinstance(made.func, ast.Subscript):
            self._source.replace(made.func, self._source.of(made.func.value))
        kept = [each for each in made.keywords if not (each.arg or "").startswith("on_")]
        arguments = [self._source.of(each) for each in (*made.args, *kept)]
        version = self._version(owner)
        if version and not any(each.arg == "version" for each in kept):
            arguments.append(f"version={version}")
        begin = self._source.span(made.func)[1]
        text = f"({', '.join([*arguments, f'handler={_CLASS}()'])})"
        self._source.edit(begin, self._source.span(made)[1], text)

    def _version(self, owner: str) -> str | None:
        """Return the version that the server was run with."""
        for call in self._runs(owner):
            for argument in call.args:
                if isinstance(argument, ast.Call):
                    for keyword in argument.keywords:
                        if keyword.arg == "server_version" and isinstance(
                            keyword.value, ast.Constant
                        ):
                            return self._source.of(keyword.value)
        return None

    def _undecorate(self, function: _Function, owner: str) -> None:
        if function.node is None:
            return
        for decorator in function.node.decorator_list:
            if self._kind(decorator, owner) is not None:
                self._source.remove_lines(
                    decorator.lineno, decorator.end_lineno or decorator.lineno
                )
        what = f"@{owner}.{function.kind}()"
        self._source.leave(function.node, what, _NEEDLESS.get(function.kind))

    # How it runs

    def _runs(self, owner: str) -> Iterator[ast.Call]:
        for node in ast.walk(self._tree):
            match node:
                case ast.Call(func=ast.Attribute(value=value, attr="run"), args=[_, _, *_]) if (
                    self._source.of(value) == owner
                ):
                    yield node

    def _running(self, owner: str, made: ast.Call) -> None:
        runs = {id(call): call for call in self._runs(owner)}
        for node in ast.walk(self._tree):
            match node:
                case ast.AsyncWith(items=[ast.withitem(context_expr=ast.Call(func=function))]) if (
                    self._source.of(function).endswith("stdio_server")
                ):
                    inside = [each for each in ast.walk(node) if id(each) in runs]
                    if inside and self._unwrap(node):
                        for call in inside:
                            self._source.replace(call, f"{owner}.serve()")
                            del runs[id(call)]
                case ast.Assign(value=ast.Call(func=ast.Attribute(value=value, attr=attr))) if (
                    attr == "create_initialization_options" and self._source.of(value) == owner
                ):
                    self._source.remove_lines(node.lineno, node.end_lineno or node.lineno)
                case ast.Attribute(value=value, attr="request_context") if (
                    self._source.of(value) == owner
                ):
                    advice = f"pass the `ctx` of the methods of {_CLASS} on to the function"
                    self._source.leave(node, f"{owner}.request_context", advice)
        for call in runs.values():
            self._source.leave(
                call, f"{owner}.run(…)", '`await app.serve("http", …)`, or `app.asgi()`'
            )

    def _unwrap(self, node: ast.AsyncWith) -> bool:
        """Take the body of a `with` out of it; not if a text goes over several lines there."""
        first, last = node.body[0], node.body[-1]
        for each in ast.walk(node):
            if isinstance(each, ast.Constant | ast.JoinedStr) and each.lineno != each.end_lineno:
                return False
        if first.lineno == node.lineno:
            return False
        self._source.edit(
            self._source.line_begin(node.lineno), self._source.line_begin(first.lineno), ""
        )
        width = first.col_offset - node.col_offset
        for line in range(first.lineno, (last.end_lineno or last.lineno) + 1):
            at = self._source.line_begin(line)
            if self._source.line_begin(line + 1) - at > first.col_offset:
                self._source.edit(at, at + width, "")
        return True


def _statements(scope: ast.AST) -> Iterator[ast.stmt]:
    """Yield the statements of a scope, not those of functions and classes in it."""
    for node in ast.iter_child_nodes(scope):
        if isinstance(node, ast.stmt):
            yield node
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield from _statements(node)
