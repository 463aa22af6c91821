"""What `mcpearl doctor` looks at: this installation, or the way to one server."""
