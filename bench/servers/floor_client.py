"""The least a client does: ``python floor_client.py <port> <calls>``, the request on standard input.

One keep-alive socket sends the given bytes and reads a response, again and again. Prints, as JSON, the
calls per second and the response, which has to be the same every time.
"""

import json
import socket
import sys
import time


def read_response(connection: socket.socket) -> bytes:
    """Read one response, whose length is in its head."""
    data = connection.recv(1 << 16)
    while b"\r\n\r\n" not in data:
        data += connection.recv(1 << 16)
    head, _, body = data.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
    while len(body) < length:
        body += connection.recv(1 << 16)
    return body


def main(port: int, calls: int, request: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(20):  # to warm up
            connection.sendall(request)
            expected = read_response(connection)
        started = time.perf_counter()
        for _ in range(calls):
            connection.sendall(request)
            if (body := read_response(connection)) != expected:
                sys.exit(f"another response: {body[:200]!r}")
        rate = calls / (time.perf_counter() - started)
    print(json.dumps({"rate": rate, "body": expected.decode()}))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.stdin.buffer.read())
