"""The least an ASGI application can do, on uvicorn: ``python echo_http.py <port>``.

It reads the body and returns it.
"""

import sys
from collections.abc import Awaitable, Callable
from typing import Any

import uvicorn


async def echo(
    scope: dict[str, Any],
    receive: Callable[[], Awaitable[dict[str, Any]]],
    send: Callable[[dict[str, Any]], Awaitable[None]],
) -> None:
    body, more = b"", True
    while more:
        event = await receive()
        body += event["body"]
        more = event.get("more_body", False)
    headers = [(b"content-length", b"%d" % len(body)), (b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


if __name__ == "__main__":
    uvicorn.run(
        echo,
        port=int(sys.argv[1]),
        http="httptools",
        loop="uvloop",
        ws="none",
        lifespan="off",
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
    )
