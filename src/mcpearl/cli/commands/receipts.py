"""Verify, prove and read the receipts of a server."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from mcpearl.cli.command import make_command
from mcpearl.cli.exits import CommandFailed, Exit
from mcpearl.cli.output import CommandOutput

_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_EITHER = click.Path(exists=True, path_type=Path)
_FIRST = ("method", "name")  # what a reader looks for
_DIGESTS = ("arguments", "result")


@click.group()
def command() -> None:
    """Verify, prove and read the receipts of a server."""


@make_command("verify")
@click.argument("path", type=_EITHER)
@click.option("--key", "keys", multiple=True, required=True, help="A key, or a file with keys.")
@click.option("--since", type=_FILE, help="A checkpoint of the log as it was before.")
@click.option("--partial", is_flag=True, help="The first files may be missing.")
@click.option("--contents", type=_FILE, help="Arguments or a result to compare with a record.")
@click.option("--salt", help="The salt of these contents.")
def verify(
    out: CommandOutput,
    path: Path,
    keys: tuple[str, ...],
    since: Path | None,
    partial: bool,
    contents: Path | None,
    salt: str | None,
) -> int:
    """Verify the folder of a log, or a proof of one record.

    It prints one line. The exit code is 0 if everything is as it was written, 1 if not, and 2 if that
    cannot be told.
    """
    from mcpearl.receipts import verifier

    try:
        line = verifier.verify(path, verifier.load_keys(list(keys)), since, partial=partial)
        if contents is not None:
            line += f"; {verifier.compare(path, contents, salt)}"
        line = verifier.printable(line)
    except verifier.Discrepancy as fault:
        problem = verifier.printable(str(fault))
        out.show(
            {"genuine": False, "fault": problem}, lambda: out.line(f"NOT as written: {problem}")
        )
        return Exit.FAILED
    except (ValueError, OSError) as error:
        raise CommandFailed(str(error), Exit.USAGE) from None
    out.show({"genuine": True, "detail": line}, lambda: out.line(line))
    return Exit.OK


@make_command("prove")
@click.argument("id")
@click.argument("folder", type=_FOLDER, default="receipts")
@click.option(
    "--key", "keys", multiple=True, help="A key, or a file; by default the keys in the log."
)
@click.option("--output", type=_FOLDER, default=".", help="Where to write the proofs.")
def prove(out: CommandOutput, id: str, folder: Path, keys: tuple[str, ...], output: Path) -> None:
    """Write proofs that records are in a log: those of a call, or the one with a number."""
    from mcpearl.receipts import proofs, verifier

    try:
        trusted = verifier.load_keys(list(keys)) if keys else None
        found = proofs.prove(folder, id, trusted)
    except proofs.NoSuchRecord as error:
        raise CommandFailed(str(error), Exit.NOT_FOUND) from None
    except verifier.Discrepancy as fault:
        raise CommandFailed(f"the log is not as it was written: {fault}") from None
    except ValueError as error:
        raise CommandFailed(str(error), Exit.USAGE) from None
    for name, text in found.items():
        (output / name).write_text(text)
    files = [str(output / name) for name in found]
    out.show({"files": files}, lambda: out.line("\n".join(files)))


@make_command("show")
@click.argument("folder", type=_FOLDER, default="receipts")
@click.option("--call", "call", help="Only the records of this call.")
@click.option("--unfinished", is_flag=True, help="Only calls that have not ended.")
def show(out: CommandOutput, folder: Path, call: str | None, unfinished: bool) -> None:
    """Write the records of a log, without verifying it.

    On a terminal, times are in milliseconds and only the first digits of digests are shown.
    """
    from mcpearl.receipts import proofs

    try:
        for number, record in proofs.unfinished(folder) if unfinished else proofs.records(folder):
            if call is not None and record.get("call") != call:
                continue
            if out.as_json:
                out.event({"number": number, **record})
            else:
                out.line(_described(number, record, shortened=out.tty))
    except proofs.RecordUnreadable as error:
        raise CommandFailed(str(error)) from None


def _described(number: int, record: dict[str, Any], *, shortened: bool) -> str:
    at = datetime.fromtimestamp(record["at"], UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
    if shortened:
        at = at[:-3]
        record = {name: _shortened(name, value) for name, value in record.items()}
    rest = [
        f"{name}={_on_one_line(record[name])}"
        for name in sorted(record, key=lambda name: name not in _FIRST)
        if name not in ("kind", "at", "call")
    ]
    shown = (str(number), at, record["kind"], record.get("call", ""), *rest)
    return "  ".join(part for part in shown if part)


def _shortened(name: str, value: Any) -> Any:
    if name == "duration" and isinstance(value, float):
        return f"{value * 1000:.3f}ms"
    return f"{value[:8]}…" if name in _DIGESTS and isinstance(value, str) else value


def _on_one_line(value: object) -> str:
    """Return a value as text that cannot be taken for another value or record: clients choose names."""
    text = str(value)
    return text if text.isprintable() and " " not in text else ascii(text)


@make_command("salt")
@click.argument("call")
@click.argument("folder", type=_FOLDER, default="receipts")
@click.option("--key", "key", type=_FILE, required=True, help="The private key of the log.")
def salt(out: CommandOutput, call: str, folder: Path, key: Path) -> None:
    """Write the salts of a call, with which its contents can be compared with its records."""
    from mcpearl.receipts import keys, proofs

    try:
        arguments, result = proofs.salts_of(key, call, folder)
    except (proofs.NoSuchRecord, proofs.RecordUnreadable, keys.KeyUnusable) as error:
        raise CommandFailed(str(error), Exit.USAGE) from None
    found = {"arguments": arguments.hex(), "result": result.hex()}
    out.show(found, lambda: out.table((), list(found.items())))


@make_command("rotate")
@click.argument("key", type=_FILE)
def rotate(out: CommandOutput, key: Path) -> None:
    """Put a new key in front of those in a key file; servers sign with it from their next start."""
    from mcpearl.receipts import keys

    try:
        new = keys.rotate(key)
    except keys.KeyUnusable as error:
        raise CommandFailed(str(error), Exit.USAGE) from None
    out.show({"key": new.vkey}, lambda: out.line(new.vkey))


for each in (verify, prove, show, salt, rotate):
    command.add_command(each)
