"""Writes the synchronous faces in `src/mcpearl/sync` from the asynchronous classes.

Every public method of `Client`, `ClientTask` and `Host` becomes one without `async`, with the same
signature and docstring, so that editors and type checkers see real code. `make sync` runs it; a test
compares what is there with what would be written.
"""

import ast
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "mcpearl"
GENERATED = "# Written by `make sync` from {sources}.\n"
ALWAYS = (
    "from collections.abc import Iterator",
    "from typing import TypeVar",
)  # ruff drops the rest
WORDS = {"`async for`": "`for`", "`async with`": "`with`"}
# A default that only a comment makes a type checker accept, which the syntax tree does not have.
IGNORED = {"kind: type[R] = Result,": "kind: type[R] = Result,  # type: ignore[assignment]"}

# What a method returns, and how its face is made.
RETURNS = {
    "Client": ("SyncClient", "SyncClient.of({value}, self._portal)"),
    "ClientTask": ("SyncClientTask", "SyncClientTask({value}, self._portal)"),
    "Subscription": ("SyncStream[Notice]", "SyncStream({value}, self._portal)"),
    "Changes": ("SyncStream[NodeChange]", "SyncStream({value}, self._portal)"),
    "Feed[HostChange]": ("SyncStream[HostChange]", "SyncStream({value}, self._portal)"),
}
THREADED = {"on_progress", "handler"}  # callbacks among the parameters of methods
BY_HAND = {"connect", "close"}


class Made(NamedTuple):
    """One module to write."""

    module: str
    sources: tuple[tuple[str, str], ...]  # module and class, the most special first
    opening: str  # imports and the beginning of the class, by hand


MODULES = (
    Made(
        "task",
        (("client/tasks/handle.py", "ClientTask"),),
        '''
"""A task at a server, for programs without an event loop."""

from mcpearl.client.tasks.handle import ClientTask
from mcpearl.sync.portal import Portal


class SyncClientTask:
    """A tool call that runs as a task at the server; see `ClientTask`.

    Args:
        inner: the asynchronous handle.
        portal: the loop it lives on.
    """

    def __init__(self, inner: ClientTask, portal: Portal) -> None:
        self._inner = inner
        self._portal = portal

    @property
    def id(self) -> str:
        """What the server knows the task by; empty for a call that was answered at once."""
        return self._inner.id

    def __iter__(self) -> Iterator[Task]:
        """Yield each state of the task, the last one when it has ended."""
        return self._portal.iterate(self._inner.__aiter__())

    def __repr__(self) -> str:
        return repr(self._inner)
''',
    ),
    Made(
        "client",
        (
            ("client/client.py", "Client"),
            ("client/calling.py", "Calling"),
            ("client/reading.py", "Reading"),
        ),
        '''
"""The client for programs without an event loop."""

from typing import Unpack

from mcpearl.client.client import Client
from mcpearl.client.options import ClientOptions
from mcpearl.client.targets import Reachable
from mcpearl.runtime.tree import NodeChange
from mcpearl.sync.face import Face, SyncStream, for_threads
from mcpearl.sync.portal import Portal, threaded
from mcpearl.sync.task import SyncClientTask


class SyncClient(Face[Client]):
    """A connection to one MCP server, for scripts and notebooks.

    It has the methods of `Client`, which wait. The connection lives on an event loop in a thread of its
    own, so it works where a loop is running already. Callbacks may be plain functions.

    >>> with SyncClient("server.py") as client:
    ...     print(client.call_tool("add", {"a": 1, "b": 2}).data)

    Args:
        target: what to connect to, as for `Client`.
        options: the options of `Client`.
    """

    def __init__(self, target: Reachable, **options: Unpack[ClientOptions]) -> None:
        super().__init__(Client(target, **for_threads(dict(options))))

    @classmethod
    def of(cls, client: Client, portal: Portal) -> "SyncClient":
        """Return the face of a client that a host has.

        Args:
            client: the client.
            portal: the loop it lives on.
        """
        made = cls.__new__(cls)
        Face.__init__(made, client, portal)
        return made
''',
    ),
    Made(
        "host",
        (("host/host.py", "Host"),),
        '''
"""The host for programs without an event loop."""

from typing import Unpack

from mcpearl.client.options import SharedOptions
from mcpearl.host.config import ConfigSource, HostConfig
from mcpearl.host.host import Host
from mcpearl.host.options import HostOptions
from mcpearl.runtime.tree import NodeChange
from mcpearl.sync.client import SyncClient
from mcpearl.sync.face import Face, SyncStream, for_threads
from mcpearl.sync.portal import threaded


class SyncHost(Face[Host]):
    """The servers of a configuration, for scripts and notebooks.

    It has the methods of `Host`, which wait. Callbacks may be plain functions.

    >>> with SyncHost("mcp.json") as host:
    ...     print([tool.name for tool in host.tools()])

    Args:
        source: a configuration, as for `Host`.
        options: the options of `Host`.
    """

    def __init__(self, source: ConfigSource | HostConfig, **options: Unpack[HostOptions]) -> None:
        super().__init__(Host(source, **for_threads(dict(options))))

    def __getitem__(self, server: str) -> SyncClient:
        """Return the client of a server; raises `ConnectionLost` with the reason if there is none."""
        return SyncClient.of(self._inner[server], self._portal)

    def __contains__(self, server: object) -> bool:
        return server in self._inner

    def __iter__(self) -> Iterator[str]:
        return iter(self._inner)

    def __len__(self) -> int:
        return len(self._inner)
''',
    ),
)


def write(made: Made) -> str:
    """Return the text of a module, before it is formatted."""
    trees = {path: ast.parse((SOURCE / path).read_text()) for path, _ in made.sources}
    body: list[str] = []
    seen: set[str] = set(BY_HAND)
    for path, name in made.sources:
        kind = next(n for n in trees[path].body if isinstance(n, ast.ClassDef) and n.name == name)
        own = [n for n in kind.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
        body += [
            method(each) for each in own if not each.name.startswith("_") and each.name not in seen
        ]
        seen |= {each.name for each in own}
    opening, start, cls = made.opening.strip().partition("\nclass ")
    text = f"{cls.rstrip()}\n\n" + "\n\n".join(body)
    known = _imports(trees.values())
    code = ast.parse(f"class {text}")
    names = {node.id for node in ast.walk(code) if isinstance(node, ast.Name)}
    have = {
        alias.name
        for node in ast.walk(ast.parse(opening))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    lines = sorted(known[name] for name in names & known.keys() - have)
    variables = [_type_variable(tree, name) for tree in trees.values() for name in sorted(names)]
    doc, _, imports = opening.partition("\n\n")
    note = GENERATED.format(sources=", ".join(path for path, _ in made.sources))
    defined = "\n".join(dict.fromkeys(line for line in variables if line))
    return "\n".join(
        [
            note + doc,
            "",
            *dict.fromkeys([*ALWAYS, *lines, *imports.splitlines()]),
            defined,
            "",
            start.strip("\n") + text,
            "",
        ]
    )


def method(source: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """Write the synchronous form of a method."""
    decorators = [ast.unparse(each) for each in source.decorator_list]
    returns = ast.unparse(source.returns) if source.returns else "None"
    form = "{value}"
    if returns.startswith("PagedItems["):
        returns = returns.replace("PagedItems", "Iterator", 1)
        call = f"self._portal.iterate(self._inner.{source.name}({_passed(source.args)}))"
    elif "property" in decorators:
        call = f"self._inner.{source.name}"
    elif isinstance(source, ast.AsyncFunctionDef):
        call = f"self._portal.run(self._inner.{source.name}({_passed(source.args)}))"
    else:
        given = _passed(source.args)
        given = (
            f", lambda: self._inner.{source.name}({given})"
            if given
            else f", self._inner.{source.name}"
        )
        call = f"self._portal.call({given[2:]})"
    if returns in RETURNS:
        returns, form = RETURNS[returns]
    doc = ast.get_docstring(source, clean=False) or ""
    for asynchronous, plain in WORDS.items():
        doc = doc.replace(asynchronous, plain)
    lines = [f"@{each}" for each in decorators]
    lines.append(f"def {source.name}({ast.unparse(source.args)}) -> {returns}:")
    if "overload" in decorators:
        lines[-1] += " ..."
    else:
        lines.append(f'    """{doc}"""')
        result = form.format(value=call)
        lines.append(f"    {result}" if returns == "None" else f"    return {result}")
    return "\n".join(
        "    " + line if number < len(lines) else line for number, line in enumerate(lines)
    )


def _passed(arguments: ast.arguments) -> str:
    """Write the arguments of a call that passes everything on."""
    positional = [each.arg for each in (*arguments.posonlyargs, *arguments.args)][1:]
    named = [each.arg for each in arguments.kwonlyargs]
    given = [_value(each) for each in positional] + [f"{each}={_value(each)}" for each in named]
    return ", ".join(given)


def _value(name: str) -> str:
    return f"threaded({name})" if name in THREADED else name


def _imports(trees: Iterable[ast.Module]) -> dict[str, str]:
    """Return the import of each name that the sources import."""
    return {
        alias.name: f"from {node.module} import {alias.name}"
        for tree in trees
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def _type_variable(tree: ast.Module, name: str) -> str:
    for node in tree.body:
        if (
            isinstance(node, ast.Assign)
            and ast.unparse(node.targets[0]) == name
            and isinstance(node.value, ast.Call)
            and ast.unparse(node.value.func) == "TypeVar"
        ):
            return ast.unparse(node)
    return ""


def main() -> int:
    """Write all modules, formatted."""
    paths = []
    for made in MODULES:
        path = SOURCE / "sync" / f"{made.module}.py"
        path.write_text(write(made))
        paths.append(str(path))
    ruff = str(Path(sys.executable).with_name("ruff"))
    subprocess.run([ruff, "format", "--quiet", *paths], check=True)
    subprocess.run([ruff, "check", "--fix", "--quiet", *paths], check=True)
    subprocess.run([ruff, "format", "--quiet", *paths], check=True)
    for path in map(Path, paths):
        text = path.read_text()
        for code, ignored in IGNORED.items():
            text = text.replace(code, ignored)
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
