"""Pictures on a terminal that can draw them; it says so in the environment of its programs.

Two protocols are spoken: the one of iTerm2, which takes a file as it is, and the one of kitty, which
takes PNG. A multiplexer, such as tmux, hands the variables of the terminal on to its programs but not
their pictures to the terminal (they end up in the title of the window), so none is drawn in one.
"""

import base64
import struct
import sys
from collections.abc import Mapping

_ITERM = ("iTerm.app", "iTerm2", "WezTerm", "mintty", "rio", "WarpTerminal")
_KITTY = ("kitty", "ghostty")
_KONSOLE = 220400  # the first version that draws
_PNG = b"\x89PNG\r\n\x1a\n"
_FILES = (_PNG, b"\xff\xd8\xff", b"GIF8", b"BM")  # how files begin that iTerm2 and its likes draw
_PART = 4096  # characters in a part, at most, as the protocol of kitty wants it


def drawn(content: bytes, environment: Mapping[str, str]) -> str | None:
    """Return what draws a picture on this terminal, or None if it cannot.

    Args:
        content: the file of the picture.
        environment: the variables of this process.
    """
    match _protocol(environment):
        case "iterm" if content.startswith(_FILES) or content[8:12] == b"WEBP":
            encoded = base64.b64encode(content).decode()
            return f"\x1b]1337;File=inline=1;size={len(content)}:{encoded}\x07"
        case "kitty" if content.startswith(_PNG):
            return _for_kitty(content)
    return None


def draws_png_only(environment: Mapping[str, str]) -> bool:
    """Return whether this terminal draws pictures, but of no type other than PNG."""
    return _protocol(environment) == "kitty"


def _protocol(environment: Mapping[str, str]) -> str | None:
    term = environment.get("TERM", "")
    program = environment.get("TERM_PROGRAM", "")
    if environment.get("TMUX") or environment.get("STY") or term.startswith(("screen", "tmux")):
        return None
    # `LC_TERMINAL` is what arrives at the other end of an SSH connection.
    if program in _ITERM or (not program and environment.get("LC_TERMINAL") in _ITERM):
        return "iterm"
    if program in _KITTY or term.removeprefix("xterm-") in _KITTY:
        return "kitty"
    if program:  # started from a terminal that draws, such as an editor with one of its own
        return None
    version = environment.get("KONSOLE_VERSION", "")
    if environment.get("KITTY_WINDOW_ID") or (version.isdecimal() and int(version) >= _KONSOLE):
        return "kitty"
    return None


def _for_kitty(content: bytes) -> str:
    encoded = base64.b64encode(content).decode()
    parts = [encoded[at : at + _PART] for at in range(0, len(encoded), _PART)]
    last = len(parts) - 1
    # Format 100 is PNG; `q` asks for no answer, which would be typed into the shell.
    head = f"a=T,f=100,q=2,{_cells(content)}"
    return "".join(
        f"\x1b_G{'' if at else head}m={int(at < last)};{part}\x1b\\"
        for at, part in enumerate(parts)
    )


def _cells(content: bytes) -> str:
    """Return how many cells a PNG is scaled to, if it is wider than the terminal."""
    width, height = struct.unpack(">II", content[16:24].ljust(8, b"\0"))
    rows, columns, across, down = _terminal()
    if not (rows and columns and across and down) or width <= across:
        return ""
    tall = round(height * across / width / (down / rows))
    return f"c={columns},r={max(1, tall)},"


def _terminal() -> tuple[int, ...]:
    """Return rows, columns, width and height in pixels; 0 stands for what is not known."""
    try:
        import fcntl
        import termios

        found = fcntl.ioctl(sys.stdout.fileno(), termios.TIOCGWINSZ, bytes(8))
    except (ImportError, OSError, ValueError):
        return 0, 0, 0, 0
    return struct.unpack("HHHH", found)
