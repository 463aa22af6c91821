"""Rewrite programs of FastMCP and the official SDK for mcpearl."""

import difflib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from mcpearl.cli.command import make_command
from mcpearl.cli.exits import Exit, Failure
from mcpearl.cli.output import Output

_MOST = 10_000  # files of a directory
_PASSED_OVER = {"__pycache__", "node_modules", "site-packages"}


@make_command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--write", is_flag=True, help="Change the files, and do not only show how.")
def command(out: Output, paths: tuple[Path, ...], write: bool) -> int:
    """Rewrite programs of FastMCP 2 to 4 and of mcp 1 and 2 for mcpearl.

    PATHS are files and directories. The changes are shown, and made with --write. What has no counterpart
    stays and is listed; the exit code is 1 if there is any.
    """
    from mcpearl.cli.migrating.rewrite import rewrite

    results: list[dict[str, Any]] = []
    for path in _files(paths):
        try:
            before = path.read_text(encoding="utf-8")
            after, leftovers = rewrite(before)
            compile(after, str(path), "exec", dont_inherit=True)
        except (SyntaxError, UnicodeDecodeError, ValueError) as error:
            out.warning(f"{path} is not changed: {error}")
            continue
        if after == before and not leftovers:
            continue
        if write and after != before:
            path.write_text(after, encoding="utf-8")
        left = [{"line": each.line, "text": each.text} for each in leftovers]
        results.append({"path": str(path), "changed": after != before, "leftovers": left})
        if not out.as_json:
            _show(out, path, before, after)
    return _conclude(out, results, write)


def _files(paths: tuple[Path, ...]) -> Iterator[Path]:
    count = 0
    for path in paths:
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            parts = file.relative_to(path).parts if path.is_dir() else ()
            if any(part in _PASSED_OVER or part.startswith(".") for part in parts[:-1]):
                continue
            count += 1
            if count > _MOST:
                raise Failure(f"more than {_MOST:,} files; name a smaller directory", Exit.USAGE)
            yield file


def _show(out: Output, path: Path, before: str, after: str) -> None:
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


def _conclude(out: Output, results: list[dict[str, Any]], write: bool) -> int:
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
            out.line(f"  {each['path']}:{item['line']}: {item['text']}")
    changed = sum(each["changed"] for each in results)
    if changed:
        said = "were rewritten" if write else "would be rewritten; --write does it"
        out.note(f"{changed} files {said}")
    return Exit.FAILED if left else Exit.OK
