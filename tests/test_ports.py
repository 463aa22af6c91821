"""Ports that tests choose for servers."""

import socket

import pytest

from tests import ports
from tests.ports import free_port


def test_a_run_may_choose_more_ports_than_there_are() -> None:
    chosen = [free_port() for _ in range(2500)]
    assert len(set(chosen[:500])) == 500  # none comes again soon


def test_a_port_in_use_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        used = taken.getsockname()[1]
        monkeypatch.setattr(ports, "_ports", [used, free := free_port()])
        monkeypatch.setattr(ports, "_next", 0)
        assert free_port() == free
        monkeypatch.setattr(ports, "_ports", [used])
        with pytest.raises(AssertionError, match="none of the 1 ports"):
            free_port()
