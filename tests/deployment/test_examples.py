"""The compose file and the manifests of `examples/many_machines` are what they should be."""

import tomllib
from pathlib import Path
from typing import Any

import yaml

from mcpearl.server.serving.environment import PREFIX, SETTINGS
from mcpearl.stores.redis_address import parse

FOLDER = Path(__file__).parents[2] / "examples" / "many_machines"


def settings_in(names: list[str]) -> None:
    """Every variable with our prefix is a setting."""
    for name in names:
        assert not name.startswith(PREFIX) or name.removeprefix(PREFIX) in SETTINGS, name


def test_the_compose_file() -> None:
    found: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text())
    services = found["services"]
    assert set(services) == {"store", "server", "balancer"}
    for option in ("--appendonly yes", "--maxmemory-policy noeviction", "--requirepass"):
        assert option in services["store"]["command"]
    settings_in(list(services["server"]["environment"]))
    for service in services.values():
        for volume in service.get("volumes", []):
            place = volume.split(":")[0]
            assert place in found["volumes"] or (FOLDER / place).exists(), place
        for needed in service.get("depends_on", ()):
            assert needed in services
    # What is installed is the checkout, with all that its build needs.
    checkout = {
        each.split(":")[1].removeprefix("/checkout/") for each in services["server"]["volumes"]
    }
    project = tomllib.loads((FOLDER.parents[1] / "pyproject.toml").read_text())["project"]
    assert {"pyproject.toml", "src", project["readme"]} <= checkout
    address = services["server"]["environment"]["MCPEARL_STORE"]
    assert parse(address.replace("${STORE_PASSWORD:?set STORE_PASSWORD}", "x")).durable


def test_the_manifests() -> None:
    found = list(yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text()))
    by_kind = {(each["kind"], each["metadata"]["name"]): each for each in found}
    assert len(by_kind) == len(found) == 6
    secret = by_kind["Secret", "counter"]["stringData"]
    assert parse(secret["store"]).password == secret["password"]
    for kind, name in (("StatefulSet", "store"), ("Deployment", "counter")):
        spec = by_kind[kind, name]["spec"]
        labels = spec["template"]["metadata"]["labels"]
        assert spec["selector"]["matchLabels"] == labels
        assert by_kind["Service", name]["spec"]["selector"] == labels
        (container,) = spec["template"]["spec"]["containers"]
        for variable in container["env"]:
            settings_in([variable["name"]])
            key = variable.get("valueFrom", {}).get("secretKeyRef")
            assert key is None or key["key"] in secret
    arguments = by_kind["StatefulSet", "store"]["spec"]["template"]["spec"]["containers"][0]["args"]
    assert "noeviction" in arguments and "--appendonly" in arguments
