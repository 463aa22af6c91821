"""A plain install: the built wheel in an empty environment, with what it declares to need.

Nothing is downloaded. What the wheel needs is copied from the environment of these tests, which has
been installed from pinned files.
"""

import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name as normal

from tests.docs.blocks import ROOT, of_kind

SERVER, CLIENT = (block.text for block in of_kind("python") if block.page == "README.md")


class Installation:
    """An environment with mcpearl in it, and a home that is empty."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = folder / "environment"
        self.work = folder / "work"
        self.home = folder / "home"
        venv.create(self.environment, symlinks=True)
        [self.packages] = self.environment.glob("lib/python*/site-packages")
        self.work.mkdir()
        self.home.mkdir()
        self.wheel = self._build()
        self._pip("install", "--no-deps", "--no-index", "--no-compile", str(self.wheel))
        self.needed = self.copy(["mcpearl"])

    def _build(self) -> Path:
        out = self.folder / "wheels"
        subprocess.run(
            [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)],
            cwd=ROOT,
            check=True,
            timeout=200,
        )
        [wheel] = out.glob("*.whl")
        return wheel

    def _pip(self, *words: str) -> None:
        python = str(self.environment / "bin" / "python")
        line = ["--disable-pip-version-check", "-q", "--python", python, *words]
        subprocess.run([sys.executable, "-m", "pip", *line], check=True, timeout=200)

    def copy(self, names: Iterable[str]) -> set[str]:
        """Copy what packages need, and what that needs, from the environment of the tests."""
        here = str(self.packages)
        waiting, found = list(names), set[str]()
        while waiting:
            name = waiting.pop()
            places = [here] if name == "mcpearl" else sys.path
            distribution = next(iter(metadata.distributions(name=name, path=places)))
            if name != "mcpearl":
                found.add(name)
                self._copy(distribution)
            for text in distribution.requires or ():
                need = Requirement(text)
                wanted = need.marker is None or need.marker.evaluate({"extra": ""})
                if wanted and need.name not in found:
                    waiting.append(need.name)
        return found

    def _copy(self, distribution: metadata.Distribution) -> None:
        for file in distribution.files or ():
            source = Path(str(distribution.locate_file(file)))
            if ".." not in file.parts and source.is_file() and source.suffix != ".pyc":
                target = self.packages / file
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, target)

    def run(self, *words: str, cwd: Path | None = None) -> str:
        """Run a program of the environment, and return what it wrote."""
        program, *rest = words
        done = subprocess.run(
            [str(self.environment / "bin" / program), *rest],
            cwd=cwd or self.work,
            env={"PATH": f"{self.environment}/bin:{os.environ['PATH']}", "HOME": str(self.home)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
        return done.stdout


@pytest.mark.timeout(300)  # seconds of work, beside five other tests
def test_a_plain_install(tmp_path: Path) -> None:
    installed = Installation(tmp_path)
    has_the_library_and_the_command(installed)
    runs_the_first_server_and_client(installed)
    runs_and_tests_a_new_project(installed)


def has_the_library_and_the_command(installed: Installation) -> None:
    version = (ROOT / "src" / "mcpearl" / "_version.py").read_text()
    assert f'"{installed.wheel.name.split("-")[1]}"' in version
    pinned = (ROOT / "requirements" / "run.txt").read_text()
    run = {normal(name) for name in re.findall(r"^([\w.-]+)==", pinned, re.MULTILINE)}
    assert {normal(name) for name in installed.needed} <= run
    place = installed.run("python", "-c", "import mcpearl; print(mcpearl.__file__)")
    assert place.startswith(str(installed.packages))
    every = "import mcpearl; [getattr(mcpearl, name) for name in mcpearl.__all__]"
    installed.run("python", "-c", every)
    assert "migrate" in installed.run("mcpearl", "--help")


def runs_the_first_server_and_client(installed: Installation) -> None:
    (installed.work / "server.py").write_text(SERVER)
    (installed.work / "client.py").write_text(CLIENT)
    assert "sun in Oslo" in installed.run("mcpearl", "call", "server.py", "forecast", "city=Oslo")
    assert "sun in Oslo" in installed.run("python", "client.py")
    assert "forecast" in installed.run("mcpearl", "inspect", "server.py")


def runs_and_tests_a_new_project(installed: Installation) -> None:
    installed.run("mcpearl", "init", "hello")
    project = installed.work / "hello"
    server = "src/hello/server.py"
    assert installed.run("mcpearl", "call", server, "add", "a=2", "b=3", cwd=project).strip() == "5"
    installed.copy(["pytest"])
    assert " passed" in installed.run("python", "-m", "pytest", "-q", cwd=project)
