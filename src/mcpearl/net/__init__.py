"""Sockets, TLS, HTTP and server-sent events. This package does not know MCP."""
