"""From `FILE[:app]` to a `Server`: loads the file or module, and finds the server in it."""

import importlib
import importlib.util
import inspect
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from mcpearl.cli.exits import CommandFailed, Exit, NoServer
from mcpearl.cli.target import refuse_missing
from mcpearl.runtime.arguments import did_you_mean
from mcpearl.server.server import Server

_USUAL = ("app", "server", "mcp", "main")


def split_name(target: str) -> tuple[str, str | None]:
    """Split `server.py:app` into the file and the name; `server.py` has no name."""
    place, colon, name = target.rpartition(":")
    if colon and name.replace(".", "").isidentifier() and "/" not in name:
        return place, name
    return target, None


def load_server(target: str) -> Server:
    """Load a file or module and return its server.

    Args:
        target: `server.py`, `server.py:app`, `package.module`, or `package.module:app`.
    """
    place, name = split_name(target)
    try:
        module = _load_file(Path(place)) if place.endswith(".py") else _load_module(place)
    except CommandFailed:
        raise
    except Exception as error:
        raise CommandFailed(f"{place} cannot be loaded:\n{_story(error)}") from None
    return _named(module, name, place) if name else _only(module, place)


def _load_file(path: Path) -> ModuleType:
    refuse_missing(str(path))
    path = path.resolve()
    root, dotted = _package_of(path)
    sys.path.insert(0, str(root))
    if "." in dotted:
        return importlib.import_module(dotted)
    # A name of its own: `server.py` must not stand in for, or be taken for, a module of that name.
    name = dotted if dotted.isidentifier() and dotted not in _taken() else f"_served_{id(path)}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise CommandFailed(f"{path} cannot be loaded as Python", Exit.USAGE)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _story(error: Exception) -> str:
    """Return the traceback of a file that could not be loaded, from that file on."""
    trace = error.__traceback__
    while trace is not None and _is_ours(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    return "".join(traceback.format_exception(type(error), error, trace)).rstrip()


def _is_ours(file: str) -> bool:
    return file in (__file__, importlib.__file__) or file.startswith("<frozen importlib")


def _taken() -> set[str]:
    return set(sys.modules) | set(sys.stdlib_module_names)


def _package_of(path: Path) -> tuple[Path, str]:
    """Return the directory that a file is imported from, and its dotted name there."""
    parts, root = [path.stem], path.parent
    while (root / "__init__.py").is_file():
        parts.insert(0, root.name)
        root = root.parent
    return root, ".".join(parts)


def _load_module(name: str) -> ModuleType:
    sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not name.startswith(error.name):
            raise
        raise CommandFailed(
            f"there is no file or module {name!r}",
            Exit.USAGE,
            "write the path of a .py file, such as `server.py`, or `package.module:app`",
        ) from None


def _named(module: ModuleType, name: str, place: str) -> Server:
    value: Any = module
    for part in name.split("."):
        if not hasattr(value, part):
            raise NoServer(f"{place} has no {name!r}{did_you_mean(part, vars(module))}", Exit.USAGE)
        value = getattr(value, part)
    if isinstance(value, Server):
        return value
    if callable(value):
        return _made(value, f"{place}:{name}")
    raise NoServer(f"{place}:{name} is {type(value).__name__}, not an mcpearl `Server`", Exit.USAGE)


def _made(factory: Any, place: str) -> Server:
    """Call a function that makes a server."""
    value = factory()
    if inspect.iscoroutine(value):
        value.close()
        raise NoServer(f"{place} is async: make the server in a plain function", Exit.USAGE)
    if not isinstance(value, Server):
        raise NoServer(f"{place}() returned {type(value).__name__}, not a `Server`", Exit.USAGE)
    return value


def _only(module: ModuleType, place: str) -> Server:
    """Return the one server of a module: an object, or else what its one factory makes."""
    found = {name: each for name, each in vars(module).items() if isinstance(each, Server)}
    if len(set(map(id, found.values()))) > 1:
        usual = [name for name in _USUAL if name in found]
        if not usual:
            raise CommandFailed(
                f"{place} has several servers: {', '.join(found)}",
                Exit.USAGE,
                f"say which: `{place}:{next(iter(found))}`",
            )
        return found[usual[0]]
    if found:
        return next(iter(found.values()))
    makers = [each for each in vars(module).values() if _makes_server(each, module)]
    if len(makers) == 1:
        return _made(makers[0], place)
    raise NoServer(
        f"{place} has no `Server` at its top level",
        Exit.USAGE,
        f'make one there: `app = Server("name")`; or name a function that returns one: `{place}:make`',
    )


def _makes_server(value: Any, module: ModuleType) -> bool:
    if not inspect.isfunction(value) or value.__module__ != module.__name__:
        return False
    signature = inspect.signature(value)
    needs = [p for p in signature.parameters.values() if p.default is p.empty]
    return not needs and signature.return_annotation in (Server, "Server")
