"""Sockets, TLS, HTTP and server-sent events. Nothing in here knows MCP."""
