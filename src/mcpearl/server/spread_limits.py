"""Rates over all processes of a deployment, without a command to the store during a call.

Every process counts its own calls and refuses those over the rate. Ten times a second it reports them to
the store and learns what all processes together have counted. So a caller whose calls are spread over the
processes may make more calls at first, at most one burst per process; they are counted, and the caller
has to wait longer later.
"""

import asyncio
from collections.abc import Callable, Hashable, Mapping

from mcpearl.runtime.rate import Meter
from mcpearl.stores.errors import StoreUnavailable
from mcpearl.stores.rates import RateStore

EVERY = 0.1
"""Seconds between two reports of a process that takes calls."""
_LOOK = 5.0  # seconds after which limits that were added are found


class SpreadLimits:
    """Keeps the meters of one process in step with those of the others.

    Args:
        meters: Returns the meters of the server, by what they limit.
        store: Adds up what they count.
        composed: Called when a meter counts differently from now on.
    """

    def __init__(
        self,
        meters: Callable[[], Mapping[str, Meter]],
        store: RateStore,
        composed: Callable[[], None],
    ) -> None:
        self._meters = meters
        self._store = store
        self._composed = composed
        self._used = asyncio.Event()

    def spread(self) -> None:
        """Let every meter note its calls."""
        new = [meter for meter in self._meters().values() if not meter.is_spread]
        for meter in new:
            meter.spread(self._used.set)
        if new:
            self._composed()

    async def run(self) -> None:
        """Report what was used, until cancelled."""
        while True:
            self.spread()
            try:
                await asyncio.wait_for(self._used.wait(), _LOOK)
            except TimeoutError:
                continue
            await asyncio.sleep(EVERY)
            self._used.clear()
            for name, meter in self._meters().items():
                if meter.is_spread:
                    await self._report(name, meter)

    async def _report(self, name: str, meter: Meter) -> None:
        spent = meter.spent()
        if not spent:
            return
        calls = [(_text_of(key), count) for key, count in spent.items()]
        try:
            owed = await self._store.spend(name, meter.interval, calls)
        except StoreUnavailable:
            return  # meanwhile each process counts for itself
        for key, seconds in zip(spent, owed, strict=True):
            meter.owe(key, seconds)


def _text_of(key: Hashable) -> str:
    """Return a key as every process writes it."""
    return repr(getattr(key, "identity", key))
