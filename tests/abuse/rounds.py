"""One round: some generated crowds against a running router. The same seed gives the same
crowds. A crowd is a group of hostile clients, and the answers of hostile replicas.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

import hypothesis
from hypothesis import HealthCheck, Phase, given, settings, strategies as st

from tests.abuse.clients import CLIENT
from tests.abuse.hostile import Answer, Client
from tests.abuse.replies import ANSWER
from tests.abuse.victim import BAD, PAIR, Victim, reproducible
from tests.harness.messages import chat

CLIENTS = 12
ANSWERS = 8


@dataclass(frozen=True)
class Crowd:
    """Clients that connect at the same time, and the answers of hostile replicas."""

    clients: tuple[Client, ...]
    answers: tuple[Answer, ...]


@st.composite
def crowds(draw: st.DrawFn) -> Crowd:
    """Draw a crowd without `st.builds`: a failure report then shows the `repr` of the crowd, not
    megabytes of arguments.
    """
    clients = draw(st.lists(CLIENT, min_size=1, max_size=CLIENTS))
    return Crowd(tuple(clients), tuple(draw(st.lists(ANSWER, max_size=ANSWERS))))


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


def run_round(runner: asyncio.Runner, victim: Victim, seed: int, count: int) -> None:
    """Run `count` crowds of this seed. A failure shows the smallest crowd that reproduces
    it.
    """

    @hypothesis.seed(seed)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink],
        print_blob=False,
    )
    @given(crowds())
    def each(crowd: Crowd) -> None:
        reproducible(lambda: runner.run(attack(victim, crowd)))

    each()
