"""Make a new project: a server, tests, pyproject.toml, README."""

import keyword
import re
import shlex
from importlib.util import find_spec
from pathlib import Path

import click

from mcpearl.cli.command import make_command
from mcpearl.cli.exits import CommandFailed, Exit
from mcpearl.cli.output import CommandOutput


@make_command()
@click.argument("directory", default=".", type=click.Path(file_okay=False, path_type=Path))
@click.option("--name", help="The project's name; by default the directory's.")
def command(out: CommandOutput, directory: Path, name: str | None) -> None:
    """Make a new project: a server, tests, pyproject.toml, README.

    Nothing that exists is overwritten.
    """
    from mcpearl.cli.project.files import project_files

    chosen = name or directory.resolve().name
    package = re.sub(r"\W+", "_", chosen.lower()).strip("_")
    if not package.isidentifier() or keyword.iskeyword(package) or package in ("mcpearl", "tests"):
        raise CommandFailed(
            f"{chosen!r} cannot be the name of a package", Exit.USAGE, "pass --name"
        )
    files = project_files(package)
    there = [path for path in files if (directory / path).exists()]
    if there:
        raise CommandFailed(
            f"{directory / there[0]} exists already; nothing was written",
            Exit.USAGE,
            "name another directory",
        )
    for path, text in files.items():
        place = directory / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
    _write(out, directory, package, list(files))


def _write(out: CommandOutput, directory: Path, package: str, files: list[str]) -> None:
    server = f"src/{package}/server.py"
    steps = [
        [f"mcpearl dev {server}", "serve it while you write it"],
        [f"mcpearl call {server} add a=2 b=3", "call a tool"],
        ["python -m pytest", "run the tests"],
        [f"mcpearl install {server}", "put it into the hosts on this computer"],
    ]
    if find_spec("pytest") is None:
        steps.insert(2, ["python -m pip install pytest", "once, for the tests"])
    if directory.resolve() != Path.cwd():
        steps.insert(0, [f"cd {shlex.quote(str(directory))}", "go there"])

    def text() -> None:
        out.line(f"{len(files)} files in {directory.resolve()}:")
        for each in files:
            out.line(f"  {each}")
        out.line()
        out.line("Next:")
        out.table((), steps, 2)

    out.show({"directory": str(directory.resolve()), "package": package, "files": files}, text)
