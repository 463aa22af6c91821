"""What `help()` and an editor show of the public names: real signatures, types that resolve, and
every parameter documented.
"""

import ast
import importlib
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Unpack, get_type_hints

import msgspec
import pytest

import mcpearl
import mcpearl.auth
import mcpearl.schema
import mcpearl.testing
import mcpearl.types

# Public, but not exported by the package itself: they are named in the documentation.
DOCUMENTED = (
    "mcpearl.client.cache.ResponseCache",
    "mcpearl.client.subscription.Subscription",
    "mcpearl.console.standalone.serving_console",
    "mcpearl.runtime.backoff.Backoff",
    "mcpearl.server.extensions.method",
    "mcpearl.server.tasks.extension.TasksExtension",
    "mcpearl.server.tasks.options.TaskBounds",
    "mcpearl.telemetry.behind.Behind",
    "mcpearl.telemetry.recent.RecentCalls",
)

ROOT = Path(__file__).parent.parent
FAULTS = ("crash", "cut", "drop", "duplicate", "freeze", "garble", "reorder", "slow")

NAMES = [
    *(name for name in mcpearl.__all__ if name != "__version__"),
    *(f"mcpearl.auth.{name}" for name in mcpearl.auth.__all__),
    *(f"mcpearl.testing.{name}" for name in mcpearl.testing.__all__ if name != "WIRES"),
    *(f"mcpearl.testing.faults.{name}" for name in FAULTS),
    *(f"mcpearl.schema.{name}" for name in mcpearl.schema.__all__),
    *DOCUMENTED,
]
FUNCTIONS_OF_TYPES = [
    f"mcpearl.types.{name}"
    for name in mcpearl.types.__all__
    if inspect.isfunction(getattr(mcpearl.types, name))
]


DOCUMENTATION = [*ROOT.glob("docs/**/*.md"), ROOT / "README.md"]
_IMPORTED = re.compile(r"from (mcpearl[\w.]*) import (\([^)]*\)|[^\n#]+)")


def imported(text: str) -> set[str]:
    """Return the names that a page imports from the package."""
    return {
        f"{module}.{name}".removeprefix("mcpearl.") if module == "mcpearl" else f"{module}.{name}"
        for module, names in _IMPORTED.findall(text)
        for name in re.findall(r"(\w+)(?: as \w+)?(?:,|$)", re.sub(r"[()\s]+$|^\(", "", names))
    }


def resolve(name: str) -> Any:
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module or "mcpearl"), attribute)


def functions(value: Any) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield the constructor and the public methods that a class of the package defines."""
    if not isinstance(value, type):
        yield value.__name__, value
        return
    seen: set[str] = set()  # what a class overrides is not shown of its bases
    for kind in value.__mro__:
        if not kind.__module__.startswith("mcpearl"):
            continue
        own = [(name, member) for name, member in vars(kind).items() if name not in seen]
        seen |= vars(kind).keys()
        for name, member in own:
            function = member.__func__ if isinstance(member, staticmethod | classmethod) else member
            if not inspect.isfunction(function) or not function.__module__.startswith("mcpearl"):
                continue  # such as the constructor that every `Protocol` has
            if name == "__init__" or not name.startswith("_"):
                yield name, inspect.unwrap(function)


def properties(value: Any) -> Iterator[Callable[..., Any]]:
    if isinstance(value, type):
        for _, member in inspect.getmembers(value, lambda each: isinstance(each, property)):
            yield member.fget


def parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    everything = inspect.signature(function).parameters.values()
    return [p for p in everything if p.name not in ("self", "cls")]


def documented(doc: str | None) -> set[str]:
    """Return the parameters that a docstring has under `Args:`."""
    _, found, section = (doc or "").partition("Args:\n")
    if not found:
        return set()
    section = re.split(r"\n\s*\n|\n(?=\S)", section, maxsplit=1)[0]
    return set(re.findall(r"^\*{0,2}(\w+):", textwrap.dedent(section), re.MULTILINE))


def inherited(value: Any, method: str) -> str | None:
    """Return the docstring of what a class overrides."""
    bases = value.__mro__[1:] if isinstance(value, type) else ()
    found = (inspect.getdoc(vars(each)[method]) for each in bases if method in vars(each))
    return next(found, None)


def field_docs(struct: type) -> set[str]:
    """Return the fields of a record that have a docstring of their own, below them in the source."""
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(struct))).body
    assert isinstance(body, ast.ClassDef)
    return {
        field.target.id
        for field, text in zip(body.body, body.body[1:], strict=False)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
    }


@pytest.mark.parametrize("name", NAMES)
def test_annotations_resolve(name: str) -> None:
    value = resolve(name)
    get_type_hints(value)
    for _, function in functions(value):
        hints = get_type_hints(function)
        assert not [p.name for p in parameters(function) if p.name not in hints]
    for getter in properties(value):
        assert "return" in get_type_hints(getter)


@pytest.mark.parametrize("name", mcpearl.types.__all__)
def test_annotations_of_types_resolve(name: str) -> None:
    value = getattr(mcpearl.types, name)
    if isinstance(value, type):
        assert get_type_hints(value) or not getattr(value, "__struct_fields__", ())


@pytest.mark.parametrize("name", NAMES)
def test_signatures_say_what_is_accepted(name: str) -> None:
    value = resolve(name)
    for method, function in functions(value):
        untyped = [
            p.name
            for p in parameters(function)
            if p.kind is inspect.Parameter.VAR_KEYWORD
            and get_type_hints(function).get(p.name, Any) in (Any, Unpack[Any])
        ]
        assert not untyped, f"`{name}.{method}` accepts anything as `**{untyped[0]}`"


@pytest.mark.parametrize("name", [*NAMES, *FUNCTIONS_OF_TYPES])
def test_parameters_are_documented(name: str) -> None:
    value = resolve(name)
    assert inspect.getdoc(value)
    for method, function in functions(value):
        found = documented(inspect.getdoc(function)) or documented(inherited(value, method))
        if method == "__init__":
            found |= documented(inspect.getdoc(value))
        missing = [p.name for p in parameters(function) if p.name not in found]
        assert not missing, f"`{name}.{method}` does not document {', '.join(missing)}"


RECORDS = [
    name
    for name in NAMES
    if isinstance(resolve(name), type) and issubclass(resolve(name), msgspec.Struct)
]


@pytest.mark.parametrize("name", RECORDS)
def test_fields_are_documented(name: str) -> None:
    record = resolve(name)
    found = documented(inspect.getdoc(record))
    for kind in record.__mro__:
        if kind.__module__.startswith("mcpearl"):
            found |= field_docs(kind)
    assert not [field for field in record.__struct_fields__ if field not in found]


def test_what_the_documentation_imports_is_looked_at_here() -> None:
    known = {*NAMES, *(f"mcpearl.types.{name}" for name in mcpearl.types.__all__)}
    found = set().union(*(imported(page.read_text()) for page in DOCUMENTATION))
    assert {"Server", "mcpearl.schema.compile_schema"} <= found
    assert found <= known


def test_undocumented_parameters_are_found() -> None:
    def one(first: int, second: int) -> None:
        """Do it.

        Args:
            first: the first.
                second: not a parameter, but a continued line.
            third: not a parameter of this one.

        second: no longer in the section.
        """

    assert documented(inspect.getdoc(one)) == {"first", "third"}
    assert documented("No section.") == set()
