"""List the processes of a deployment, the names they hold, and what is in its store."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from mcpearl.cli.command import make_command
from mcpearl.cli.exits import CommandFailed, Exit
from mcpearl.cli.output import CommandOutput, counted

if TYPE_CHECKING:
    from mcpearl.stores.redis_overview import Deployment


@make_command()
@click.argument("store", envvar="MCPEARL_STORE")
async def command(out: CommandOutput, store: str) -> int:
    """List the processes of a deployment, the names they hold, and what is in its store.

    STORE is the address that the servers have (`redis://…`), or MCPEARL_STORE. It reads the names of all
    keys once, so it takes a while where there are millions.
    """
    import msgspec

    from mcpearl.stores.errors import StoreUnavailable
    from mcpearl.stores.redis_overview import overview

    try:
        found = await overview(store)
    except ValueError as error:
        raise CommandFailed(str(error), Exit.USAGE) from None
    except StoreUnavailable as error:
        raise CommandFailed(str(error), Exit.UNREACHABLE) from None
    except ImportError:
        raise CommandFailed("install `mcpearl[redis]` to look into a store", Exit.FAILED) from None
    out.show(msgspec.to_builtins(found), lambda: _write(out, found))
    return Exit.OK


def _write(out: CommandOutput, found: "list[Deployment]") -> None:
    if not found:
        out.line("no server uses this store now, or has in the last minute")
    for deployment in found:
        out.heading(f"{deployment.prefix}: {counted(deployment.sessions, 'session')}")
        rows = [
            (each.number, each.host, each.process, _time(each.since)) for each in deployment.members
        ]
        out.table(("member", "machine", "process", "since"), rows, 2)
        out.table(("name", "machine"), [(each.name, each.machine) for each in deployment.names], 2)
        out.table((), [(kind, count) for kind, count in deployment.keys.items()], 2)


def _time(since: float) -> str:
    return datetime.fromtimestamp(since, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
