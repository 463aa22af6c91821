"""A whole configuration file of a host: servers and problems with names, or one error that is ours."""

from mcpearl.client.entries import ConfigError
from mcpearl.host.config import read_config
from mcpearl.host.jsonc import parse
from mcpearl.runtime.joint_names import joint_name
from tests.fuzz.target import Target, require

ENV = {"KEY": "s3cret-value"}


def check(data: bytes) -> None:
    try:
        content = parse(data, "mcp.json")
        config = read_config(content, env=ENV) if isinstance(content, dict) else None
    except ConfigError as error:
        require(ENV["KEY"] not in str(error), "an error shows a secret")
        return
    if config is None:
        return
    for name, entry in config.entries.items():
        given = (entry.command, entry.url, entry.target)
        set_ones = sum(each is not None for each in given)
        require(set_ones == (0 if entry.disabled else 1), "an entry that leads nowhere")
        require(ENV["KEY"] not in repr(entry), "an entry shows a secret")
        require(len(joint_name(name, name)) <= 64, "a name that is too long")
    for problem in config.problems:
        require(problem.message and ENV["KEY"] not in problem.message, "a problem shows a secret")


WORDS = (
    b'{"mcpServers":{}}',
    b'{"servers":{"a":{"command":"x"}}}',
    b'"command":"${KEY}"',
    b'"env":{"A":"${env:KEY}"}',
    b'"url":"https://h/${KEY}"',
    b"${NONE:-d}",
    b"${input:k}",
    b'"disabled":true',
    b'"type":"sse"',
    b"/* c */",
    b"// c\n",
    b",}",
)
TARGET = Target("host-files", check, WORDS)
