"""`python -m mcpearl` is the command `mcpearl`."""

from mcpearl.cli.main import main

if __name__ == "__main__":
    main()
