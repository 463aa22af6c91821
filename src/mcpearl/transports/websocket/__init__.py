"""WebSocket: frames, the handshakes of client and server, and WebSockets under ASGI."""
