"""Subscriptions at upstreams that many clients make and forget: they are bounded, and come back."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from mcpearl import Client, McpError, Reconnect, Server
from mcpearl.gateway.gateway import Gateway
from mcpearl.gateway.settings import UpstreamSettings
from mcpearl.testing.clock import MovableClock
from tests.gateway.test_isolation import ADA, BOB, TOKENS
from tests.gateway.upstream_server import LEGACY, MODERN, make
from tests.ports import free_port
from tests.waiting import eventually

OF = {"legacy": LEGACY, "modern": MODERN}


@asynccontextmanager
async def gateway_to(upstream: Server, **options: Any) -> AsyncIterator[tuple[str, Gateway]]:
    gateway = Gateway({"up": upstream}, auth=TOKENS, eager=True, **options)
    async with gateway.serving("http", port=0) as url:
        yield url, gateway


def subscribed(upstream: Server) -> int:
    """How many resources the upstream has to announce changes of."""
    return sum(upstream.core.subscriptions.has(f"note://by/{number}") for number in range(400))


@pytest.mark.parametrize("versions", OF)
@pytest.mark.parametrize("era", OF)
async def test_a_client_that_subscribes_to_something_else_all_the_time(
    era: str, versions: str, clock: MovableClock
) -> None:
    upstream = make(OF[versions])
    async with (
        gateway_to(upstream) as (url, gateway),
        Client(url, protocol=OF[era][0], auth=ADA) as client,
    ):
        await client.subscribe("note://one")
        for number in range(400):
            uri = f"note://by/{number}"
            await client.subscribe(uri)
            await client.unsubscribe(uri)
            if number % 40 == 0:
                await clock.advance(31)
        await eventually(lambda: subscribed(upstream) < 200)
        assert len(gateway.upstreams["up"].subscriptions) < 200
        assert upstream.core.subscriptions.has("note://one")  # which it has followed all along


async def test_a_client_gets_its_share_of_subscriptions(clock: MovableClock) -> None:
    settings = UpstreamSettings(max_subscriptions=8)
    async with (
        gateway_to(make(MODERN), upstreams=settings) as (url, gateway),
        Client(url, protocol=LEGACY[0], auth=ADA) as ada,
        Client(url, protocol=LEGACY[0], auth=BOB) as bob,
    ):
        for number in range(4):
            await ada.subscribe(f"note://by/{number}")
        with pytest.raises(McpError, match=r"4 of 8 places .*max_subscriptions.*is its share"):
            await ada.subscribe("note://by/4")
        await bob.subscribe("note://by/0")  # which is followed already
        await bob.subscribe("note://by/5")
        for number in range(4):
            await ada.unsubscribe(f"note://by/{number}")
        await clock.advance(31)
        await ada.subscribe("note://by/4")  # the ones it let go make room
        assert len(gateway.upstreams["up"].subscriptions) == 3


async def test_subscriptions_come_back_with_another_client() -> None:
    """An upstream that was given up, and came back, announces what is followed."""
    heard: list[str] = []
    port = free_port()
    settings = UpstreamSettings(reconnect=Reconnect(delays=(0.05,), max_attempts=1), patience=30.0)
    gateway = Gateway({"up": f"http://127.0.0.1:{port}/mcp"}, upstreams=settings)

    def hear(notice: Any) -> None:
        if notice.method == "notifications/resources/updated":
            heard.append(notice.params.uri)

    async with Client(gateway, protocol=LEGACY[0], on_notification=hear) as client:
        async with make(MODERN).serving("http", port=port):
            await eventually(lambda: gateway.servers["up"].state == "ready")
            await client.subscribe("note://one")
        await eventually(lambda: gateway.servers["up"].state == "down")
        upstream = make(MODERN)
        async with upstream.serving("http", port=port):
            await eventually(lambda: upstream.core.subscriptions.has("note://one"))
            upstream.notify_resource_updated("note://one")
            await eventually(lambda: heard == ["note://one"])
