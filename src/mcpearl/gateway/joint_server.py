"""Makes one server of all servers of a configuration, for a client that is to use them as one."""

from collections.abc import Mapping
from typing import Any

from mcpearl.client.entries import ConfigError
from mcpearl.gateway.gateway import Gateway
from mcpearl.gateway.settings import UpstreamSettings
from mcpearl.host.config import read_config

_PATIENCE = (
    30.0  # seconds to wait for servers that are starting: the client does not see which are missing
)


def joint_server(configuration: Mapping[str, Any]) -> Gateway:
    """Return a gateway to the servers of a configuration.

    Args:
        configuration: The configuration, such as `{"mcpServers": {…}}`.

    Raises:
        ConfigError: None of the servers can be used.
    """
    config = read_config(configuration)
    if all(entry.disabled for entry in config.entries.values()):
        reasons = "; ".join(f"`{each.server}`: {each.message}" for each in config.problems)
        raise ConfigError(f"none of the servers can be used: {reasons}")
    return Gateway(config, eager=True, upstreams=UpstreamSettings(patience=_PATIENCE))
