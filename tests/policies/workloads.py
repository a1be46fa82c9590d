"""Workloads of the test fleet: Poisson arrivals of prompts with more or less sharing."""

from dataclasses import dataclass
from itertools import count
from random import Random

BLOCK_TOKENS = 128
TAIL_TOKENS = 50  # tokens at the end of every prompt; too few for a block

_fresh = count(1)


@dataclass(slots=True)
class Request:
    """One prompt, as its block hashes."""

    at: float
    blocks: tuple[int, ...]
    session: str | None = None

    @property
    def tokens(self) -> int:
        return len(self.blocks) * BLOCK_TOKENS + TAIL_TOKENS


def blocks(number: int) -> tuple[int, ...]:
    """Return this number of unique blocks."""
    return tuple(next(_fresh) for _ in range(number))


def shared_prefix(
    rate: float, number: int, prefix: int, tail: int, *, groups: int = 1, seed: int = 0
) -> list[Request]:
    """Prompts of `prefix` blocks, one of `groups` kinds, and `tail` blocks of their own."""
    rng = Random(seed)
    prefixes = [blocks(prefix) for _ in range(groups)]
    at = 0.0
    requests = []
    for _ in range(number):
        at += rng.expovariate(rate)
        requests.append(Request(at, rng.choice(prefixes) + blocks(tail)))
    return requests


def unique(rate: float, number: int, size: int, *, seed: int = 0) -> list[Request]:
    return shared_prefix(rate, number, 0, size, seed=seed)


def chats(rate: float, number: int, turns: int, *, seed: int = 0) -> list[Request]:
    """Conversations after one system prompt of 2 blocks; each turn adds 1 to 4 blocks."""
    rng = Random(seed)
    system = blocks(2)
    begins = 0.0
    requests = []
    for conversation in range(number):
        begins += rng.expovariate(rate)
        at, said = begins, system
        for _ in range(turns):
            said += blocks(rng.randint(1, 4))
            requests.append(Request(at, said, f"conversation {conversation}"))
            at += rng.uniform(5.0, 20.0)
    return sorted(requests, key=lambda request: request.at)
