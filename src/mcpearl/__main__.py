"""The entry of the command `mcpearl`, which `python -m mcpearl` is, too."""

import sys
from typing import NoReturn


def main() -> NoReturn:
    """Load the command and run it; Ctrl-C while it is loaded ends it as it does later."""
    try:
        from mcpearl.cli.main import main as run
    except KeyboardInterrupt:
        sys.stderr.write("mcpearl: interrupted\n")
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
