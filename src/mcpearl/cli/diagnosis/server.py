"""The way to one server, step by step, up to the step that fails."""

import asyncio
import json
import os
import shutil
import socket
import ssl
import subprocess
import time
from typing import Any
from urllib.parse import urlsplit

from mcpearl.cli.diagnosis.state import Check, TakeCheck
from mcpearl.cli.exits import CommandFailed, as_failure
from mcpearl.cli.findings import findings
from mcpearl.cli.offered import offered
from mcpearl.cli.output import CommandOutput, counted
from mcpearl.cli.target import ServerTarget, connected, way_of

_PATIENCE = 5.0  # seconds for each step below the protocol
_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}
_NETWORK = (*_PORTS, "tcp", "tls")
_INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "mcpearl-doctor", "version": "1"},
    },
}


async def examine_server(target: ServerTarget, found: TakeCheck) -> None:
    """Try every step on the way to a server, and say which one fails."""
    try:
        reach = target.reach()
    except (CommandFailed, ValueError) as error:
        found(Check("bad", "target", str(error), getattr(error, "hint", None) or ""))
        return
    command, url = way_of(reach)
    if command is not None and not _has_program(command, found):
        return
    if url is not None and not await _is_reachable(url, found):
        return
    began = time.perf_counter()
    try:
        async with connected(target, CommandOutput()) as client:
            found(Check("ok", "handshake", f"{(time.perf_counter() - began) * 1000:.0f} ms"))
            info = client.server_info
            name = f"{info.name} {info.version}, " if info else ""
            found(Check("ok", "server", f"{name}version {client.protocol_version}"))
            lists = await offered(client, ("tools", "resources", "templates", "prompts"))
            instructions = client.instructions
    except Exception as error:
        failure = as_failure(error)
        if failure is None:
            raise
        hint = failure.hint or ""
        found(Check("bad", "handshake", str(failure), "" if "doctor" in hint else hint))
        if command is not None:
            silent = getattr(error, "exit_code", None) is None  # else its end says more
            await asyncio.to_thread(
                _look_at_output, command, target, reach, found, blames_silence=silent
            )
        return
    counts = (
        f"{counted(len(lists.tools), 'tool')}, {counted(len(lists.resources), 'resource')}, "
        f"{counted(len(lists.prompts), 'prompt')}"
    )
    found(Check("ok", "offers", counts))
    problems = [each for each in findings(lists, info, instructions) if each.grade != "note"]
    if problems:
        text = f"{len(problems)}, such as {problems[0].about}: {problems[0].text}"
        found(Check("bad", "problems for hosts", text, "`mcpearl inspect TARGET` lists them"))


def _has_program(command: list[str], found: TakeCheck) -> bool:
    place = shutil.which(command[0])
    if place is None:
        text = f"{command[0]!r} is not on the PATH"
        found(Check("bad", "command", text, "install it, or write its whole path"))
        return False
    found(Check("ok", "command", " ".join(command)))
    return True


async def _is_reachable(url: str, found: TakeCheck) -> bool:
    """Look up the name, connect, and do the TLS handshake, each on its own."""
    parts = urlsplit(url)
    if parts.scheme not in _NETWORK or parts.hostname is None:
        return True  # a Unix socket, or what the handshake refuses
    port = parts.port or _PORTS.get(parts.scheme, 0)
    try:
        async with asyncio.timeout(_PATIENCE):
            loop = asyncio.get_running_loop()
            addresses = await loop.getaddrinfo(parts.hostname, port, type=socket.SOCK_STREAM)
    except (OSError, TimeoutError) as error:
        text = f"{parts.hostname} has no address: {error}"
        found(Check("bad", "name", text, "is it spelled right, and is there a network?"))
        return False
    found(Check("ok", "name", f"{parts.hostname} is {addresses[0][4][0]}"))
    return await _connects(parts.hostname, port, parts.scheme in ("https", "wss", "tls"), found)


async def _connects(host: str, port: int, tls: bool, found: TakeCheck) -> bool:
    began = time.perf_counter()
    try:
        async with asyncio.timeout(_PATIENCE):
            context = ssl.create_default_context() if tls else None
            _, writer = await asyncio.open_connection(host, port, ssl=context)
    except ssl.SSLCertVerificationError as error:
        text = f"the certificate is not trusted: {error.verify_message}"
        hint = "if it is one of yours, name its file: SSL_CERT_FILE=cert.pem mcpearl …"
        found(Check("bad", "TLS", text, hint))
        return False
    except ssl.SSLError as error:
        text = f"TLS fails: {error.reason or error}"
        found(Check("bad", "TLS", text, "is the port one of TLS, and the certificate good?"))
        return False
    except OSError as error:  # a timeout is one too
        said = os.strerror(error.errno) if isinstance(error.errno, int) else "no answer"
        hint = "is the server running, and does it listen on that address and port?"
        found(Check("bad", "connection", f"{host} port {port}: {said}", hint))
        return False
    writer.close()
    took = f"{(time.perf_counter() - began) * 1000:.1f} ms"
    found(Check("ok", "connection", f"{host} port {port}{' with TLS' if tls else ''}, {took}"))
    return True


def _look_at_output(
    command: list[str], target: ServerTarget, reach: Any, found: TakeCheck, *, blames_silence: bool
) -> None:
    """Start a server that did not answer, and see whether it writes something else than messages."""
    try:
        done = subprocess.run(
            command,
            input=json.dumps(_INITIALIZE).encode() + b"\n",
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=target.cwd or getattr(reach, "cwd", None),
            env={**os.environ, **getattr(reach, "env", {}), **target.env},
            timeout=_PATIENCE,
            check=False,
        )
        written = done.stdout
    except subprocess.TimeoutExpired as late:
        written = late.stdout or b""
    except OSError as error:
        found(Check("bad", "command", f"it cannot be started: {error.strerror}"))
        return
    if written:
        _judge(written.partition(b"\n")[0], found)
    elif blames_silence:
        text = "it writes nothing to stdout after `initialize`"
        found(Check("bad", "stdout", text, "is it an MCP server on stdio?"))


def _judge(line: bytes, found: TakeCheck) -> None:
    try:
        json.loads(line)
    except ValueError:
        text = f"it writes something else than messages: {line[:120].decode(errors='replace')!r}"
        found(Check("bad", "stdout", text, "print to stderr instead: stdout is the protocol's"))
