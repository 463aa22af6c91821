"""WebSocket: frames, the client's and the server's handshake, and under ASGI."""
