"""Names that are unique over many servers, and that every model's provider accepts.

A name of a server and a name of a tool make one name of letters, digits, `_` and `-`, of at most 64
characters. It depends on those two only: it stays the same whatever other servers come and go.
"""

import re
from collections.abc import Container, Iterable
from hashlib import sha256

LONGEST = 64
SEPARATOR = "__"
_SAFE = re.compile(r"[A-Za-z0-9_-]+")
_UNSAFE = re.compile(r"[^A-Za-z0-9-]+")
_DIGITS = "abcdefghijklmnopqrstuvwxyz234567"
_MARK = 10  # characters of a digest, of five bits each


def joint_name(server: str, name: str, attempt: int = 0) -> str:
    """Return the one name of something a server offers.

    It is `server__name` where that is short, safe, and can have only one meaning. Otherwise it is made
    of what is safe in both, single underscores, and a digest of both; so the two forms never meet.

    Args:
        server: The server's name.
        name: Its name at the server.
        attempt: Which of the possible digests to use; another one if the first is taken.
    """
    plain = f"{server}{SEPARATOR}{name}"
    if not attempt and len(plain) <= LONGEST and _can_stand(server) and _SAFE.fullmatch(name):
        return plain
    digest = sha256(f"{attempt}\0{server}\0{name}".encode("utf-8", "surrogatepass")).digest()
    mark = "".join(_DIGITS[byte & 31] for byte in digest[:_MARK])
    words = "_".join(filter(None, (_words(server), _words(name))))
    return f"{words[: LONGEST - _MARK - 1].rstrip('_')}_{mark}".lstrip("_")


def named_server(joint: str, servers: Container[str]) -> tuple[str, str] | None:
    """Return server and name of a joint name that has both as they are; None if it has not.

    Args:
        joint: The name.
        servers: The servers there are.
    """
    server, found, name = joint.partition(SEPARATOR)
    if not found or not name or server not in servers or joint_name(server, name) != joint:
        return None
    return server, name


def _can_stand(server: str) -> bool:
    """Whether a server's name in front of the separator can be told from what follows."""
    return bool(_SAFE.fullmatch(server)) and SEPARATOR not in server and not server.endswith("_")


def _words(text: str) -> str:
    """Return what is safe in a name, with single underscores in place of the rest."""
    return _UNSAFE.sub("_", text[: 4 * LONGEST]).strip("_")


class NameTable:
    """The names of all that a number of servers offer, and what each name stands for.

    >>> table = NameTable()
    >>> table.put("weather", ["forecast"])
    {'forecast': 'weather__forecast'}
    >>> table.find("weather__forecast")
    ('weather', 'forecast')
    """

    def __init__(self) -> None:
        self._meanings: dict[str, tuple[str, str]] = {}  # by joint name
        self._names: dict[str, dict[str, str]] = {}  # by server: joint names by its own

    def __len__(self) -> int:
        return len(self._meanings)

    def put(self, server: str, names: Iterable[str]) -> dict[str, str]:
        """Set what a server offers now, in place of what it offered before; return the joint names.

        Args:
            server: The server's name.
            names: Names at the server. One that is there twice counts once.
        """
        before = self._names.get(server, {})
        wanted = dict.fromkeys(names)
        for name in [name for name in before if name not in wanted]:
            del self._meanings[before.pop(name)]
        for name in wanted:
            if name not in before:
                before[name] = self._free(server, name)
                self._meanings[before[name]] = (server, name)
        self._names[server] = before
        return dict(before)

    def remove(self, server: str) -> None:
        """Drop all names of a server.

        Args:
            server: The server's name.
        """
        for joint in self._names.pop(server, {}).values():
            del self._meanings[joint]

    def find(self, joint: str) -> tuple[str, str] | None:
        """Return the server that a name belongs to, and its name there; None if there is none.

        Args:
            joint: A name of this table.
        """
        return self._meanings.get(joint)

    def of(self, server: str, name: str) -> str | None:
        """Return the joint name of something a server offers; None if it does not offer that.

        Args:
            server: The server's name.
            name: Its name at the server.
        """
        return self._names.get(server, {}).get(name)

    def _free(self, server: str, name: str) -> str:
        attempt = 0
        while (joint := joint_name(server, name, attempt)) in self._meanings:
            attempt += 1  # two digests of 50 bits met
        return joint
