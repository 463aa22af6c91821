"""Names that are unique across many servers, and that every model provider accepts.

The name of a server and the name of a tool are joined to one name of letters, digits, `_` and `-`, of at
most 64 characters. It depends only on those two, so it stays the same when other servers come and go.
"""

import re
from collections.abc import Container, Iterable
from hashlib import sha256

LONGEST = 64
SEPARATOR = "__"
_SAFE = re.compile(r"[A-Za-z0-9_-]+")
_UNSAFE = re.compile(r"[^A-Za-z0-9-]+")
_DIGITS = "abcdefghijklmnopqrstuvwxyz234567"
_MARK = 10  # characters of the digest, of five bits each


def joint_name(server: str, name: str, attempt: int = 0) -> str:
    """Return the joint name of something a server offers.

    It is `server__name` if that is short, safe and unambiguous. Otherwise it consists of the safe
    characters of both names, with single underscores in place of the others, and a digest of both. The
    two forms never collide.

    Args:
        server: The server's name.
        name: The name of the thing at the server.
        attempt: Which of the possible digests to use; a higher one if the first is taken.
    """
    plain = f"{server}{SEPARATOR}{name}"
    if not attempt and len(plain) <= LONGEST and _can_stand(server) and _SAFE.fullmatch(name):
        return plain
    digest = sha256(f"{attempt}\0{server}\0{name}".encode("utf-8", "surrogatepass")).digest()
    mark = "".join(_DIGITS[byte & 31] for byte in digest[:_MARK])
    words = "_".join(filter(None, (_words(server), _words(name))))
    return f"{words[: LONGEST - _MARK - 1].rstrip('_')}_{mark}".lstrip("_")


def named_server(joint: str, servers: Container[str]) -> tuple[str, str] | None:
    """Return the server and the name in a joint name of the form `server__name`; None for others.

    Args:
        joint: The joint name.
        servers: The names of the servers that exist.
    """
    server, found, name = joint.partition(SEPARATOR)
    if not found or not name or server not in servers or joint_name(server, name) != joint:
        return None
    return server, name


def _can_stand(server: str) -> bool:
    """Whether a server's name can be read back from in front of the separator."""
    return bool(_SAFE.fullmatch(server)) and SEPARATOR not in server and not server.endswith("_")


def _words(text: str) -> str:
    """Return the safe characters of a name, with single underscores in place of the others."""
    return _UNSAFE.sub("_", text[: 4 * LONGEST]).strip("_")


class NameTable:
    """The joint names of everything that some servers offer, and what each of them stands for.

    >>> table = NameTable()
    >>> table.put("weather", ["forecast"])
    {'forecast': 'weather__forecast'}
    >>> table.find("weather__forecast")
    ('weather', 'forecast')
    """

    def __init__(self) -> None:
        self._meanings: dict[str, tuple[str, str]] = {}  # by joint name
        self._names: dict[str, dict[str, str]] = {}  # by server: joint names by original name

    def __len__(self) -> int:
        return len(self._meanings)

    def put(self, server: str, names: Iterable[str]) -> dict[str, str]:
        """Set what a server offers now, replacing what it offered before; return the joint names.

        Args:
            server: The server's name.
            names: Names at the server; duplicates count once.
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
        """Return the server that a joint name belongs to, and the name there; None if unknown.

        Args:
            joint: A name of this table.
        """
        return self._meanings.get(joint)

    def of(self, server: str, name: str) -> str | None:
        """Return the joint name of something a server offers; None if it does not offer that.

        Args:
            server: The server's name.
            name: The name of the thing at the server.
        """
        return self._names.get(server, {}).get(name)

    def _free(self, server: str, name: str) -> str:
        attempt = 0
        while (joint := joint_name(server, name, attempt)) in self._meanings:
            attempt += 1  # two digests of 50 bits were equal
        return joint
