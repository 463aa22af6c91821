"""What a store holds, for operators: deployments, their processes, names, and keys by kind."""

from collections import Counter
from typing import Any

from msgspec import Struct

from mcpearl.stores.errors import StoreUnavailable
from mcpearl.stores.redis_address import parse
from mcpearl.stores.redis_link import RedisLink
from mcpearl.stores.redis_members import DeployedProcess, RedisMembers

_KINDS = {
    "session": "sessions that changed",
    "m": "streams",
    "state": "states of sessions and principals",
    "proof": "used DPoP proofs",
    "task": "tasks",
    "name": "names",
    "rate": "callers with a rate",
    "inbox": "messages for single processes",
}
_MEMBERS = ":members"


class HeldName(Struct, frozen=True):
    """A name that a process holds."""

    name: str
    machine: str
    process: int


class Deployment(Struct, frozen=True):
    """One deployment in a store."""

    prefix: str
    members: list[DeployedProcess]
    names: list[HeldName]
    sessions: int
    """How many there are, as of a second ago."""
    keys: dict[str, int]
    """How many keys of each kind there are."""


async def overview(address: str) -> list[Deployment]:
    """Look at all deployments of a store, or at the one whose prefix the address names.

    Raises:
        StoreUnavailable: It cannot be reached or used.
        ValueError: The address cannot be read.
    """
    found = parse(address)
    client = found.client(None)
    try:
        keys = [key.decode(errors="replace") async for key in client.scan_iter(count=1000)]
    except Exception as error:
        raise StoreUnavailable(f"{found.shown} cannot be reached: {error}") from None
    finally:
        await client.aclose()
    prefixes = {each[1 : -len(_MEMBERS) - 1] for each in keys if each.endswith("}" + _MEMBERS)}
    if found.prefix is not None:
        prefixes &= {found.prefix}
    return [await _deployment(address, prefix, keys) for prefix in sorted(prefixes)]


async def _deployment(address: str, prefix: str, keys: list[str]) -> Deployment:
    own = [key for key in keys if key.startswith((f"{{{prefix}}}:", f"{prefix}:{{"))]
    link = RedisLink(parse(address), prefix)
    await link.start()
    try:
        members = sorted(await RedisMembers(link).all(), key=lambda member: member.since)
        names = [await _name(link, key) for key in own if key.startswith(link.key("name", ""))]
        sessions = int(await link.send("ZCARD", link.key("sessions")))
    finally:
        await link.close()
    counted = Counter(_KINDS.get(key.partition("}:")[2].partition(":")[0], "") for key in own)
    counted.pop("", None)
    held = sorted((name for name in names if name is not None), key=lambda name: name.name)
    return Deployment(prefix, members, held, sessions, dict(sorted(counted.items())))


async def _name(link: RedisLink, key: str) -> HeldName | None:
    fields: list[Any] = await link.send("HMGET", key, "name", "machine", "process")
    if None in fields:
        return None  # it was released meanwhile
    name, machine, process = (bytes(each).decode(errors="replace") for each in fields)
    return HeldName(name, machine, int(process) if process.isdigit() else 0)
