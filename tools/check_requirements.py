"""Check the requirement files without a network: each entry is one exact version with its hashes.

An entry is `name==version`, perhaps for some versions of Python only (`; python_version < "3.13"`), and
at least one `--hash=sha256:…`, continued over lines with a backslash.
Nothing names an address: where packages come from is for the machine that installs them to say. What
a file includes with `-r` has no other version of the same package. `pin_requirements.py` writes hashes.
"""

import re
import sys
from pathlib import Path
from typing import NamedTuple

FILES = Path(__file__).resolve().parent.parent / "requirements"

_NAME = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)==([0-9][A-Za-z0-9.!+]*)$")
_MARKER = re.compile(r'; python_version (?:<|>=) "3\.[0-9]+"')
_HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}$")
_INCLUDED = re.compile(r"-r ([a-z0-9-]+\.txt)$")


class Pin(NamedTuple):
    """One entry of a requirement file."""

    name: str
    version: str
    hashes: tuple[str, ...]


class Requirements(NamedTuple):
    """A requirement file: its pins, the files it includes, and what is wrong with it."""

    pins: list[Pin]
    included: list[str]
    faults: list[str]


def normal(name: str) -> str:
    """Return the name of a package in the form in which names are compared."""
    return re.sub(r"[-_.]+", "-", name).lower()


def entries(text: str) -> list[str]:
    """Return the entries of a requirement file, each on one line, without comments."""
    joined = text.replace("\\\n", " ")
    lines = (re.sub(r"(^|\s)#.*", "", line).strip() for line in joined.splitlines())
    return [line for line in lines if line]


def read(text: str) -> Requirements:
    """Read a requirement file."""
    found = Requirements([], [], [])
    for entry in entries(text):
        if match := _INCLUDED.fullmatch(entry):
            found.included.append(match[1])
            continue
        first, *hashes = _MARKER.sub("", entry, count=1).split()
        match = _NAME.fullmatch(first)
        if match is None:
            found.faults.append(f"{entry[:80]!r} is not `name==version`")
            continue
        bad = [each for each in hashes if not _HASH.fullmatch(each)]
        if bad:
            found.faults.append(f"{first}: {bad[0][:80]!r} is not `--hash=sha256:…`")
        elif not hashes:
            found.faults.append(f"{first} has no hashes")
        found.pins.append(Pin(normal(match[1]), match[2], tuple(hashes)))
    return found


def check(folder: Path) -> list[str]:
    """Return what is wrong with the requirement files of a folder."""
    files = {path.name: read(path.read_text()) for path in sorted(folder.glob("*.txt"))}
    faults = [] if files else [f"there are no requirement files in {folder}"]
    for name, found in files.items():
        faults += [f"{name}: {fault}" for fault in found.faults]
        versions: dict[str, str] = {}
        for other in (name, *_all_included(name, files)):
            if other not in files:
                faults.append(f"{name}: includes {other}, which is not there")
                continue
            for pin in files[other].pins:
                if versions.setdefault(pin.name, pin.version) != pin.version:
                    faults.append(f"{name}: {pin.name} is pinned to two versions")
        names = [pin.name for pin in found.pins]
        faults += [
            f"{name}: {each} stands there twice" for each in set(names) if names.count(each) > 1
        ]
    return faults


def _all_included(name: str, files: dict[str, Requirements]) -> list[str]:
    """Return the files that a file includes, also by way of others."""
    found: list[str] = []
    waiting = list(files[name].included)
    while waiting:
        other = waiting.pop()
        if other not in found:
            found.append(other)
            waiting += files[other].included if other in files else []
    return found


def main() -> None:
    """Report what is wrong, and exit with 1 if anything is."""
    faults = check(FILES)
    for fault in faults:
        print(f"requirements/{fault}", file=sys.stderr)
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
