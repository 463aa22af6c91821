"""The pytest plugin: fixtures for a client that is connected to the server under test.

It is loaded in every run of pytest where mcpearl is installed, so it imports nothing but pytest until one
of its fixtures is used.
"""

import inspect
import re
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import AbstractAsyncContextManager
from itertools import product
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

if TYPE_CHECKING:
    import asyncio

    from mcpearl.testing.answers import Answers, Heard
    from mcpearl.testing.clock import MovableClock
    from mcpearl.testing.snapshot import Snapshot

_OURS = frozenset(
    ("mcp_app", "mcp_client", "mcp_url", "mcp_answers", "mcp_heard", "mcp_clock", "mcp_snapshot")
)
_SCOPES = ("function", "class", "module", "package", "session")
_MARKER = (
    'mcpearl(wire="memory", era="auto", app=None, faults=None, **options): how `mcp_client` reaches the '
    "server: wire (memory, stdio, http, tcp, unix, ws), era (legacy, modern, a version), options of "
    "`Client`; a list of wires or eras runs the test with each."
)


class Way(NamedTuple):
    """How a test reaches the server."""

    wire: str | None = None
    era: str = "auto"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the plugin."""
    parser.addini("mcpearl_app", "the server under test: `server.py:app` or `package.module:app`")
    parser.getgroup("mcpearl").addoption(
        "--mcpearl-update",
        action="store_true",
        help="write the snapshots of what servers offer anew",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Announce the marker, and make fixtures for pytest-asyncio if it is there."""
    config.addinivalue_line("markers", _MARKER)
    if config.pluginmanager.has_plugin("asyncio"):
        config.pluginmanager.register(_for_pytest_asyncio(), "mcpearl-asyncio")


def _for_pytest_asyncio() -> ModuleType:
    """Make the fixtures that open something on a loop of pytest-asyncio, one for each scope of loops."""
    import pytest_asyncio

    made = ModuleType("mcpearl_asyncio")
    for what, scope in product(_OPENERS, _SCOPES):
        name = f"_{what}_asyncio_{scope}"
        fixture: Any = pytest_asyncio.fixture
        setattr(made, name, fixture(name=name, loop_scope=scope)(_opened_in_a_loop(what)))
    return made


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test once for each wire and era that its marker names."""
    if "_mcpearl_way" not in metafunc.fixturenames:
        return
    settings = _settings(metafunc.definition)
    wires, eras = _several(settings.get("wire")), _several(settings.get("era", "auto"))
    if len(wires) * len(eras) > 1:
        ways = [Way(wire, era) for wire, era in product(wires, eras)]
        names = [[way.wire] * (len(wires) > 1) + [way.era] * (len(eras) > 1) for way in ways]
        metafunc.parametrize(
            "_mcpearl_way", ways, indirect=True, ids=["-".join(map(str, name)) for name in names]
        )


def _several(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple | set | frozenset) else [value]


def _settings(node: Any) -> dict[str, Any]:
    """Return what the markers of a test say; the closest one counts most."""
    settings: dict[str, Any] = {}
    for marker in reversed(list(node.iter_markers("mcpearl"))):
        if marker.args:
            raise pytest.UsageError(
                f"{node.nodeid}: `mark.mcpearl` takes keywords only: "
                f"write wire={marker.args[0]!r} or era={marker.args[0]!r}"
            )
        settings |= marker.kwargs
    return settings


# Tests that are async


def _kind(request: pytest.FixtureRequest) -> str:
    """Tell what runs a test: itself, if it is not async, or one of the plugins for async tests."""
    item: Any = request.node
    if not inspect.iscoroutinefunction(inspect.unwrap(item.function)):
        return "sync"
    if "anyio_backend" in item.fixturenames:
        return "anyio"
    marker = item.get_closest_marker("asyncio")
    if marker is None:
        return "own"
    given = marker.kwargs.get("loop_scope") or marker.kwargs.get("scope")
    default = item.config.getini("asyncio_default_test_loop_scope")
    return f"asyncio_{given or default or 'function'}"


@pytest.fixture
def _mcpearl_runner() -> "Iterator[asyncio.Runner]":
    import asyncio

    with asyncio.Runner() as runner:
        yield runner


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an async test that uses the fixtures here or has the marker, if no other plugin does."""
    item: Any = pyfuncitem
    ours = item.get_closest_marker("mcpearl") or not _OURS.isdisjoint(item.fixturenames)
    if not ours or not inspect.iscoroutinefunction(item.obj):
        return None
    if _kind(item._request) != "own":
        return None
    runner = item._request.getfixturevalue("_mcpearl_runner")
    given = {name: item.funcargs[name] for name in item._fixtureinfo.argnames}
    runner.run(pyfuncitem.obj(**given))
    return True


# What is opened on the loop of a test


def _client(request: pytest.FixtureRequest, app: Any, way: Way) -> AbstractAsyncContextManager[Any]:
    from mcpearl.testing.connecting import connected

    return connected(app, *_place(way), **_options(request))


def _url(request: pytest.FixtureRequest, app: Any, way: Way) -> AbstractAsyncContextManager[Any]:
    from mcpearl.testing.connecting import check_wire, reachable

    wire = check_wire(way.wire or "http")
    if wire in ("memory", "stdio"):
        raise pytest.UsageError(f"the wire {wire!r} has no address; choose http, tcp, unix or ws")
    return reachable(app, wire)


_OPENERS = {"mcp_client": _client, "mcp_url": _url}


def _place(way: Way) -> tuple[Any, str]:
    return way.wire or "memory", way.era


def _options(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Return the options of the client: what the marker says, and what other fixtures need."""
    options = _settings(request.node)
    for name in ("wire", "era", "app"):
        options.pop(name, None)
    _check_options(request.node.nodeid, options)
    _reset(options.get("faults"))
    names = request.node.fixturenames
    for name in ("mcp_answers", "mcp_heard"):
        if name in names:
            options |= request.getfixturevalue(name).options
    return options


def _check_options(test: str, given: Iterable[str]) -> None:
    """Refuse a keyword of the marker that is neither its own nor an option of `Client`."""
    from mcpearl.client.options import ClientOptions
    from mcpearl.runtime.arguments import did_you_mean

    known = ("wire", "era", "app", "faults", *ClientOptions.__annotations__)
    for name in given:
        if name not in known:
            raise pytest.UsageError(
                f"{test}: `mark.mcpearl` has no {name!r}{did_you_mean(name, known)}; it takes wire, era, "
                "app, faults and the options of `Client`"
            )


def _reset(faults: Any) -> None:
    """Have the faults of a marker start anew: a marker is made once, for all tests it is on."""
    from mcpearl.testing.faults import Fault

    for fault in _several(faults):
        if isinstance(fault, Fault):  # anything else is refused where it is used
            fault.reset()


def _opened_in_a_loop(what: str) -> Any:
    async def opened(
        request: pytest.FixtureRequest, mcp_app: Any, _mcpearl_way: Way
    ) -> AsyncIterator[Any]:
        async with _OPENERS[what](request, mcp_app, _mcpearl_way) as it:
            yield it

    return opened


_mcp_client_anyio = pytest.fixture(name="_mcp_client_anyio")(_opened_in_a_loop("mcp_client"))
_mcp_url_anyio = pytest.fixture(name="_mcp_url_anyio")(_opened_in_a_loop("mcp_url"))


def _opened_by_us(what: str) -> Any:
    def opened(
        request: pytest.FixtureRequest,
        mcp_app: Any,
        _mcpearl_way: Way,
        _mcpearl_runner: "asyncio.Runner",
    ) -> Iterator[Any]:
        context = _OPENERS[what](request, mcp_app, _mcpearl_way)
        yield _mcpearl_runner.run(_enter(context))
        _mcpearl_runner.run(_leave(context))

    return opened


_mcp_client_own = pytest.fixture(name="_mcp_client_own")(_opened_by_us("mcp_client"))
_mcp_url_own = pytest.fixture(name="_mcp_url_own")(_opened_by_us("mcp_url"))


async def _enter(context: AbstractAsyncContextManager[Any]) -> Any:
    return await context.__aenter__()


async def _leave(context: AbstractAsyncContextManager[Any]) -> None:
    await context.__aexit__(None, None, None)


@pytest.fixture
def _mcp_client_sync(
    request: pytest.FixtureRequest, mcp_app: Any, _mcpearl_way: Way
) -> Iterator[Any]:
    from mcpearl.testing.connecting import connected_sync

    with connected_sync(mcp_app, *_place(_mcpearl_way), **_options(request)) as client:
        yield client


@pytest.fixture
def _mcp_url_sync(request: pytest.FixtureRequest, mcp_app: Any, _mcpearl_way: Way) -> Iterator[Any]:
    from mcpearl.testing.connecting import served_sync

    with served_sync(_url(request, mcp_app, _mcpearl_way)) as url:
        yield url


@pytest.fixture
def _mcpearl_way(request: pytest.FixtureRequest) -> Way:
    found: Way | None = getattr(request, "param", None)
    if found is not None:
        return found
    settings = _settings(request.node)
    (wire,), (era,) = _several(settings.get("wire")), _several(settings.get("era", "auto"))
    return Way(wire, era)


# The fixtures


@pytest.fixture
def mcp_app(request: pytest.FixtureRequest) -> Any:
    """The server under test. Override it, or set `mcpearl_app = "server.py:app"` in pyproject.toml."""
    place = _settings(request.node).get("app") or request.config.getini("mcpearl_app")
    if not place:
        raise pytest.UsageError(
            'which server is to be tested? Set `mcpearl_app = "server.py:app"` under '
            "[tool.pytest.ini_options] in pyproject.toml, or write a fixture in conftest.py:\n\n"
            "    @pytest.fixture\n    def mcp_app():\n        return app\n"
        )
    if not isinstance(place, str):
        return place
    from mcpearl.testing.connecting import load_app

    return load_app(place, request.config.rootpath)


@pytest.fixture
def mcp_client(request: pytest.FixtureRequest, mcp_app: Any, _mcpearl_way: Way) -> Any:
    """A client that is connected to `mcp_app`: a `Client`, or a `SyncClient` if the test is not async.

    `@pytest.mark.mcpearl(wire="http", era="legacy")` says how.
    """
    _set_clock_first(request)
    return request.getfixturevalue(f"_mcp_client_{_kind(request)}")


@pytest.fixture
def mcp_url(request: pytest.FixtureRequest, mcp_app: Any, _mcpearl_way: Way) -> Any:
    """The address at which `mcp_app` is served during the test: over HTTP, or as the marker says."""
    _set_clock_first(request)
    return request.getfixturevalue(f"_mcp_url_{_kind(request)}")


def _set_clock_first(request: pytest.FixtureRequest) -> None:
    """Have connections see the clock of the test, whatever the order of its fixtures."""
    if "mcp_clock" in request.node.fixturenames:
        request.getfixturevalue("mcp_clock")


@pytest.fixture
def mcp_answers() -> "Iterator[Answers]":
    """What `mcp_client` answers when the server asks; the test fails if it asked something else."""
    from mcpearl.testing.answers import Answers

    answers = Answers(elicitation=[], sampling=[], roots=[])
    yield answers
    answers.check()


@pytest.fixture
def mcp_heard() -> "Heard":
    """What `mcp_client` hears beside answers: logs, progress, notifications."""
    from mcpearl.testing.answers import Heard

    return Heard()


@pytest.fixture
def mcp_clock() -> "Iterator[MovableClock]":
    """Time that the test moves: `await mcp_clock.advance(60)`."""
    from mcpearl.testing.clock import MovableClock

    with MovableClock() as clock:
        yield clock


@pytest.fixture
def mcp_snapshot(request: pytest.FixtureRequest) -> "Iterator[Snapshot]":
    """What the server offered when the snapshot was taken: `await mcp_snapshot.check(mcp_client)`."""
    from mcpearl.testing.snapshot import Snapshot

    name = re.sub(r"[^\w.-]+", "-", f"{request.path.stem}.{request.node.name}").strip("-")
    snapshot = Snapshot(
        request.path.parent / "snapshots" / f"{name}.json",
        update=request.config.getoption("--mcpearl-update"),
    )
    yield snapshot
    if snapshot.pending:
        pytest.fail(
            "nothing was compared: write `await mcp_snapshot.check(mcp_client)`", pytrace=False
        )
