"""The commands, one file each; see `mcpearl.cli`."""
