"""The package `mcpearl.types`: every public name, loaded when first used."""

import ast
import pathlib
import subprocess
import sys

import pytest

from mcpearl import types

HERE = pathlib.Path(types.__file__).parent


def loaded_after(statement: str) -> set[str]:
    code = f"{statement}\nimport sys\nprint(*[m for m in sys.modules if m.startswith('mcpearl')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def public_names(path: pathlib.Path) -> set[str]:
    names = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    return {name for name in names if not name.startswith("_")} - {"T"}


def test_importing_the_package_loads_no_module_of_it() -> None:
    assert not {m for m in loaded_after("import mcpearl.types") if m.startswith("mcpearl.types.")}


def test_a_name_loads_its_module_and_what_that_needs() -> None:
    loaded = loaded_after("from mcpearl.types import RequestParams")
    assert {m for m in loaded if m.startswith("mcpearl.types.")} == {"mcpearl.types.base"}


def test_every_public_name_of_every_module_is_there() -> None:
    modules = [path for path in HERE.glob("*.py") if path.name != "__init__.py"]
    assert set(types.__all__) == set().union(*map(public_names, modules))
    assert dir(types) == sorted(types.__all__)


@pytest.mark.parametrize("name", types.__all__)
def test_a_name_is_the_one_of_its_module(name: str) -> None:
    value = getattr(types, name)
    if isinstance(value, type):
        assert getattr(sys.modules[value.__module__], value.__name__) is value


def test_type_checkers_see_the_same_names() -> None:
    guarded = next(
        node
        for node in ast.parse((HERE / "__init__.py").read_text()).body
        if isinstance(node, ast.If)
    )
    seen = {alias.name for node in guarded.body for alias in node.names}  # type: ignore[attr-defined]
    assert seen == set(types.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Hologram"):
        types.Hologram  # noqa: B018
