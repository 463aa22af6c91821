"""Pictures on a terminal: which terminals are known, and that what is drawn is the picture."""

import base64
import fcntl
import os
import pty
import re
import struct
import termios
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

import pytest

from mcpearl.cli.pictures import drawn
from tests.cli.running import WEATHER, Screen
from tests.cli.weather import PNG

JPEG = b"\xff\xd8\xff\xe0" + bytes(20)
WEBP = b"RIFF\x1a\x00\x00\x00WEBPVP8L" + bytes(20)
SVG = b"<svg xmlns='http://www.w3.org/2000/svg'/>"


def of_iterm(text: str) -> bytes:
    """Return the file in a picture as iTerm2 takes it."""
    found = re.search(r"\x1b\]1337;File=inline=1;size=(\d+):([^\x07]*)\x07", text)
    assert found is not None, repr(text)
    content = base64.b64decode(found[2], validate=True)
    assert len(content) == int(found[1])
    return content


def of_kitty(text: str) -> tuple[bytes, str]:
    """Return the file in a picture as kitty takes it, and what is said of it."""
    parts = re.findall(r"\x1b_G([^;]*);([^\x1b]*)\x1b\\", text)
    said = [about.split(",") for about, _ in parts]
    assert all(len(data) <= 4096 for _, data in parts)
    assert [about[-1] for about in said] == ["m=1"] * (len(parts) - 1) + ["m=0"]
    assert all(len(about) == 1 for about in said[1:])
    return base64.b64decode("".join(data for _, data in parts)), ",".join(said[0][:-1])


def large_png(width: int, height: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    rows = b"".join(b"\0" + os.urandom(3 * width) for _ in range(height))
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    end = chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + end


@pytest.mark.parametrize(
    "env",
    [
        {"TERM_PROGRAM": "iTerm.app"},
        {"TERM_PROGRAM": "WezTerm"},
        {"TERM_PROGRAM": "mintty"},
        {"LC_TERMINAL": "iTerm2"},  # over SSH
    ],
)
@pytest.mark.parametrize("content", [PNG, JPEG, WEBP])
def test_terminals_that_take_files(env: dict[str, str], content: bytes):
    assert of_iterm(drawn(content, {"TERM": "xterm-256color", **env}) or "") == content


@pytest.mark.parametrize(
    "env",
    [
        {"TERM": "xterm-kitty"},  # over SSH
        {"TERM": "xterm-256color", "KITTY_WINDOW_ID": "1"},
        {"TERM": "xterm-ghostty"},
        {"TERM": "xterm-256color", "TERM_PROGRAM": "ghostty"},
        {"TERM": "xterm-256color", "KONSOLE_VERSION": "230401"},
    ],
)
def test_terminals_that_take_png(env: dict[str, str]):
    content = large_png(80, 60)
    assert of_kitty(drawn(content, env) or "") == (content, "a=T,f=100,q=2")
    assert drawn(JPEG, env) is None


@pytest.mark.parametrize(
    "env",
    [
        {},
        {"TERM": "xterm-256color"},
        {"TERM": "tmux-256color", "TERM_PROGRAM": "tmux", "KITTY_WINDOW_ID": "1"},
        {"TERM": "screen", "LC_TERMINAL": "iTerm2"},
        {"TERM": "xterm-kitty", "TMUX": "/tmp/tmux-0/default,1,0"},
        {"TERM": "xterm-kitty", "STY": "12.pts-0.host"},
        {"TERM": "xterm-256color", "TERM_PROGRAM": "vscode", "KITTY_WINDOW_ID": "1"},
        {"TERM": "xterm-256color", "TERM_PROGRAM": "Apple_Terminal", "LC_TERMINAL": "iTerm2"},
        {"TERM": "xterm-256color", "KONSOLE_VERSION": "211200"},
    ],
)
def test_terminals_that_cannot(env: dict[str, str]):
    assert drawn(PNG, env) is None


def test_what_is_no_picture_of_points_is_not_drawn():
    assert drawn(SVG, {"TERM_PROGRAM": "iTerm.app"}) is None
    assert drawn(b"", {"TERM_PROGRAM": "iTerm.app"}) is None
    assert drawn(b"", {"TERM": "xterm-kitty"}) is None


@contextmanager
def terminal_of(columns: int, pixels: int) -> Iterator[TextIO]:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 20, columns, pixels, 320))
    with os.fdopen(theirs, "w") as stdout:
        yield stdout
    os.close(ours)


@pytest.mark.parametrize(("width", "said"), [(400, ""), (800, ",c=50,r=3")])
def test_a_picture_is_made_as_wide_as_the_terminal_at_most(
    width: int, said: str, monkeypatch: pytest.MonkeyPatch
):
    content = large_png(width, 96)
    with terminal_of(50, 400) as stdout, monkeypatch.context() as changed:
        changed.setattr("sys.stdout", stdout)
        text = drawn(content, {"TERM": "xterm-kitty"}) or ""
    assert of_kitty(text) == (content, "a=T,f=100,q=2" + said)


def test_a_call_on_a_terminal_that_draws(tmp_path: Path):
    with Screen("call", WEATHER, "picture", "-o", tmp_path, TERM="xterm-kitty") as screen:
        assert screen.ended() == 0
    assert of_kitty(screen.raw) == (PNG, "a=T,f=100,q=2")
    with Screen(
        "read", WEATHER, "weather://map", TERM_PROGRAM="rio", TMPDIR=str(tmp_path)
    ) as screen:
        assert screen.ended() == 0
    assert of_iterm(screen.raw) == PNG


def test_a_call_in_a_multiplexer_only_saves(tmp_path: Path):
    env = {"TERM": "tmux-256color", "KITTY_WINDOW_ID": "1", "TMUX": "/tmp/tmux-0/default,1,0"}
    with Screen("call", WEATHER, "picture", "-o", tmp_path, **env) as screen:
        assert screen.ended() == 0
    assert "[image/png, 70 bytes] saved as" in screen.text
    assert "\x1b_" not in screen.raw and "iVBOR" not in screen.raw
    assert (tmp_path / "image-1.png").read_bytes() == PNG


def test_a_terminal_that_draws_only_png_says_so_of_others(tmp_path: Path):
    file = tmp_path / "server.py"
    file.write_text(
        "from mcpearl import Image, Server\n"
        "app = Server('pictures')\n"
        "@app.tool\n"
        "def photo() -> Image:\n"
        f"    return Image(data={JPEG!r}, format='jpeg')\n"
    )
    with Screen("call", file, "photo", "-o", tmp_path, TERM="xterm-kitty") as screen:
        assert screen.ended() == 0
    assert "not shown: this terminal draws only PNG" in screen.text
    assert (tmp_path / "image-1.jpg").read_bytes() == JPEG
    with Screen("call", file, "photo", "-o", tmp_path) as screen:
        assert screen.ended() == 0
    assert "not shown" not in screen.text
