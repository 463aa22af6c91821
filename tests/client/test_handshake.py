"""Finding out what a server speaks, and remembering it."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mcpearl import (
    Client,
    ConnectionLost,
    Context,
    InvalidResult,
    McpearlError,
    McpError,
    RequestTimeout,
    Server,
)
from mcpearl.client import handshake
from mcpearl.protocol.versions import SUPPORTED
from mcpearl.testing.clock import MovableClock
from tests.faults.proxy import FaultProxy
from tests.ports import free_port
from tests.waiting import eventually

from .peers import (
    DISCOVERED,
    INITIALIZED,
    Error,
    Peer,
    Script,
    client_of,
    legacy_peer,
    modern_peer,
)


def an_app(**options: Any) -> Server:
    app = Server("era", version="1.2.3", instructions="Ask me.", **options)

    @app.tool
    async def add(a: int, b: int) -> int:
        return a + b

    return app


async def test_auto_prefers_the_modern_era() -> None:
    async with Client(an_app()) as client:
        assert (client.era, client.protocol_version) == ("modern", "2026-07-28")
        assert client.server_info is not None
        assert (client.server_info.name, client.server_info.version) == ("era", "1.2.3")
        assert client.instructions == "Ask me."
        assert client.server_capabilities.tools is not None


@pytest.mark.parametrize("version", SUPPORTED)
async def test_each_version_can_be_asked_for(version: str) -> None:
    async with Client(an_app(), protocol=version) as client:
        assert client.protocol_version == version
        result = await client.call_tool("add", {"a": 1, "b": 2})
        assert result.content[0].text == "3"


@pytest.mark.parametrize("version", SUPPORTED)
async def test_auto_finds_the_one_version_a_server_speaks(version: str) -> None:
    async with Client(an_app(versions=(version,))) as client:
        assert client.protocol_version == version
        assert (await client.call_tool("add", {"a": 1, "b": 2})).content[0].text == "3"


def test_an_unknown_version_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match=r"2026-07-28.*2024-11-05|2024-11-05.*2026-07-28"):
        Client(an_app(), protocol="1999-01-01")


@pytest.mark.parametrize("code", [-32601, -32602, -32600, -32603, -32700, -32000, 0, 42])
async def test_any_error_that_is_not_modern_means_legacy(code: int) -> None:
    peer = legacy_peer()
    peer["server/discover"] = lambda _: Error(code, "what?")
    async with await client_of(peer) as client:
        assert client.era == "legacy"
    methods = [m["method"] for m in peer.received]
    assert methods == ["server/discover", "initialize", "notifications/initialized"]


@asynccontextmanager
async def after_a_silent_probe(peer: Peer, clock: MovableClock) -> AsyncIterator[Client]:
    """A client of a peer that leaves the probe unanswered: it sends `initialize` after five seconds."""

    async def let_time_pass() -> None:
        await eventually(lambda: peer.asked("server/discover"))
        await clock.advance(3)
        assert not peer.asked("initialize")
        await clock.advance(3)

    passing = asyncio.ensure_future(let_time_pass())
    async with await client_of(peer) as client:
        await passing
        yield client


async def test_silence_means_legacy(clock: MovableClock) -> None:
    peer = legacy_peer()
    peer["server/discover"] = lambda _: None
    async with after_a_silent_probe(peer, clock) as client:
        assert client.era == "legacy"


@pytest.mark.parametrize(
    "result", [{}, {"supportedVersions": "all"}, [], 7, {"supportedVersions": ["2025-11-25"]}]
)
async def test_a_discover_result_that_is_not_valid_means_legacy(result: Any) -> None:
    peer = legacy_peer()
    peer["server/discover"] = lambda _: result
    async with await client_of(peer) as client:
        assert client.era == "legacy"


async def test_garbage_in_front_of_the_answer_does_no_harm() -> None:
    peer = modern_peer()

    def discover(message: dict[str, Any]) -> dict[str, Any]:
        for junk in (b"Listening on stdio...", b"{", b"[]", b"null", b'{"jsonrpc":"2.0"}', b"\xff"):
            peer.send_raw(junk)
        return DISCOVERED

    peer["server/discover"] = discover
    async with await client_of(peer) as client:
        assert client.era == "modern"


async def test_an_unsupported_version_is_answered_with_one_both_speak() -> None:
    peer = modern_peer()
    asked: list[Any] = []

    def discover(message: dict[str, Any]) -> Any:
        asked.append(message["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"])
        if len(asked) == 1:
            return Error(-32022, "Unsupported", {"supported": ["2027-01-01", "2026-07-28"]})
        return DISCOVERED

    peer["server/discover"] = discover
    async with await client_of(peer) as client:
        assert client.protocol_version == "2026-07-28"
    assert len(asked) == 2
    assert not peer.asked("initialize")


async def test_a_modern_server_without_a_common_version_is_not_asked_to_initialize() -> None:
    peer = legacy_peer()
    peer["server/discover"] = lambda _: Error(-32022, "No", {"supported": ["2099-01-01"]})
    client = await client_of(peer)
    with pytest.raises(McpError, match="2099-01-01"):
        await client.connect()
    assert not peer.asked("initialize")


async def test_a_discover_result_without_a_common_version_is_a_clear_error() -> None:
    peer = legacy_peer()
    peer["server/discover"] = lambda _: DISCOVERED | {"supportedVersions": ["2099-01-01"]}
    client = await client_of(peer)
    with pytest.raises(McpearlError, match=r"2099-01-01.*2026-07-28"):
        await client.connect()
    assert not peer.asked("initialize")


async def test_an_offer_of_legacy_versions_only_is_taken() -> None:
    peer = legacy_peer()
    peer["server/discover"] = lambda _: Error(-32022, "No", {"supported": ["2025-11-25"]})
    async with await client_of(peer) as client:
        assert client.protocol_version == "2025-11-25"


@pytest.mark.parametrize("answered", ["1999-01-01", "2026-07-28", "", "latest"])
async def test_initialize_answered_with_an_unknown_version_is_refused(answered: str) -> None:
    peer = legacy_peer()
    peer["initialize"] = lambda _: INITIALIZED | {"protocolVersion": answered}
    client = await client_of(peer)
    with pytest.raises(InvalidResult, match="protocol version"):
        await client.connect()
    assert not peer.asked("notifications/initialized")
    assert peer.lost


@pytest.mark.parametrize("result", [{}, [], "hello", INITIALIZED | {"capabilities": 3}])
async def test_initialize_answered_with_an_invalid_result_is_refused(result: Any) -> None:
    peer = legacy_peer()
    peer["initialize"] = lambda _: result
    with pytest.raises(InvalidResult, match="initialize"):
        await (await client_of(peer)).connect()


async def test_initialize_that_is_never_answered_fails_and_is_not_cancelled() -> None:
    peer = legacy_peer()
    peer["initialize"] = lambda _: None
    client = await client_of(peer, connect_timeout=1)
    with pytest.raises(TimeoutError, match="initialize"):
        await client.connect()
    assert not peer.asked("notifications/cancelled")  # the specification forbids it


async def test_a_server_that_ends_while_the_probe_times_out_is_a_lost_connection() -> None:
    """Both in one turn of the loop: there is nobody left to say `initialize` to."""
    peer = Peer()

    def say_nothing_and_go(message: dict[str, Any]) -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(0.06, target._end)  # the probe has half of the time to connect
        loop.call_soon(time.sleep, 0.1)

    peer["server/discover"] = say_nothing_and_go
    target = await peer.target()
    with pytest.raises(ConnectionLost):
        await Client(target, connect_timeout=0.1).connect()
    assert not peer.asked("initialize")


async def test_initialize_cancelled_by_the_caller_sends_no_cancellation() -> None:
    peer = legacy_peer()
    peer["initialize"] = lambda _: None
    connecting = asyncio.ensure_future((await client_of(peer)).connect())
    while not peer.asked("initialize"):
        await asyncio.sleep(0)
    connecting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await connecting
    assert not peer.asked("notifications/cancelled")
    assert peer.lost


def slow_to_start(initialize: Any) -> Peer:
    """A modern server that begins to read, and to answer in order, when `initialize` is there."""
    peer = Peer(server_discover=lambda _: DISCOVERED if peer.asked("initialize") else None)

    def started(message: dict[str, Any]) -> Any:
        peer.send(id=peer.asked("server/discover")[0]["id"], result=DISCOVERED)
        return initialize

    peer["initialize"] = started
    return peer


@pytest.mark.parametrize("initialize", [INITIALIZED, Error(-32601, "speak 2026-07-28"), None])
async def test_a_modern_server_that_is_slow_to_start_is_modern(
    initialize: Any, clock: MovableClock
) -> None:
    peer = slow_to_start(initialize)
    async with after_a_silent_probe(peer, clock) as client:
        assert client.era == "modern"
        await client.ping()
    assert not peer.asked("notifications/initialized")


async def test_a_modern_server_may_answer_the_probe_last(clock: MovableClock) -> None:
    def refuse(message: dict[str, Any]) -> Any:
        peer.send(id=message["id"], error={"code": -32601, "message": "speak 2026-07-28"})
        peer.send(id=peer.asked("server/discover")[0]["id"], result=DISCOVERED)

    peer = Peer(server_discover=lambda _: None, initialize=refuse)
    async with after_a_silent_probe(peer, clock) as client:
        assert client.era == "modern"


async def test_a_server_that_starts_slowly_is_not_remembered_as_legacy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshake, "_PROBE_PATIENCE", 0.001)
    server = Script(
        tmp_path,
        """
        asked = messages()
        probe, opening = next(asked), next(asked)  # both have come once it is up
        answer(probe, DISCOVERED)
        answer(opening, INITIALIZED)
        for message in asked:
            pass
        """,
    )
    for _ in range(2):
        async with Client(server.path) as client:
            assert client.era == "modern"
    assert server.methods()[:2] == ["server/discover", "initialize"]


async def test_a_handshake_without_an_answer_names_its_setting_and_shows_stderr(
    tmp_path: Path,
) -> None:
    server = Script(
        tmp_path, "print('Downloading…', file=sys.stderr, flush=True)\nsys.stdin.read()"
    )
    with pytest.raises(RequestTimeout) as caught:
        await Client(server.path, connect_timeout=3.0).connect()
    assert "a larger `connect_timeout`" in str(caught.value)
    assert "Downloading…" in str(caught.value)


async def test_a_script_that_serves_nothing_is_told_what_is_missing(tmp_path: Path) -> None:
    script = tmp_path / "server.py"
    script.write_text("from mcpearl import Server\napp = Server('idle')\n")
    with pytest.raises(ConnectionLost, match=r"exited with code 0 .* `app\.run\(\)`"):
        await Client(script).connect()


async def test_a_listener_asks_a_modern_server_for_log_messages() -> None:
    heard: list[str] = []
    app = Server("talkative")

    @app.tool
    async def speak(ctx: Context) -> None:
        await ctx.log("debug", "quietly")

    async with Client(app, on_log=lambda message: heard.append(message.data)) as client:
        await client.call_tool("speak")
        await eventually(lambda: heard == ["quietly"])
    async with Client(app, on_log=heard.append, log_level="error") as client:
        await client.call_tool("speak")
    assert heard == ["quietly"]


async def test_a_server_that_refuses_both_ways_is_not_probed_twice() -> None:
    peer = Peer(
        server_discover=lambda _: Error(-32601, "no"), initialize=lambda _: Error(-32000, "go away")
    )
    with pytest.raises(McpError, match="go away"):
        await (await client_of(peer)).connect()
    assert [m["method"] for m in peer.received] == ["server/discover", "initialize"]


async def test_an_explicit_version_sends_no_probe() -> None:
    peer = legacy_peer()
    async with await client_of(peer, protocol="2025-11-25") as client:
        assert client.protocol_version == "2025-11-25"
    assert not peer.asked("server/discover")
    assert peer.asked("initialize")[0]["params"]["protocolVersion"] == "2025-11-25"


async def test_another_version_than_the_explicit_one_is_refused_and_both_are_named() -> None:
    peer = legacy_peer()
    with pytest.raises(McpearlError, match=r"speaks 2025-11-25.* only 2025-06-18"):
        await (await client_of(peer, protocol="2025-06-18")).connect()
    assert not peer.asked("notifications/initialized")


async def test_a_modern_server_without_the_explicit_version_is_refused() -> None:
    peer = modern_peer()
    peer["server/discover"] = lambda _: {**DISCOVERED, "supportedVersions": ["2099-01-01"]}
    with pytest.raises(McpearlError, match=r"speaks 2099-01-01.* only 2026-07-28"):
        await (await client_of(peer, protocol="2026-07-28")).connect()


LEGACY_SCRIPT = """
    welcome(modern=False)
    for message in messages():
        pass
"""


async def test_the_era_is_remembered_by_target(tmp_path: Path) -> None:
    server = Script(tmp_path, LEGACY_SCRIPT)
    for _ in range(2):
        async with Client(server.path) as client:
            assert client.era == "legacy"
    session = ["initialize", "notifications/initialized"]
    assert server.methods() == ["server/discover", *session, *session]


async def test_silence_is_remembered_where_initialize_was_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshake, "_PROBE_PATIENCE", 0.001)
    server = Script(
        tmp_path,
        """
        for message in messages():
            if message["method"] == "initialize":
                answer(message, INITIALIZED)
        """,
    )
    for _ in range(2):
        async with Client(server.path) as client:
            assert client.era == "legacy"
    assert server.methods().count("server/discover") == 1


async def test_another_environment_is_another_target(tmp_path: Path) -> None:
    server = Script(tmp_path, LEGACY_SCRIPT)
    for number in "12":
        async with Client(server.path, env={"NUMBER": number}):
            pass
    assert server.methods().count("server/discover") == 2


async def test_a_remembered_era_that_turns_out_wrong_is_found_out_again(tmp_path: Path) -> None:
    upgraded = tmp_path / "upgraded"
    server = Script(
        tmp_path,
        f"""
        if os.path.exists({str(upgraded)!r}):
            send(id=next(messages())["id"], error={{"code": -32601, "message": "initialize?"}})
            welcome()
        else:
            welcome(modern=False)
        for message in messages():
            pass
        """,
    )
    async with Client(server.path) as client:
        assert client.era == "legacy"
    upgraded.touch()
    async with Client(server.path) as client:
        assert client.era == "modern"


async def test_a_server_that_ends_over_the_probe_is_started_again_as_legacy(tmp_path: Path) -> None:
    server = Script(
        tmp_path,
        """
        for message in messages():
            if message["method"] == "server/discover":
                sys.exit("expected initialize")
            if message["method"] == "initialize":
                answer(message, INITIALIZED)
        """,
    )
    async with Client(server.path) as client:
        assert client.era == "legacy"
    assert server.methods()[:2] == ["server/discover", "initialize"]


async def test_a_server_that_never_starts_is_not_tried_for_ever(tmp_path: Path) -> None:
    server = Script(tmp_path, 'note("started"); sys.exit("no license")')
    with pytest.raises(ConnectionLost, match="no license") as caught:
        await Client(server.path).connect()
    assert caught.value.exit_code == 1
    assert server.lines() == ["started", "started"]


async def test_a_server_that_was_not_there_at_first_is_not_taken_for_a_legacy_one() -> None:
    near, far = free_port(), free_port()
    network = FaultProxy(near, far)
    await network.accept()
    client = Client(f"http://127.0.0.1:{near}/mcp", reconnect=False)
    try:
        with pytest.raises(ConnectionLost):
            await client.connect()
        async with Server("late").serving("http", port=far):
            await client.connect()
            assert client.era == "modern"
            await client.close()
    finally:
        await network.close()
