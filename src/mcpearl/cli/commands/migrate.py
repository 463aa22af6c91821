"""Rewrite programs of FastMCP and the official SDK for mcpearl."""

import difflib
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click

from mcpearl.cli.command import make_command
from mcpearl.cli.exits import CommandFailed, Exit
from mcpearl.cli.output import CommandOutput, counted

_MOST = 10_000  # files of a directory
_MARK = b"\xef\xbb\xbf"
_PASSED_OVER = {"__pycache__", "node_modules", "site-packages"}


@make_command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--write", is_flag=True, help="Change the files, and do not only show how.")
def command(out: CommandOutput, paths: tuple[Path, ...], write: bool) -> int:
    """Rewrite programs of FastMCP 2 to 4 and of mcp 1 and 2 for mcpearl.

    PATHS are files and directories. The changes are shown, and made with --write. A file that git could
    not bring back is copied beside itself first, with .bak at its end. What has no counterpart stays and
    is listed; the exit code is 1 if there is any.
    """
    from mcpearl.cli.migrating.rewrite import rewrite

    results: list[dict[str, Any]] = []
    files = list(_files(paths))
    servers = _servers(files)
    for path in files:
        try:
            file = _MigratedFile.read(path)
            before = file.text
            after, leftovers = rewrite(before, servers)
            compile(after, str(path), "exec", dont_inherit=True)
        except (SyntaxError, UnicodeDecodeError, ValueError, RecursionError) as error:
            out.warning(f"{path} is not changed: {error}")
            continue
        if after == before and not leftovers:
            continue
        if write and after != before:
            file.write(after)
        left = [{"line": each.line, "text": each.text} for each in leftovers]
        results.append({"path": str(path), "changed": after != before, "leftovers": left})
        if not out.as_json:
            _show(out, path, before, after)
    return _conclude(out, results, write)


def _servers(files: list[Path]) -> set[tuple[str, str]]:
    """Return the servers of all files: another file may import one, and register tools with it."""
    from mcpearl.cli.migrating.rewrite import servers_of

    found: set[tuple[str, str]] = set()
    for path in files:
        try:
            text = _MigratedFile.read(path).text
            if path.stem != "__init__":
                found |= servers_of(text, path.stem)
            else:  # `from package import app`, and `from . import app` in the package
                for module in (path.resolve().parent.name, ""):
                    found |= servers_of(text, module)
        except (SyntaxError, UnicodeDecodeError, ValueError, RecursionError):
            continue  # said when it is rewritten
    return found


class _MigratedFile(NamedTuple):
    """A file as it is on disk: its text, and how that was written."""

    path: Path
    text: str
    mark: bytes  # of the order of bytes, which some editors write first
    line_end: str

    @classmethod
    def read(cls, path: Path) -> "_MigratedFile":
        """Read a file in UTF-8; raises `UnicodeDecodeError` for one in another encoding."""
        content = path.read_bytes()
        mark = _MARK if content.startswith(_MARK) else b""
        text = content.removeprefix(mark).decode()
        is_windows = "\r\n" in text and "\n" not in text.replace("\r\n", "")
        if is_windows:
            text = text.replace("\r\n", "\n")
        return cls(path, text, mark, "\r\n" if is_windows else "\n")

    def write(self, text: str) -> None:
        """Put another text into the file, at once; keep a copy unless git has one."""
        original = self.path.read_bytes()
        if not _is_committed(self.path):
            copy = next(each for each in _copies(self.path) if not each.exists())
            copy.write_bytes(original)
        beside = self.path.with_name(f".{self.path.name}.migrating")
        beside.write_bytes(self.mark + text.replace("\n", self.line_end).encode())
        beside.chmod(self.path.stat().st_mode & 0o7777)
        beside.replace(self.path.resolve())


def _copies(path: Path) -> Iterator[Path]:
    yield path.with_name(f"{path.name}.bak")
    yield from (path.with_name(f"{path.name}.bak{number}") for number in range(1, _MOST))


def _is_committed(path: Path) -> bool:
    """Return whether git has a file as it is."""
    command = ["git", "status", "--porcelain", "--ignored", "--", path.name]
    try:
        done = subprocess.run(command, cwd=path.parent, capture_output=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0 and not done.stdout


def _files(paths: tuple[Path, ...]) -> Iterator[Path]:
    count = 0
    for path in paths:
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            parts = file.relative_to(path).parts if path.is_dir() else ()
            if any(part in _PASSED_OVER or part.startswith(".") for part in parts[:-1]):
                continue
            count += 1
            if count > _MOST:
                raise CommandFailed(
                    f"more than {_MOST:,} files; name a smaller directory", Exit.USAGE
                )
            yield file


def _show(out: CommandOutput, path: Path, before: str, after: str) -> None:
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), str(path), str(path), lineterm="", n=2
    )
    styles: dict[str, dict[str, Any]] = {
        "+": {"fg": "green"},
        "-": {"fg": "red"},
        "@": {"fg": "cyan"},
    }
    for line in lines:
        out.line(line, **styles.get(line[:1], {}))


def _conclude(out: CommandOutput, results: list[dict[str, Any]], write: bool) -> int:
    left = sum(len(each["leftovers"]) for each in results)
    if out.as_json:
        out.document({"files": results, "written": write})
        return Exit.FAILED if left else Exit.OK
    if not results:
        out.note("nothing of FastMCP or mcp was found")
    if left:
        out.line()
        out.heading(f"by hand ({left})")
    for each in results:
        for item in each["leftovers"]:
            out.prose(f"  {each['path']}:{item['line']}: {item['text']}", 2)
    changed = sum(each["changed"] for each in results)
    if changed:
        said = "rewritten" if write else "to rewrite; --write does it"
        out.note(f"{counted(changed, 'file')} {said}")
    return Exit.FAILED if left else Exit.OK
