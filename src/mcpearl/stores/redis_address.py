"""Addresses of Redis and Valkey servers, and the clients that reach them.

One server: `redis://user:password@host:6379/0`, `rediss://…` over TLS, `unix:///run/redis.sock`. A master
found through Sentinel: `redis+sentinel://user:password@one:26379,two:26379/master-name/0`. A cluster:
`redis+cluster://user:password@one:6379,two:6379`. With `rediss+…` both use TLS; `valkey` may be written
for `redis` in all of them. Options follow a question mark: `prefix` (of all keys), `durable=1` (refuse a
server that keeps nothing on disk), `sentinel_user` and `sentinel_password` (for Sentinels that ask for
them), and those of redis-py, such as `ssl_ca_certs`.
"""

import logging
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from msgspec import Struct

if TYPE_CHECKING:
    from redis.asyncio import Redis, RedisCluster
    from redis.asyncio.retry import Retry

logger = logging.getLogger("mcpearl.stores")

AddressKind = Literal["server", "sentinel", "cluster"]
SCHEMES = ("redis://", "rediss://", "unix://", "redis+sentinel://", "redis+cluster://")
_SECURE = {"valkey": "redis", "valkeys": "rediss"}
_OWN = ("prefix", "durable", "sentinel_user", "sentinel_password")
_FIXED = ("protocol", "decode_responses")  # options of redis-py that change the form of replies
_SENTINEL_PORT = 26379
_PORT = 6379


class RedisAddress(Struct, frozen=True, kw_only=True):
    """Where a store is, and how it is used."""

    kind: AddressKind
    shown: str
    """The address without its password, for messages."""
    url: str = ""
    """The URL passed to redis-py for a single server."""
    hosts: tuple[tuple[str, int], ...] = ()
    """The Sentinels, or the nodes of the cluster to contact first."""
    master: str = ""
    """The name Sentinel knows the master by."""
    database: int = 0
    user: str | None = None
    password: str | None = None
    sentinel_user: str | None = None
    sentinel_password: str | None = None
    tls: bool = False
    options: tuple[tuple[str, str], ...] = ()
    """Options of redis-py."""
    prefix: str | None = None
    """The beginning of every key."""
    durable: bool = False
    """Whether a server that keeps nothing on disk is refused."""

    @staticmethod
    async def disconnect(client: "Redis | RedisCluster") -> None:
        """Close a client, and its connections to Sentinels, even those that are broken."""
        from redis.exceptions import RedisError

        sentinel = getattr(getattr(client, "connection_pool", None), "sentinel_manager", None)
        for each in (client, *(() if sentinel is None else sentinel.sentinels)):
            try:
                await each.aclose()
            except (RedisError, OSError) as error:
                logger.debug("a connection to the store could not be closed: %s", error)

    def client(self, timeout: float | None) -> "Redis | RedisCluster":
        """Return a client that is not connected yet.

        Args:
            timeout: Seconds a reply may take; None if the caller limits that itself.
        """
        from redis.asyncio import Redis, RedisCluster
        from redis.asyncio.retry import Retry
        from redis.backoff import NoBackoff

        # A command may have run although its reply was lost: the caller decides whether to repeat it.
        common: dict[str, Any] = {
            "socket_timeout": timeout,
            "socket_connect_timeout": 2.0,
            "protocol": 2,
        }
        if self.kind == "server":
            return Redis.from_url(self.url, retry=Retry(NoBackoff(), 0), **common)
        common |= {"username": self.user, "password": self.password, **self._given()}
        if self.kind == "sentinel":
            return self._master(common | {"retry": Retry(NoBackoff(), 0)}, Retry(NoBackoff(), 1))
        from redis.asyncio.cluster import ClusterNode

        nodes = [ClusterNode(host, port) for host, port in self.hosts]
        return RedisCluster(
            startup_nodes=nodes, ssl=self.tls, retry=Retry(NoBackoff(), 1), **common
        )

    def _given(self) -> dict[str, Any]:
        """Return the options of redis-py as it wants them; it converts only those in a URL of its own."""
        from redis.asyncio.connection import parse_url

        return dict(parse_url(f"redis://?{urlencode(self.options)}"))

    def _master(self, common: dict[str, Any], retry: "Retry") -> "Redis":
        from redis.asyncio.sentinel import Sentinel

        watching = {name: value for name, value in common.items() if name.startswith("ssl_")}
        watching |= {"username": self.sentinel_user, "password": self.sentinel_password}
        watching |= {"socket_timeout": 2.0, "protocol": 2, "ssl": self.tls}
        watching["retry"] = retry  # a Sentinel may have closed a connection that was not used
        sentinel = Sentinel(self.hosts, sentinel_kwargs=watching)  # type: ignore[no-untyped-call]
        found: Redis = sentinel.master_for(self.master, db=self.database, ssl=self.tls, **common)
        return found


def is_redis(address: str) -> bool:
    """Whether an address is that of a Redis or Valkey server."""
    return _normal(address).startswith(SCHEMES) or _normal(address).startswith(
        ("rediss+sentinel://", "rediss+cluster://")
    )


def _normal(address: str) -> str:
    """Return an address with `redis` for `valkey`."""
    scheme, mark, rest = address.partition("://")
    first, plus, kind = scheme.partition("+")
    return _SECURE.get(first, first) + plus + kind + mark + rest


def parse(address: str) -> RedisAddress:
    """Parse an address. Raises a `ValueError` that says what is wrong with it."""
    parts = urlsplit(_normal(address))
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    own = {name: query.pop(name) for name in _OWN if name in query}
    for name in _FIXED:
        if name in query:
            raise ValueError(f"leave out `{name}`: the store reads replies in one form only")
    scheme, _, kind = parts.scheme.partition("+")
    user, password, places = _credentials(parts.netloc)
    shown = f"{parts.scheme}://{places}{parts.path}"
    prefix = own.get("prefix")
    if prefix == "":
        raise ValueError(f"{shown}: `prefix` is empty")
    settings: dict[str, Any] = {
        "shown": shown,
        "user": user,
        "password": password,
        "tls": scheme == "rediss",
        "prefix": prefix,
        "sentinel_user": own.get("sentinel_user"),
        "sentinel_password": own.get("sentinel_password"),
        "durable": own.get("durable", "0") not in ("0", "false", "no", ""),
        "options": tuple(query.items()),
    }
    if not kind:
        url = parts._replace(query=urlencode(query)).geturl()
        if scheme == "unix" and not parts.path.strip("/"):
            raise ValueError(f"{shown} has no path: write `unix:///run/redis.sock`")
        return RedisAddress(kind="server", url=url, **settings)
    path = [unquote(part) for part in parts.path.split("/") if part]
    if kind == "cluster":
        if path:
            raise ValueError(f"{shown}: a cluster has no databases; leave out {parts.path!r}")
        return RedisAddress(kind="cluster", hosts=_hosts(places, _PORT, shown), **settings)
    if not path or len(path) > 2:
        raise ValueError(
            f"{shown} does not name the master: write `redis+sentinel://one,two/master-name`"
        )
    return RedisAddress(
        kind="sentinel",
        hosts=_hosts(places, _SENTINEL_PORT, shown),
        master=path[0],
        database=_number(path[1], shown) if len(path) == 2 else 0,
        **settings,
    )


def _credentials(netloc: str) -> tuple[str | None, str | None, str]:
    before, at, places = netloc.rpartition("@")
    if not at:
        return None, None, places
    user, colon, password = before.partition(":")
    return unquote(user) or None, unquote(password) if colon else None, places


def _hosts(places: str, port: int, shown: str) -> tuple[tuple[str, int], ...]:
    found = []
    for place in places.split(","):
        parts = urlsplit(f"//{place}")
        try:
            given = parts.port
        except ValueError:
            raise ValueError(f"{shown}: {place!r} has a port that is not a number") from None
        if not parts.hostname:
            raise ValueError(f"{shown}: {place!r} is not a host")
        found.append((parts.hostname, given or port))
    return tuple(found)


def _number(text: str, shown: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"{shown}: {text!r} is not the number of a database")
    return int(text)
