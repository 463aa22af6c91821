"""Running the command as a process, as people and scripts do."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

COMMAND = [sys.executable, "-m", "mcpearl"]


class Done(NamedTuple):
    """What a run of the command wrote, and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert self.code == 0, self.err
        return json.loads(self.out)


def environment(home: Path | None = None, **added: str) -> dict[str, str]:
    """Return the environment of a run, without what would change how output looks."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("MCPEARL_", "NO_COLOR"))}
    kept.pop("FORCE_COLOR", None)
    if home is not None:
        kept |= {"HOME": str(home), "XDG_CONFIG_HOME": str(home / ".config")}
    return {**kept, **added}


def mcpearl(
    *arguments: str | Path,
    cwd: Path | None = None,
    given: str = "",
    home: Path | None = None,
    **env: str,
) -> Done:
    """Run the command to its end."""
    done = subprocess.run(
        [*COMMAND, *map(str, arguments)],
        cwd=cwd,
        input=given,
        capture_output=True,
        text=True,
        timeout=100,
        env=environment(home, **env),
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)
