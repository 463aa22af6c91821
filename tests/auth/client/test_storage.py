"""Where tokens are kept: by server and issuer, readable by their owner, renewed once for all."""

import asyncio
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mcpearl import Client
from mcpearl.auth import FileStorage, KeyringStorage, MemoryStorage, Storage
from mcpearl.auth.client.storage import Key
from mcpearl.testing.clock import MovableClock
from tests.auth.client.world import Authority, Guarded, person

KEY = Key("https://issuer.example", "https://mcp.example/mcp")


@pytest.fixture(params=["memory", "file", "keyring"])
def storage(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Storage:
    if request.param == "memory":
        return MemoryStorage()
    if request.param == "file":
        return FileStorage(tmp_path / "tokens")
    import keyring
    from keyrings.alt.file import PlaintextKeyring

    backend = PlaintextKeyring()
    monkeypatch.setattr(backend, "file_path", str(tmp_path / "keyring.cfg"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    before = keyring.get_keyring()
    keyring.set_keyring(backend)
    request.addfinalizer(lambda: keyring.set_keyring(before))
    return KeyringStorage()


async def test_what_is_kept_is_kept_under_its_key(storage: Storage):
    assert await storage.load(KEY) is None
    await storage.save(KEY, {"a": 1})
    await storage.save(KEY, {"a": "é 2"})
    assert await storage.load(KEY) == {"a": "é 2"}
    assert await storage.load(Key("https://other.example", KEY.resource)) is None
    assert await storage.load(Key(KEY.issuer, "")) is None
    await storage.delete(KEY)
    await storage.delete(KEY)
    assert await storage.load(KEY) is None


async def test_a_lock_is_held_by_one(storage: Storage):
    order: list[str] = []

    async def work(name: str) -> None:
        async with storage.lock(KEY):
            order.append(f"{name} in")
            for _ in range(10):
                await asyncio.sleep(0)  # the other one's chance
            order.append(f"{name} out")

    await asyncio.gather(work("a"), work("b"))
    assert order in (
        ["a in", "a out", "b in", "b out"],
        ["b in", "b out", "a in", "a out"],
    )
    async with storage.lock(KEY), storage.lock(Key("https://other.example", "")):
        pass  # another key is another lock


async def test_a_login_is_kept_in_each(storage: Storage, issuer: Authority, server: Guarded):
    for _ in range(2):
        async with Client(server.url, auth=person(storage=storage)) as client:
            await client.list_tools()
    assert len(issuer.asked) == 1


async def test_files_are_their_owners_alone(tmp_path: Path):
    storage = FileStorage(tmp_path / "tokens")
    before = os.umask(0)
    try:
        await storage.save(KEY, {"access_token": "secret"})
        async with storage.lock(KEY):
            pass
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "tokens").stat().st_mode) == 0o700
    files = list((tmp_path / "tokens").iterdir())
    assert len(files) == 2
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    assert not any("example" in file.name for file in files)


async def test_a_file_is_replaced_as_a_whole(tmp_path: Path):
    """Readers see the old record or the new one, however often it is written."""
    storage = FileStorage(tmp_path)
    await storage.save(KEY, {"value": "x" * 10_000})
    code = (
        "import asyncio, sys\n"
        "from mcpearl.auth import FileStorage\n"
        "from mcpearl.auth.client.storage import Key\n"
        "async def main():\n"
        "    storage = FileStorage(sys.argv[1])\n"
        "    while True:\n"
        "        for letter in 'ab':\n"
        f"            await storage.save(Key(*{tuple(KEY)!r}), {{'value': letter * 10_000}})\n"
        "asyncio.run(main())\n"
    )
    writing = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)])
    try:
        seen: set[str] = set()
        for _ in range(20_000):
            record = await storage.load(KEY)
            assert record is not None
            assert len(set(record["value"])) == 1
            assert len(record["value"]) == 10_000
            seen.add(record["value"][0])
            if {"a", "b"} <= seen:
                break
    finally:
        writing.kill()
        writing.wait()
    assert {"a", "b"} <= seen


@pytest.mark.parametrize(
    "damage", [b"", b"{", b"[]", b'{"issuer":"https://evil.example","resource":"x","kept":{}}']
)
async def test_damaged_files_are_passed_over(
    tmp_path: Path, damage: bytes, issuer: Authority, server: Guarded
):
    async with Client(server.url, auth=person(storage=FileStorage(tmp_path))):
        pass
    for file in tmp_path.glob("*.json"):
        file.write_bytes(damage)
    async with Client(server.url, auth=person(storage=FileStorage(tmp_path))):
        pass
    assert len(issuer.asked) == 2


async def test_a_directory_that_cannot_be_written(
    tmp_path: Path, issuer: Authority, server: Guarded, caplog: Any
):
    (tmp_path / "file").write_text("")
    storage = FileStorage(tmp_path / "file" / "tokens")
    async with Client(server.url, auth=person(storage=storage)) as client:
        await client.list_tools()
    assert "cannot be saved" in caplog.text


async def test_what_cannot_be_deleted_is_logged(tmp_path: Path, caplog: Any):
    storage = FileStorage(tmp_path)
    key = Key("https://issuer.example", "")
    await storage.save(key, {"a": 1})
    (file,) = tmp_path.glob("*.json")
    file.unlink()
    file.mkdir()
    await storage.delete(key)
    assert "cannot be deleted" in caplog.text


async def test_a_directory_is_its_owners_alone_with_those_above_it(tmp_path: Path, caplog: Any):
    storage = FileStorage(tmp_path / "a" / "b" / "tokens")
    await storage.save(Key("https://issuer.example", ""), {"a": 1})
    made = [tmp_path / "a", tmp_path / "a" / "b", tmp_path / "a" / "b" / "tokens"]
    assert [each.stat().st_mode & 0o777 for each in made] == [0o700] * 3
    assert "others can write" not in caplog.text
    made[-1].chmod(0o777)
    await storage.save(Key("https://issuer.example", ""), {"a": 2})
    assert "others can write" in caplog.text


RENEWING = """
import asyncio, sys
from mcpearl import Client
from mcpearl.auth import FileStorage, OAuth

async def main():
    auth = OAuth(storage=FileStorage(sys.argv[2]), open_browser=lambda url: sys.exit("a login"))
    print("ready", flush=True)
    sys.stdin.readline()
    async with Client(sys.argv[1], auth=auth) as client:
        print((await client.call_tool("add", {"a": 2, "b": 3})).content[0].text)

asyncio.run(main())
"""


async def test_processes_that_share_a_store_renew_once(
    issuer: Authority, server: Guarded, tmp_path: Path
):
    async with Client(server.url, auth=person(storage=FileStorage(tmp_path))):
        pass
    issuer.tokens.clear()  # the token in the store is refused from now on
    processes = [
        await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            RENEWING,
            server.url,
            str(tmp_path),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        for _ in range(4)
    ]
    for process in processes:
        assert process.stdout is not None
        await process.stdout.readline()
    results = await asyncio.gather(*(process.communicate(b"go\n") for process in processes))
    assert [out.strip() for out, _ in results] == [b"5"] * 4
    assert issuer.count("refresh_token") == 1
    assert len(issuer.asked) == 1


async def test_a_lock_ends_with_its_process(tmp_path: Path, clock: MovableClock):
    code = (
        "import asyncio, sys\n"
        "from mcpearl.auth import FileStorage\n"
        "from mcpearl.auth.client.storage import Key\n"
        "async def main():\n"
        f"    async with FileStorage(sys.argv[1]).lock(Key(*{tuple(KEY)!r})):\n"
        "        print('held', flush=True)\n"
        "        await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    holding = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    with holding:
        assert holding.stdout is not None
        assert holding.stdout.readline() == "held\n"
        waiting = asyncio.ensure_future(_lock(FileStorage(tmp_path)))
        await clock.advance(60)  # in which it tries again and again
        assert not waiting.done()
        holding.kill()
        await asyncio.wait_for(waiting, 30)


async def _lock(storage: FileStorage) -> None:
    async with storage.lock(KEY):
        pass


def test_the_package_keyring_may_be_missing():
    code = (
        "import sys; sys.modules['keyring'] = None\n"
        "from mcpearl.auth import KeyringStorage\n"
        "try: KeyringStorage()\n"
        "except RuntimeError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "needs the package `keyring`" in done.stdout
