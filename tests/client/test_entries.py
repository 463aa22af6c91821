"""One server's entry in a host's configuration: what it says, and what is wrong with it."""

from pathlib import Path
from typing import Any

import pytest

from mcpearl import Client, ConnectionLost, Server
from mcpearl.client.entries import ConfigError, ServerEntry, Surroundings, read_entry

FOLDER = Path("/projects/weather")
AROUND = Surroundings({"KEY": "s3cret", "EMPTY": "", "HOST": "example.com"}, FOLDER)


def read(value: Any) -> ServerEntry:
    return read_entry("weather", value, AROUND)


def test_a_command_with_arguments_environment_and_directory() -> None:
    entry = read(
        {
            "command": "uvx",
            "args": ["--from", "${workspaceFolder}", "serve", "${KEY}"],
            "env": {"TOKEN": "${env:KEY}", "PORT": 80, "DEBUG": True, "UNSET": None},
            "cwd": "sub",
            "alwaysAllow": ["x"],
        }
    )
    assert entry.command == ("uvx", "--from", str(FOLDER), "serve", "s3cret")
    assert entry.env == {"TOKEN": "s3cret", "PORT": "80", "DEBUG": "true"}
    assert entry.cwd == str(FOLDER / "sub")
    assert entry.extra == {"alwaysAllow": ["x"]}
    assert entry.url is None


@pytest.mark.parametrize("member", ["url", "serverUrl", "httpUrl"])
def test_an_address_with_headers(member: str) -> None:
    headers = {"Authorization": "Bearer ${KEY}"}
    entry = read({"type": "http", member: "https://${HOST}/mcp", "headers": headers})
    assert entry.url == "https://example.com/mcp"
    assert entry.headers == {"Authorization": "Bearer s3cret"}
    assert entry.wire == "http"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${KEY}", "s3cret"),
        ("${env:KEY}", "s3cret"),
        ("a${KEY}b${HOST}", "as3cretbexample.com"),
        ("${NONE:-fallback}", "fallback"),
        ("${NONE:-}", ""),
        ("${EMPTY:-fallback}", "fallback"),
        ("${EMPTY}", ""),
        ("${env:NONE:-a:b}", "a:b"),
        ("${NONE:-http://h:1/}", "http://h:1/"),
        ("${userHome}", str(Path.home())),
        ("${workspaceFolderBasename}", "weather"),
        ("$KEY {KEY} ${", "$KEY {KEY} ${"),
    ],
)
def test_variables(text: str, value: str) -> None:
    assert read({"command": "x", "args": [text]}).command == ("x", value)


def test_the_value_of_a_variable_is_not_read_again() -> None:
    around = Surroundings({"A": "${B}", "B": "b"}, FOLDER)
    assert read_entry("x", {"command": "${A}"}, around).command == ("${B}",)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"command": "x", "args": ["${NONE}"]}, r"`\${NONE}` in `args\[0\]`.*NONE is not set"),
        ({"command": "x", "env": {"K": "${input:key}"}}, "VS Code asks its user for"),
        ({"command": "x", "env": {"K": "${command:do}"}}, "which is not known"),
        ({"command": "x", "env": {"K": "${}"}}, "which is not known"),
        ({"command": "x", "url": "http://a/b"}, "has both `command` and `url`"),
        ({"command": "x", "type": "http"}, "has the type `http` and a `command`"),
        ({"url": "http://a/b", "type": "stdio"}, "`stdio` and no `command`"),
        ({"url": "http://a/b", "type": "carrier-pigeon"}, "not `carrier-pigeon`"),
        ({"url": "http://a/b", "type": 5}, "not a number"),
        ({"url": "a/b"}, "has an address such as"),
        ({"command": "x\0"}, "without null characters as `command`"),
        (
            {"command": "x", "envFile": "/nowhere/.env"},
            r"/nowhere/\.env as `envFile`: No such file",
        ),
        ({"cmd": "x"}, "needs `command` or `url`; it has `cmd`"),
        (5, "is an object, not a number"),
        ([], "is an object, not a list"),
        (None, "is an object, not null"),
    ],
)
def test_what_is_wrong_is_named(value: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        read(value)
    assert "`weather`" in str(caught.value)


def test_secrets_are_not_shown() -> None:
    entry = read({"command": "x", "args": ["${KEY}"], "env": {"A": "${KEY}"}})
    address = read({"url": "https://h/${KEY}", "headers": {"A": "${KEY}"}})
    assert "s3cret" not in f"{entry!r}{address!r}{entry}"
    for wrong in ({"env": "KEY=s3cret"}, {"headers": ["s3cret"]}, {"args": "s3cret"}):
        with pytest.raises(ConfigError) as caught:
            read({"command": "x", **wrong} if "headers" not in wrong else {"url": "a://", **wrong})
        assert "s3cret" not in str(caught.value)


async def test_what_variables_stand_for_is_hidden_in_messages() -> None:
    entry = read({"url": "gopher://${HOST}/${KEY}"})
    with pytest.raises(ValueError, match="cannot connect to 'gopher://…/…'"):
        Client(entry)
    command = read({"command": "${KEY}", "args": ["${KEY}"]})
    client = Client(command)
    assert "s3cret" not in repr(client)
    absent = read({"url": "http://127.0.0.1:1/${KEY}?key=${KEY}"})
    with pytest.raises(ConnectionLost) as caught:
        await Client(absent).connect()
    assert "s3cret" not in str(caught.value)


def test_the_type_decides_between_a_command_and_an_address() -> None:
    both = {"command": "x", "url": "http://a/b"}
    assert read({**both, "type": "stdio"}).command == ("x",)
    assert read({**both, "type": "sse"}).url == "http://a/b"


def test_variables_of_a_file(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("# keys\nexport A='one'\nB = two=2\n\nnonsense\nC=\"file\"\n")
    value = {"command": "x", "envFile": "${workspaceFolder}/.env", "env": {"C": "entry"}}
    entry = read_entry("x", value, Surroundings({}, tmp_path))
    assert entry.env == {"A": "one", "B": "two=2", "C": "entry"}


def test_what_else_names_a_server() -> None:
    app = Server("own")
    assert read("http://h/mcp").url == "http://h/mcp"
    assert read(["npx", "-y", "server"]).command == ("npx", "-y", "server")
    assert read("server.py").target == "server.py"
    assert read(app).target is app


async def test_a_client_takes_the_only_server_of_a_configuration() -> None:
    app = Server("own")
    servers = {
        "old": {"command": "x", "disabled": True},
        "own": ServerEntry(name="own", target=app),
    }
    for key in ("mcpServers", "servers"):
        async with Client({key: servers}) as client:
            assert client.server_info is not None
            assert client.server_info.name == "own"


def test_a_token_can_be_sent_to_the_address_of_an_entry() -> None:
    Client({"url": "https://example.com/mcp"}, auth=lambda: "token")
    with pytest.raises(ValueError, match="needs no login"):
        Client({"command": "x"}, auth=lambda: "token")
