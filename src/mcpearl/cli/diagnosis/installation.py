"""What is installed here, and what hosts on this computer have."""

import platform
import shutil
import sys
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from mcpearl._version import __version__
from mcpearl.cli.diagnosis.state import Check, TakeCheck
from mcpearl.cli.installing.hosts import host_files
from mcpearl.cli.output import counted
from mcpearl.host.config import read_config

_OPTIONAL = {
    "pydantic": "models in signatures of tools",
    "keyring": "tokens in the keyring of the system",
    "zstandard": "responses compressed with zstd",
    "granian": "HTTP/2 to clients",
}
_PROGRAMS = {
    "node": "servers in JavaScript",
    "npx": "servers from npm",
    "uvx": "servers from package indexes",
}
_FEW_FILES = 1024


def examine_installation(found: TakeCheck) -> None:
    """Look at Python, the packages, programs that servers need, limits, and files of hosts."""
    found(Check("ok", "mcpearl", f"{__version__} in {Path(__file__).parents[2]}"))
    found(Check("ok", "Python", f"{platform.python_version()}, {sys.executable}"))
    found(Check("ok", "system", platform.platform()))
    for name in _needed():
        _package(found, name, None)
    for name, use in _OPTIONAL.items():
        _package(found, name, use)
    for name, use in _PROGRAMS.items():
        place = shutil.which(name)
        if place is None:
            found(Check("absent", name, f"not on the PATH; only needed for {use}"))
        else:
            found(Check("ok", name, place))
    _limits(found)
    _hosts(found)


def _needed() -> list[str]:
    """Return the packages that mcpearl cannot do without, as its metadata has them."""
    names = []
    for line in requires("mcpearl") or []:
        requirement, _, marker = line.partition(";")
        if "extra" in marker or ("win32" in marker and sys.platform == "win32"):
            continue
        name = requirement
        for mark in "<>=!~[ (":
            name = name.partition(mark)[0]
        names.append(name.strip())
    return names


def _package(found: TakeCheck, name: str, use: str | None) -> None:
    try:
        found(Check("ok", name, version(name)))
    except PackageNotFoundError:
        if use is None:
            found(Check("bad", name, "not installed", f"pip install {name}"))
        else:
            found(Check("absent", name, f"not installed; only needed for {use}"))


def _limits(found: TakeCheck) -> None:
    try:
        import resource
    except ImportError:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = soft <= _FEW_FILES
    hint = f"`ulimit -n {min(hard, 65536)}` before serving more" if few else ""
    found(Check("ok", "open files", f"up to {soft}, which is as many clients at once", hint))


def _hosts(found: TakeCheck) -> None:
    for file in host_files():
        if not file.path.exists():
            found(Check("absent", file.title, f"no {file.path}"))
            continue
        try:
            if file.is_yaml:
                found(
                    Check(
                        "ok",
                        file.title,
                        f"{counted(len(file.names(file.read())), 'server')} in {file.path}",
                    )
                )
                continue
            config = read_config(file.path)
        except ValueError as error:
            empty = "has no servers" in str(error)
            found(Check("absent" if empty else "bad", file.title, str(error)))
            continue
        found(Check("ok", file.title, f"{counted(len(config.entries), 'server')} in {file.path}"))
        for problem in (*config.problems, *config.notes):
            found(Check("bad", f"{file.title}, {problem.server}", problem.message))
        for name, entry in config.entries.items():
            if entry.command and not shutil.which(entry.command[0]):
                text = f"its command {entry.command[0]!r} is not there"
                found(
                    Check(
                        "bad", f"{file.title}, {name}", text, "install it, or write its whole path"
                    )
                )
