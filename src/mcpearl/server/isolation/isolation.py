"""The isolated tools of one server, and the processes they run in.

Tools with equal settings share a pool. The zygote is forked before the event loop starts where
`app.run()` serves, and otherwise when the server comes up. It knows the tools there were when it was
forked. For a tool that is added later another zygote is forked, and the old one ends after its last call.
"""

import asyncio
from typing import TYPE_CHECKING, Any

from mcpearl.runtime.child import Child
from mcpearl.runtime.isolation.nursery import Nursery
from mcpearl.runtime.isolation.pool import ProcessPool
from mcpearl.runtime.isolation.profile import Isolate
from mcpearl.runtime.isolation.zygote import Wiring
from mcpearl.runtime.supervisor import Supervisor
from mcpearl.runtime.supervisor_errors import StartFailed
from mcpearl.server.core import ServerCore
from mcpearl.server.serving.supervised import cause_of

if TYPE_CHECKING:
    from mcpearl.server.isolation.tool import IsolatedTool
    from mcpearl.server.isolation.work import EnterLifespan
else:
    EnterLifespan = Any

_STOPPING = 15.0  # seconds the processes have to end


class Isolation:
    """The zygote and the pools of a server's isolated tools.

    Args:
        core: What the server's connections share.
        root: The supervisor that the zygote and the pools become children of.
        lifespan: Enters the server's lifespan into a stack, where it has one.
    """

    def __init__(self, core: ServerCore, root: Supervisor, lifespan: EnterLifespan | None) -> None:
        self._core = core
        self._root = root
        self._lifespan = lifespan
        self._profiles: list[Isolate] = []
        self._tools: list[list[IsolatedTool]] = []  # by pool, in the order in which they were added
        self._count = 0
        self.known = 0
        """How many tools the zygote knows."""
        self.pools: list[ProcessPool] = []
        self._nursery: Nursery | None = None  # forked ahead
        self._forked = 0  # how many tools that one knows
        self._generation = 0
        self._name: str | None = None  # of the current generation, in the tree
        self._leaving: set[asyncio.Task[None]] = set()
        self._lock = asyncio.Lock()

    def add(self, tool: "IsolatedTool", profile: Isolate) -> tuple[int, int, int]:
        """Add a tool; return the numbers of its pool, of itself in there, and of itself among all."""
        if profile in self._profiles:
            pool = self._profiles.index(profile)
        else:
            pool = len(self._profiles)
            self._profiles.append(profile)
            self._tools.append([])
        self._tools[pool].append(tool)
        self._count += 1
        return pool, len(self._tools[pool]) - 1, self._count - 1

    @property
    def masks(self) -> bool:
        """Whether clients do not see what a tool printed."""
        return self._core.mask_errors

    # Processes

    def fork_ahead(self) -> None:
        """Fork the zygote now, before there are loops and threads."""
        self._nursery = Nursery(self._work, self._profiles.__getitem__)
        self._nursery.fork()
        self._forked = self._count

    def discard_ahead(self) -> None:
        """End a zygote that was forked ahead and is not in use."""
        if self._nursery is not None:
            self._nursery.discard()
            self._nursery = None

    def _work(self, pool: int, wiring: Wiring) -> None:
        """Run as a process of a pool."""
        from mcpearl.server.isolation.work import work

        work(self._core, self._tools[pool], self._profiles[pool], self._lifespan, wiring)

    async def start(self) -> None:
        """Start a zygote and the pools, and have calls from now on run there.

        Raises:
            Unusable: The settings of a tool ask for what the system does not have.
        """
        nursery, self._nursery = self._nursery, None
        if nursery is not None and self._forked != self._count:
            nursery.discard()
            nursery = None
        if nursery is None:
            nursery = Nursery(self._work, self._profiles.__getitem__)
            nursery.fork()
        known = self._count
        longest = self._core.limits.max_outgoing
        pools = [
            ProcessPool(self._described(number), number, profile, nursery, longest)
            for number, profile in enumerate(self._profiles)
        ]
        children = [Child(each.name, each, shutdown=_STOPPING) for each in pools]
        self._generation += 1
        name = "isolation" if self._generation == 1 else f"isolation {self._generation}"
        supervisor = Supervisor(
            name, [Child("zygote", nursery), *children], strategy="rest_for_one"
        )
        shutdown = _STOPPING * (len(pools) + 1)
        try:
            await self._root.add(Child(name, supervisor, shutdown=shutdown, escalates=True))
        except StartFailed as error:
            nursery.discard()
            raise cause_of(error) from None
        self.known, self.pools, self._name = known, pools, name

    def _described(self, number: int) -> str:
        names = [f"`{tool.definition.name}`" for tool in self._tools[number]]
        shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        return f"pool of {shown}"

    async def renew(self) -> None:
        """Start a zygote that knows the tools there are now; the old one ends after its last call."""
        async with self._lock:
            if self.known == self._count:
                return
            old, name = self.pools, self._name
            await self.start()
            if name is not None:
                task = asyncio.get_running_loop().create_task(self._leave(old, name))
                self._leaving.add(task)
                task.add_done_callback(self._leaving.discard)

    async def _leave(self, pools: list[ProcessPool], name: str) -> None:
        for pool in pools:
            await pool.drained()
        await self._root.remove(name)

    async def stop(self) -> None:
        """End all processes."""
        for task in tuple(self._leaving):
            task.cancel()
        while self._generation:
            name = "isolation" if self._generation == 1 else f"isolation {self._generation}"
            await self._root.remove(name)
            self._generation -= 1
        self.known, self.pools, self._name = 0, [], None
