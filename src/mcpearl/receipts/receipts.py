"""Settings of receipts: where calls are recorded, with which key, and what happens if that fails."""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from mcpearl.receipts.recorder import Recorder
else:
    Recorder = Any

OnFull = Literal["refuse", "continue"]


class Receipts:
    """A tamper-evident record of every call.

    >>> app = Server("weather", receipts="receipts/")
    >>> app = Server("weather", receipts=Receipts("receipts/", durable=True))

    Several processes, servers and clients may write to one folder: it is one log.

    Args:
        path: The folder of the log; it is created if there is none.
        key: The file of the key that signs, created on first use; or the key itself as text, or several,
            of which the first signs. By default the environment variable `MCPEARL_RECEIPTS_KEY` is used,
            or else the file `<folder>.key` beside the folder.
        durable: Whether a call is answered only when its records are on disk.
        on_full: What happens to calls when records cannot be written: `refuse` them, or `continue`
            without records, which is logged, and recorded once that is possible.
        queue: Bytes that may wait to be written.
        rotate: Bytes after which a new file is begun.
        sign_every: Seconds between signed heads, while there are records.
        name: The name of the log, for a new key: a URL without a scheme, such as `example.com/weather`.
            By default a random name is generated.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        key: str | Path | Sequence[str] | None = None,
        durable: bool = False,
        on_full: OnFull = "refuse",
        queue: int = 64 * 1024 * 1024,
        rotate: int = 64 * 1024 * 1024,
        sign_every: float = 1.0,
        name: str | None = None,
    ) -> None:
        if on_full not in ("refuse", "continue"):
            raise ValueError(f"`on_full` is {on_full!r}; it may be `refuse` or `continue`")
        if queue < 1 or rotate < 1 or sign_every <= 0:
            raise ValueError("`queue`, `rotate` and `sign_every` of receipts must be positive")
        self.folder = Path(path)
        self.durable = durable
        self.on_full = on_full
        self.queue = queue
        self.rotate = rotate
        self.sign_every = sign_every
        self.key = _as_text(key)
        self.name = name

    def recorder(self, role: str, of: str) -> "Recorder":
        """Return an object that records the calls of one server or client.

        Args:
            role: `server` or `client`.
            of: The name of the server, or of the server that the client connects to.
        """
        from mcpearl.receipts.recorder import Recorder

        return Recorder(self, role, of)


def _as_text(key: str | Path | Sequence[str] | None) -> str | list[str] | None:
    if isinstance(key, Path):
        key = str(key)
    if key is None:
        return None
    if isinstance(key, str):
        return key if key.startswith("PRIVATE+KEY+") else str(Path(key).absolute())
    return list(key)


def receipts_of(given: "Receipts | str | PathLike[str]") -> Receipts:
    """Return the settings for the `receipts` option of a server or client."""
    return given if isinstance(given, Receipts) else Receipts(given)
