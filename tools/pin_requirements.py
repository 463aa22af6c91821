"""Write the hashes of every pinned package into the requirement files.

    python tools/pin_requirements.py https://…/simple

The argument is the address of a package index with the simple interface (PEP 503). Of each release all
files are taken that some Python from 3.11 on can install: wheels of every system, and the source. The
versions are those in the files; comments and the order of entries stay as they are.
"""

import html
import re
import sys
import urllib.request

from check_requirements import FILES, normal

_LINK = re.compile(r'<a\s[^>]*href="([^"#]+)#sha256=([0-9a-f]{64})"[^>]*>')
_ENTRY = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==([^\s\\]+)")
_OLD = re.compile(
    r"^(cp2\d*|cp3\d|cp310|pp\d+|graalpy\d+|py2)$"
)  # Pythons before 3.11, and other ones
_SOURCES = (".tar.gz", ".zip")


def hashes_of(name: str, version: str, index: str) -> list[str]:
    """Return the hashes of the files of a release, in order."""
    with urllib.request.urlopen(f"{index.rstrip('/')}/{normal(name)}/") as page:
        links = _LINK.findall(page.read().decode())
    found = {digest for url, digest in links if _fits(html.unescape(url), name, version)}
    if not found:
        sys.exit(f"the index has no file of {name} {version}")
    return sorted(found)


def _fits(url: str, name: str, version: str) -> bool:
    """Whether a file belongs to the release, and a Python from 3.11 on can install it."""
    file = url.rsplit("/", 1)[-1]
    if file.endswith(".whl"):
        parts = file.removesuffix(".whl").split("-")
        is_old = _OLD.match(parts[-3]) and parts[-2] != "abi3"
        return normal(parts[0]) == normal(name) and parts[1] == version and not is_old
    ending = next((each for each in _SOURCES if file.endswith(each)), None)
    if ending is None:
        return False
    stem, _, found = file.removesuffix(ending).rpartition("-")
    return normal(stem) == normal(name) and found == version


def pinned(text: str, index: str) -> str:
    """Return a requirement file with the hashes of today in it."""
    lines = []
    for line in text.splitlines():
        if match := _ENTRY.match(line):
            print(match[0], file=sys.stderr)
            hashes = [f"    --hash=sha256:{each}" for each in hashes_of(match[1], match[2], index)]
            lines.append(" \\\n".join([match[0], *hashes]))
        elif not line.lstrip().startswith("--hash="):
            lines.append(line)
    return "\n".join(lines) + "\n"


def main() -> None:
    """Rewrite the requirement files."""
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    for path in sorted(FILES.glob("*.txt")):
        path.write_text(pinned(path.read_text(), sys.argv[1]))


if __name__ == "__main__":
    main()
