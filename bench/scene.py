"""The scene of `tests.deployment.scene` for ten minutes: what calls come to while workers are killed.

Two machines with two workers each share a Redis; a worker is killed every second, the store is restarted,
and stands still for a while. Clients of both TypeScript SDKs and of the official Python SDK take part,
so the Node packages of the tests have to be there. Books that do not balance (a call that ran twice, an
answer or an update that was lost, a session that its client lost, a kind of client that did too little, a
key that is left when all expiries are over) make the run wrong. A quick run plays 20 seconds, and does
not wait for the expiries.
"""

import asyncio

from tests.deployment.scene import KEPT, play

from bench.peers import MCPEARL
from bench.progress import say
from bench.results import Results

CLIENTS = 8


def run(results: Results, *, quick: bool) -> None:
    """Play the scene once."""
    seconds = 20.0 if quick else 600.0
    say(f"scene: {seconds:g} seconds with a killer")
    try:
        kept = 0 if quick else KEPT
        figures = asyncio.run(play("redis", seconds, CLIENTS, strangers=True, kept=kept))
    except AssertionError as error:
        results.wrong.append(f"the scene: {error}")
        return
    answered, calls = figures["outcomes"]["answered"], figures["calls"]
    results.add_round("scene_answered", MCPEARL.name, 100 * answered / calls)
    results.add_round("scene_calls", MCPEARL.name, answered / seconds)
    results.add_round("scene_kills", MCPEARL.name, figures["kills"])
