"""The server's side of Streamable HTTP, and of HTTP+SSE of 2024-11-05."""
