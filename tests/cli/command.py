"""The command as `python -m mcpearl` runs it, with its modules loaded once: see `prepared`."""

import sys
from pathlib import Path

import mcpearl.__main__
import mcpearl.cli.commands.bench
import mcpearl.cli.commands.bridge
import mcpearl.cli.commands.call
import mcpearl.cli.commands.complete
import mcpearl.cli.commands.completion
import mcpearl.cli.commands.doctor
import mcpearl.cli.commands.inspect
import mcpearl.cli.commands.list
import mcpearl.cli.commands.ping
import mcpearl.cli.commands.read
import mcpearl.cli.commands.receipts
import mcpearl.cli.commands.run
import mcpearl.cli.commands.tasks
import mcpearl.cli.main
import mcpearl.client.client
import mcpearl.transports.http_client.transport
import mcpearl.transports.process

# The interpreter made its streams for what was open when the modules were loaded.
sys.stdin = open(0, closefd=False)  # noqa: SIM115
sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
sys.argv[0] = str(mcpearl.__main__.__file__)
sys.path[0] = str(Path.cwd())
mcpearl.__main__.main()
