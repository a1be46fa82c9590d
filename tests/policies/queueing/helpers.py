"""Shared helpers of order policy tests: tickets, and serving a queue to its end."""

from collections.abc import Sequence
from itertools import count
from random import Random
from typing import Any

from policies.queueing.contract import OrderPolicy, TicketQueue
from policies.queueing.ticket import Ticket
from tests.policies.real_views import real_views
from tests.tickets import make_ticket

REAL = real_views()

_orders = count(1)


def ticket(**facts: Any) -> Ticket:
    """The next ticket to arrive."""
    facts.setdefault("output", 10)
    made = make_ticket(**facts)
    made.order = next(_orders)
    return made


def any_ticket(rng: Random, now: float, urgency: int = 2) -> Ticket:
    """Any request of a class: its flow, weight, size, number and deadline are drawn. Every second
    one has the prompt, model and session of a real body."""
    key = rng.randrange(6)
    made = ticket(
        number=urgency + rng.choice((0.0, 0.0, rng.uniform(-0.49, 0.49))),
        key=f"key-{key}",
        user=f"user-{rng.randrange(3)}",
        weight=float(1 + key % 2),
        tokens=rng.choice((0, 1, rng.randrange(10_000))),
        output=rng.choice((0, rng.randrange(2000))),
        arrival=now,
        deadline=rng.choice((float("inf"), now + rng.uniform(0.0, 30.0))),
    )
    if rng.random() < 0.5:
        real, view = rng.choice(REAL), made.view
        view.kind, view.model, view.session = real.kind, real.model, real.session
        view.blocks, view.block_tokens = real.blocks, real.block_tokens
    return made


def pushed(line: TicketQueue, tickets: Sequence[Ticket], now: float = 0.0) -> TicketQueue:
    for each in tickets:
        line.push(each, now)
    return line


def served(
    policy: OrderPolicy, line: TicketQueue, now: float = 0.0, most: int = 10**9, step_s: float = 0.0
) -> list[Ticket]:
    """Take the first ticket repeatedly; every prediction turns out to be exact."""
    found: list[Ticket] = []
    while len(found) < most and (first := line.first(now)) is not None:
        line.take(first, now)
        policy.settled(first, first.view.prompt_tokens, first.view.output_tokens)
        found.append(first)
        now += step_s
    return found
