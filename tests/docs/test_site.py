"""The documentation builds as a site: every page in its place, no dead link, every public name."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import mcpearl

ROOT = Path(__file__).parents[1]


@pytest.mark.timeout(400)  # half a minute of work, beside five other tests
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    docs, site = tmp_path / "docs", tmp_path / "site"
    shutil.copytree(ROOT / "docs", docs, ignore=shutil.ignore_patterns("_build", "reference"))
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", docs, site],
        env={**os.environ, "QUICK": "1"},
        capture_output=True,
        text=True,
        timeout=350,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    listed = (site / "llms.txt").read_text()
    for page in (ROOT / "docs").glob("*.md"):
        assert page.stem == "index" or f"({page.name})" in listed, f"{page.name} is in no section"
    text = "".join(page.read_text() for page in (site / "reference").glob("*.html"))
    entries = set(re.findall(r'id="mcpearl\.(\w+)"', text))
    missing = [
        name
        for name in mcpearl.__all__
        if name not in entries
        and not getattr(getattr(mcpearl, name), "__module__", "mcpearl.types").startswith(
            ("mcpearl.types", "mcpearl.auth", "mcpearl.testing")
        )
    ]
    assert missing in ([], ["__version__"])
