"""A change of a host's file: it is shown, a backup is kept, and it is written in one step."""

import difflib
import glob
import os
import tempfile
import time
from pathlib import Path

from mcpearl.cli.exits import CommandFailed
from mcpearl.cli.output import CommandOutput

_BACKUPS = 20  # kept of each file


def shown_change(out: CommandOutput, path: Path, before: str, after: str) -> list[str]:
    """Return the lines of a difference, in colour where there is colour."""
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), str(path), str(path), lineterm="", n=2
    )
    styles = {"+": {"fg": "green"}, "-": {"fg": "red"}, "@": {"fg": "cyan"}}
    return [out.styled(line, **styles.get(line[:1], {})) for line in lines]


def write(path: Path, text: str) -> Path | None:
    """Write a file in one step, after a copy of what it was; return where the copy is.

    A file that is a symbolic link is written where it points to. Its mode and the ends of its lines stay.
    """
    place = path.resolve()
    try:
        backup = _kept(place)
        place.parent.mkdir(parents=True, exist_ok=True)
        number, name = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name}.")
        try:
            with os.fdopen(number, "w", encoding="utf-8", newline=_line_end(place)) as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            mode = place.stat().st_mode & 0o7777 if place.exists() else 0o600
            Path(name).chmod(mode)
            Path(name).replace(place)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise CommandFailed(f"cannot write {path}: {error.strerror or error}") from None
    return backup


def _line_end(place: Path) -> str | None:
    """Return how lines of a file end; None, the way of this system, for one that is not there."""
    if not place.exists():
        return None
    return "\r\n" if b"\r\n" in place.read_bytes() else "\n"


def _kept(place: Path) -> Path | None:
    if not place.exists():
        return None
    stem = f"{place.name}.{time.strftime('%Y%m%d-%H%M%S')}"
    for number in range(1000):
        backup = place.with_name(f"{stem}{f'-{number}' if number else ''}.bak")
        try:
            with backup.open("xb") as copy:
                copy.write(place.read_bytes())
            backup.chmod(place.stat().st_mode & 0o7777)
        except FileExistsError:
            continue
        _forget_old(place)
        return backup
    raise CommandFailed(f"there are too many backups of {place}; remove some")


def _forget_old(place: Path) -> None:
    """Remove the oldest backups of a file; their names sort by time."""
    backups = sorted(place.parent.glob(f"{glob.escape(place.name)}.????????-??????*.bak"))
    for each in backups[:-_BACKUPS]:
        each.unlink(missing_ok=True)
