"""The server's side of HTTP: connections, requests, timeouts, compression."""
