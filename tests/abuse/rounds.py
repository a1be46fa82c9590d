"""One round: some generated crowds against a running router. The same seed gives the same
crowds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import hypothesis
from hypothesis import HealthCheck, Phase, given, settings

from tests.abuse.crowds import CROWDS, Crowd
from tests.abuse.hostile import Client
from tests.abuse.victim import BAD, PAIR, Victim, reproducible
from tests.harness.messages import chat


async def attack(victim: Victim, crowd: Crowd) -> None:
    """Run a crowd against the router; fails with a description of the crowd."""
    targets = (victim.hostile, *victim.pair)
    for index, answer in enumerate(crowd.answers):
        targets[index % len(targets)].then(answer)
    victim.renew()
    clients = [*crowd.clients, *plain(len(crowd.answers))]
    async with victim.attacked():
        await asyncio.gather(*(client.act(victim.port) for client in clients))
    victim.scripted += len(crowd.answers)
    victim.met += len(crowd.answers) - sum(len(replica.script) for replica in targets)
    for replica in targets:
        replica.script.clear()


def plain(answers: int) -> Iterator[Client]:
    """Clients with ordinary requests, so that the hostile answers are used: many generated requests
    are refused.
    """
    for index in range(answers):
        yield Client(chat(model=PAIR if index % 3 else BAD, stream=index % 2 == 0))


def run_round(runner: asyncio.Runner, victim: Victim, seed: int, crowds: int) -> None:
    """Run this number of crowds of this seed. A failure shows the smallest crowd that reproduces
    it.
    """

    @hypothesis.seed(seed)
    @settings(
        max_examples=crowds,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink],
        print_blob=False,
    )
    @given(CROWDS)
    def each(crowd: Crowd) -> None:
        reproducible(lambda: runner.run(attack(victim, crowd)))

    each()
