"""Knowing that a server in another process serves, with all of its workers."""

import socket
import subprocess
from typing import Any

from tests.waiting import eventually


class ServiceManager:
    """Hears from a server what systemd would hear; the server is started with its `environment`."""

    def __init__(self) -> None:
        self._heard = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._heard.setblocking(False)
        self._heard.bind("")  # to a free abstract name
        self.environment = {"NOTIFY_SOCKET": f"@{self._heard.getsockname()[1:].decode()}"}

    async def ready(self, process: "subprocess.Popen[Any]") -> None:
        """Wait until the server serves, and each of its workers."""

        def said() -> bool:
            assert process.poll() is None, "the server ended before it was ready"
            try:
                return b"READY=1" in self._heard.recv(4096)
            except BlockingIOError:
                return False

        try:
            await eventually(said)
        finally:
            self._heard.close()
