"""The compose file and the manifests of `examples/many_machines` are what they should be."""

import json
import tomllib
from importlib import resources
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from jsonschema.validators import validator_for

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


def compose_errors(found: Any) -> list[str]:
    """What the schema of the Compose Specification says against a compose file."""
    vendored = resources.files("check_jsonschema") / "builtin_schemas/vendor/compose-spec.json"
    schema = json.loads(vendored.read_text())
    validator = validator_for(schema)(schema)
    return [error.message for error in validator.iter_errors(found)]


def test_the_compose_file_is_one_by_the_specification() -> None:
    found = yaml.safe_load((FOLDER / "compose.yaml").read_text())
    assert compose_errors(found) == []
    found["services"]["server"]["stop_grace_perod"] = "30s"
    (error,) = compose_errors(found)
    assert "stop_grace_perod" in error


@pytest.mark.parametrize("version", ["1.29", "1.37"])
def test_the_manifests_are_ones_by_the_schemas_of_kubernetes(version: str) -> None:
    for manifest in yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text()):
        kubernetes_validate.validate(manifest, version, strict=True)


def test_a_manifest_with_a_field_that_is_not_there_is_found() -> None:
    manifests = list(yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text()))
    (deployment,) = [each for each in manifests if each["kind"] == "Deployment"]
    deployment["spec"]["template"]["spec"]["terminationGracePeriod"] = 30
    with pytest.raises(kubernetes_validate.ValidationError, match="terminationGracePeriod"):
        kubernetes_validate.validate(deployment, "1.37", strict=True)
