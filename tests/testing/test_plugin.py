"""The pytest plugin, in real runs of pytest in a project of its own."""

import subprocess
import sys

import pytest

pytest_plugins = ["pytester"]

SERVER = '''
import asyncio

from mcpearl import Context, Server

app = Server("notes", version="1.0.0")
notes = []


@app.tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@app.tool
async def register(*, ctx: Context) -> str:
    """Ask for a name."""
    answer = await ctx.elicit("What is your name?", {"properties": {"name": {"type": "string"}}})
    await ctx.info("registered")
    await ctx.progress(1, 2)
    return answer.data["name"]


@app.tool
async def describe(*, ctx: Context) -> str:
    """Ask a model."""
    roots = await ctx.roots()
    return f"{(await ctx.sample('Describe it.')).content.text} in {roots[0].name}"


@app.tool
async def nap() -> str:
    """Sleep for an hour."""
    await asyncio.sleep(3600)
    return "slept"
'''
CONFTEST = """
import pytest

from server import app


@pytest.fixture
def mcp_app():
    return app
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.delitem(sys.modules, "server", raising=False)  # of another test in this process
    pytester.makepyfile(server=SERVER)
    pytester.makeconftest(CONFTEST)
    pytester.syspathinsert()
    return pytester


STRICT = ("-o", "asyncio_default_fixture_loop_scope=function")


def run(project: pytest.Pytester, code: str, *options: str) -> pytest.RunResult:
    project.makepyfile(test_it=code)
    return project.runpytest_inprocess(
        "-p", "no:cacheprovider", "-p", "no:xdist", *STRICT, *options
    )


def test_a_client_in_tests_of_every_kind(project: pytest.Pytester):
    """Plain, async without a plugin, with pytest-asyncio on any loop, with anyio."""
    code = """
        import asyncio
        import pytest

        async def check(client):
            assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3

        def test_sync(mcp_client):
            assert type(mcp_client).__name__ == "SyncClient"
            assert mcp_client.call_tool("add", {"a": 1, "b": 2}).data == 3

        async def test_async_without_a_plugin(mcp_client):
            await check(mcp_client)

        @pytest.mark.mcpearl
        async def test_async_with_the_marker_only():
            await asyncio.sleep(0)

        @pytest.mark.asyncio
        async def test_asyncio(mcp_client):
            await check(mcp_client)

        @pytest.mark.asyncio(loop_scope="module")
        async def test_asyncio_with_a_loop_for_all_tests(mcp_client):
            await check(mcp_client)

        @pytest.mark.anyio
        @pytest.mark.parametrize("anyio_backend", ["asyncio"])
        async def test_anyio(mcp_client, anyio_backend):
            await check(mcp_client)

        class TestMethods:
            async def test_method(self, mcp_client):
                await check(mcp_client)

            def test_sync_method(self, mcp_client):
                assert mcp_client.call_tool("add", {"a": 1, "b": 2}).data == 3
    """
    run(project, code).assert_outcomes(passed=8)


def test_async_fixtures_on_top_of_the_client(project: pytest.Pytester):
    code = """
        import pytest

        @pytest.fixture
        async def sum(mcp_client):
            return (await mcp_client.call_tool("add", {"a": 1, "b": 2})).data

        async def test_it(sum, mcp_client):
            assert sum + (await mcp_client.call_tool("add", {"a": 1, "b": 2})).data == 6
    """
    run(project, code, "-o", "asyncio_mode=auto").assert_outcomes(passed=1)


def test_every_wire_in_both_eras(project: pytest.Pytester):
    code = """
        import pytest
        from mcpearl.testing import WIRES

        seen = []

        @pytest.mark.mcpearl(wire=WIRES, era=["legacy", "modern"])
        async def test_wires(mcp_client):
            seen.append((repr(mcp_client).split(":")[0], mcp_client.era))
            assert (await mcp_client.call_tool("add", {"a": 1, "b": 2})).data == 3

        @pytest.mark.mcpearl(wire="tcp", era="2025-03-26")
        def test_one(mcp_client):
            assert mcp_client.protocol_version == "2025-03-26"

        @pytest.mark.mcpearl(wire=["http", "unix"])
        def test_addresses(mcp_url):
            assert mcp_url.startswith(("http://127.0.0.1:", "unix:///"))

        async def test_an_address(mcp_url):
            from mcpearl import Client
            async with Client(mcp_url) as client:
                assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3

        def test_all_were_there():
            assert {era for _, era in seen} == {"legacy", "modern"}
            assert len({wire for wire, _ in seen}) == 6, seen
    """
    result = run(project, code, "-v")
    result.assert_outcomes(passed=17)
    result.stdout.fnmatch_lines(["*test_wires?stdio-legacy? PASSED*"])


def test_answers_and_what_is_heard(project: pytest.Pytester):
    code = """
        import pytest

        @pytest.mark.mcpearl(era=["legacy", "modern"])
        async def test_asked(mcp_client, mcp_answers, mcp_heard):
            mcp_answers.elicit({"name": "Ada"})
            assert (await mcp_client.call_tool("register")).text == "Ada"
            assert mcp_answers.asked[0].message == "What is your name?"
            assert mcp_heard.texts == ["registered"]
            assert [each.progress for each in mcp_heard.progress] == [1]

        def test_a_model_and_roots(mcp_client, mcp_answers, tmp_path):
            mcp_answers.roots = [tmp_path]
            mcp_answers.sample("A notebook")
            assert mcp_client.call_tool("describe").text == f"A notebook in {tmp_path.name}"

        def test_too_few(mcp_client, mcp_answers):
            mcp_client.call_tool("register")

        def test_too_many(mcp_client, mcp_answers):
            mcp_answers.elicit({"name": "Ada"})
    """
    result = run(project, code)
    result.assert_outcomes(passed=4, failed=1, errors=2)
    result.stdout.fnmatch_lines_random(
        [
            "*no answer was scripted for elicitation/create: 'What is your name?'*",
            "*the server did not ask for this answer to elicitation/create: {'name': 'Ada'}*",
        ]
    )


def test_time_is_advanced(project: pytest.Pytester):
    code = """
        import asyncio
        import pytest

        async def slept(mcp_client, mcp_clock):
            call = asyncio.ensure_future(mcp_client.call_tool("nap", max_timeout=9000, timeout=9000))
            await mcp_clock.advance(3601)
            assert (await call).text == "slept"

        async def test_ours(mcp_client, mcp_clock):
            await slept(mcp_client, mcp_clock)

        @pytest.mark.asyncio
        async def test_asyncio(mcp_client, mcp_clock):
            await slept(mcp_client, mcp_clock)

        async def test_time_is_real_again(mcp_app):
            import time
            from mcpearl.runtime import clock
            assert abs(clock.now() - time.time()) < 60
            assert abs(asyncio.get_running_loop().time() - time.monotonic()) < 60
    """
    run(project, code).assert_outcomes(passed=3)


def test_a_snapshot_is_written_compared_and_explained(project: pytest.Pytester):
    code = """
        async def test_offer(mcp_client, mcp_snapshot):
            await mcp_snapshot.check(mcp_client)

        def test_offer_sync(mcp_client, mcp_snapshot):
            mcp_snapshot.check(mcp_client)
    """
    result = run(project, code)
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(
        ["*no snapshot snapshots/test_it.test_offer.json yet; to write it: pytest --mcpearl-update"]
    )
    run(project, code, "--mcpearl-update").assert_outcomes(passed=2)
    run(project, code).assert_outcomes(passed=2)
    kept = project.path / "snapshots" / "test_it.test_offer.json"
    kept.write_text(kept.read_text().replace('"required": [\n          "a",', '"required": ['))
    result = run(project, code)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        [
            "*what the server offers is not what snapshots/test_it.test_offer.json says",
            "*breaks callers:",
            "*tool `add`, argument `a`: it is required now",
            '*+*"a",',
            "*if it is meant to be so: pytest --mcpearl-update",
        ]
    )


def test_options_and_faults_in_the_marker(project: pytest.Pytester):
    code = """
        import pytest
        from mcpearl import ConnectionLost
        from mcpearl.testing.faults import cut

        pytestmark = pytest.mark.mcpearl(wire="tcp", era="legacy")

        @pytest.mark.mcpearl(faults=cut(after=1), reconnect=False)
        async def test_cut(mcp_client):
            with pytest.raises(ConnectionLost, match="cut by a fault"):
                await mcp_client.call_tool("add", {"a": 1, "b": 2})
            assert "tcp://" in repr(mcp_client)
    """
    run(project, code).assert_outcomes(passed=1)


def test_the_faults_of_a_marker_happen_in_each_of_its_tests(project: pytest.Pytester):
    code = """
        import pytest
        from mcpearl import ConnectionLost
        from mcpearl.testing.faults import crash, cut, slow

        @pytest.mark.mcpearl(
            wire=["memory", "tcp"], era=["legacy", "modern"], reconnect=False,
            faults=(slow(0), cut(way="sent", method="tools/call")),
        )
        async def test_cut(mcp_client):
            with pytest.raises(ConnectionLost, match="cut by a fault"):
                await mcp_client.call_tool("add", {"a": 1, "b": 2})

        CRASH = crash(way="sent", method="tools/call", refused=3)

        @pytest.mark.mcpearl(wire=["memory", "tcp"], faults=CRASH, reconnect=False)
        async def test_crash(mcp_client):
            with pytest.raises(ConnectionLost, match="crashed by a fault"):
                await mcp_client.call_tool("add", {"a": 1, "b": 2})
            assert CRASH.happened == 1
    """
    run(project, code).assert_outcomes(passed=6)


def test_a_snapshot_that_nothing_compared_fails_the_test(project: pytest.Pytester):
    code = """
        async def test_offer(mcp_client, mcp_snapshot):
            mcp_snapshot.check(mcp_client)
    """
    result = run(project, code, "--mcpearl-update")
    result.assert_outcomes(passed=1, errors=1, warnings=1)
    result.stdout.fnmatch_lines(["*write `await mcp_snapshot.check(mcp_client)`*"])


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (
            "def test_it(mcp_client): ...",
            '*which server is to be tested? Set `mcpearl_app = "server.py:app"`*',
        ),
        (
            "import pytest\n@pytest.mark.mcpearl(app='nothing.py:app')\ndef test_it(mcp_client): ...",
            "*there is no file *nothing.py*",
        ),
        (
            "import pytest\n@pytest.mark.mcpearl('http')\ndef test_it(mcp_client): ...",
            "*`mark.mcpearl` takes keywords only: write wire='http' or era='http'*",
        ),
        (
            "import pytest\n@pytest.mark.mcpearl(app='server.py', wire='htp')\n"
            "def test_it(mcp_client): ...",
            "*there is no wire 'htp'; did you mean `http`?*",
        ),
        (
            "import pytest\n@pytest.mark.mcpearl(app='server.py', wires=['http'])\n"
            "def test_it(mcp_client): ...",
            "*`mark.mcpearl` has no 'wires'; did you mean `wire`?*",
        ),
        (
            "import pytest\nfrom mcpearl.testing.faults import cut\n"
            "@pytest.mark.mcpearl(app='server.py', faults=cut)\ndef test_it(mcp_client): ...",
            "*is not a fault; write `cut(…)`*",
        ),
        (
            "import pytest\nfrom mcpearl import Server\n"
            "@pytest.mark.mcpearl(app=Server('x'), wire='stdio')\ndef test_it(mcp_client): ...",
            "*make it a global of a module, such as `app` in server.py*",
        ),
        (
            "import pytest\n@pytest.mark.mcpearl(app='server.py', wire='stdio')\n"
            "def test_it(mcp_url): ...",
            "*the wire 'stdio' has no address; choose http, tcp, unix or ws*",
        ),
    ],
)
def test_what_is_wrong_is_said(pytester: pytest.Pytester, code: str, says: str):
    pytester.makepyfile(server=SERVER)
    result = run(pytester, code)
    assert result.ret != 0
    result.stdout.fnmatch_lines([says])


def test_the_server_named_in_the_settings_is_the_one_that_tests_import(pytester: pytest.Pytester):
    """In a process of its own, as people run it; what is not used is not imported."""
    pytester.makepyfile(server=SERVER)
    pytester.makepyprojecttoml('[tool.pytest.ini_options]\nmcpearl_app = "server.py:app"\n')
    pytester.makepyfile(
        test_it="""
        import sys

        def test_nothing_is_imported():
            parts = {"client", "server", "sync", "transports", "protocol", "types", "schema", "net"}
            assert not [part for part in parts if f"mcpearl.{part}" in sys.modules]
            kit = [name for name in sys.modules if name.startswith("mcpearl.testing.")]
            assert kit == ["mcpearl.testing.plugin"]

        def test_it_is_the_same(mcp_app, mcp_client):
            from server import app
            assert mcp_app is app
            assert [tool.name for tool in mcp_client.tools()][0] == "add"
        """
    )
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:hypothesispytest",
        ],
        cwd=pytester.path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "2 passed" in done.stdout, done.stdout + done.stderr
