"""What `mcpearl init` writes."""
