"""Files that pages show are read by the programs they are for."""

import configparser
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mcpearl.host.config import read_config
from mcpearl.server.serving.environment import PREFIX, SETTINGS
from tests.docs.blocks import Block, of_kind
from tests.docs.sandbox import Sandbox
from tests.ports import free_port


@pytest.mark.parametrize("block", of_kind("json"), ids=str)
def test_configurations_of_hosts(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = tmp_path / "mcp.json"
    file.write_text(block.text)
    for name in re.findall(r"\$\{(\w+)\}", block.text):
        monkeypatch.setenv(name, "a-secret")
    config = read_config(file)
    assert set(config.entries) == set(json.loads(block.text)["mcpServers"])
    assert config.problems == ()


@pytest.mark.parametrize("block", of_kind("toml"), ids=str)
def test_settings_of_pytest(block: Block, tmp_path: Path):
    """With it the first tests of the page pass, without a fixture that names the server."""
    python = [each.text for each in of_kind("python") if each.page == block.page]
    sandbox = Sandbox(tmp_path, next(each for each in python if "Server(" in each))
    first = next(each for each in python if each.startswith("async def test_add"))
    (tmp_path / "test_first.py").write_text(first)
    (tmp_path / "pyproject.toml").write_text(block.text)
    assert "3 passed" in sandbox.run("python -m pytest -q test_first.py")


UNITS = {
    "[Unit]": {"Description"},
    "[Service]": {"Type", "ExecStart", "Environment", "User", "WatchdogSec", "Restart"},
    "[Socket]": {"ListenStream"},
    "[Install]": {"WantedBy"},
}


def test_units_of_systemd(tmp_path: Path):
    service, socket = (block.text for block in of_kind("ini"))
    for text in (service, socket):
        unit = configparser.ConfigParser()
        unit.optionxform = str  # type: ignore[assignment,method-assign]
        unit.read_string(text)
        for section in unit.sections():
            assert set(unit[section]) <= UNITS[f"[{section}]"], section
    for variable in re.findall(rf"\b{PREFIX}(\w+)=", service):
        assert variable in SETTINGS, variable
    if shutil.which("systemd-analyze") is None:
        return
    # systemd's own reader; the programs and the user it names are those of this computer.
    command = f"ExecStart={sys.executable} {tmp_path}/server.py"
    served = re.sub(r"ExecStart=.*", command, service).replace("User=weather", "User=root")
    (tmp_path / "weather.service").write_text(served)
    (tmp_path / "weather.socket").write_text(socket)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "weather.service", "weather.socket"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    said = [line for line in done.stderr.splitlines() if "weather." in line]
    assert said == [] and done.returncode == 0, done.stderr


def test_the_configuration_of_nginx(tmp_path: Path, certificate: Path):
    """nginx itself reads it, where it is installed; names of files and the port are replaced."""
    [block] = of_kind("nginx")
    assert block.text.count("{") == block.text.count("}")
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if program is None:
        return
    text = block.text.replace("listen 443", f"listen 127.0.0.1:{free_port()}")
    text = text.replace("/etc/tls/mcp.example.com.pem", str(certificate))
    text = text.replace("/etc/tls/mcp.example.com.key", str(certificate))
    written = tmp_path / "nginx.conf"
    written.write_text(
        f"pid {tmp_path}/pid; error_log stderr; events {{}}\n"
        f"http {{ access_log off; client_body_temp_path {tmp_path}/body; "
        f"proxy_temp_path {tmp_path}/proxy; fastcgi_temp_path {tmp_path}/f; "
        f"uwsgi_temp_path {tmp_path}/u; scgi_temp_path {tmp_path}/s;\n{text}\n}}\n"
    )
    done = subprocess.run(
        [program, "-t", "-p", str(tmp_path), "-c", str(written)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "[warn]" not in done.stderr and "[emerg]" not in done.stderr, done.stderr


INSTRUCTIONS = {"FROM", "WORKDIR", "COPY", "RUN", "USER", "ENV", "EXPOSE", "CMD"}


def test_the_container():
    """Its instructions are ones that engines have, and its variables ones that the server reads."""
    [block] = of_kind("dockerfile")
    lines = block.text.replace("\\\n", " ").splitlines()
    words = [line.split(maxsplit=1) for line in lines if line.strip()]
    assert {first for first, _ in words} <= INSTRUCTIONS
    assert words[0][0] == "FROM" and words[-1][0] == "CMD"
    variables = re.findall(rf"\b{PREFIX}(\w+)=", block.text)
    assert len(variables) >= 5 and set(variables) <= set(SETTINGS)
    assert isinstance(json.loads(words[-1][1]), list)  # no shell between it and signals
