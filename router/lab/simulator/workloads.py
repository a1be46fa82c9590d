"""Generators of synthetic traffic, from a seed and a rate. They yield requests lazily.

- `Shared`: the business customers of llm-d's blog of 24 Sep 2025. Each group of users has one long
  prefix, and each request has a new question.
- `Chat`: conversations of several turns with think times and a growing history.
- `Unique`: no two prompts have a common prefix, so a policy cannot gain from prefix caches.
- `Stragglers`: like `Unique`, but a fraction of the prompts is very long.
- `PowerUser`: a burst of requests of one tenant. `Mix` merges it with other traffic.

Arrivals (in `Chat`, the arrivals of conversations) are a Poisson process unless `cv` is set. Only
the arrival times of later turns depend on the fleet. The same arguments give the same traffic.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from heapq import merge
from math import exp, log
from random import Random
from typing import NamedTuple

from router.lab.simulator.traffic import Arrival, HasProgress, Traffic


@dataclass(frozen=True, slots=True)
class Lengths:
    """A lognormal distribution of token counts. With `sigma` 0 every count is the median."""

    median: float
    sigma: float = 0.0
    most: int = 1_000_000

    def draw(self, rng: Random) -> int:
        if not self.sigma:
            return max(1, min(self.most, round(self.median)))
        return max(1, min(self.most, round(exp(rng.gauss(log(self.median), self.sigma)))))


def new_blocks(rng: Random, count: int) -> tuple[int, ...]:
    """Random 64-bit hashes of `count` new blocks. The prefix index needs 64 random bits."""
    return struct.unpack(f"<{count}Q", rng.randbytes(8 * count))


@dataclass(slots=True, kw_only=True)
class Synthetic:
    """The base class of the generators. Each iteration gives the same traffic again."""

    rate: float  # requests per second
    # Seconds during which requests arrive. Only later turns of conversations arrive afterwards.
    duration_s: float
    block_tokens: int = 128
    seed: int = 1
    name: str = ""
    # Coefficient of variation of the times between arrivals; 1: a Poisson process. Above 1,
    # requests arrive in bursts.
    cv: float = 1.0
    begins_s: float = 0.0  # seconds before the arrivals begin
    _at: float = field(default=0.0, init=False, repr=False)

    def __post_init__(self) -> None:
        if not (self.rate > 0.0 and self.duration_s > 0.0 and self.block_tokens > 0):
            raise ValueError("rate, duration_s and block_tokens must be above 0")
        if not self.cv > 0.0:
            raise ValueError("cv must be above 0")
        self.name = self.name or type(self).__name__.lower()

    def follow(self, ended: Arrival, now: float) -> Iterable[Arrival]:
        return ()

    def share(self) -> float:
        return min(self._at / self.duration_s, 1.0)

    def _rng(self) -> Random:
        return Random(f"{type(self).__name__} {self.seed}")

    def _times(self, rng: Random, rate: float) -> Iterator[float]:
        """The times of a renewal process that begins at `begins_s` and lasts `duration_s`.

        The times between arrivals are exponential, or gamma-distributed with `cv`.
        """
        shape = 1.0 / self.cv**2

        def gap() -> float:
            if shape == 1.0:
                return rng.expovariate(rate)
            return rng.gammavariate(shape, 1.0 / (shape * rate))

        at = gap()
        while at < self.duration_s:
            self._at = at
            yield self.begins_s + at
            at += gap()


@dataclass(slots=True, kw_only=True)
class Shared(Synthetic):
    """Each request comes from a random user. Its prompt is the prefix of the user's group and a new
    question.
    """

    groups: int = 150
    users: int = 5  # number of users in each group
    prefix_tokens: int = 6000
    question_tokens: int = 1200
    output_tokens: int = 1000

    def __iter__(self) -> Iterator[Arrival]:
        rng = self._rng()
        size = self.block_tokens
        prefixes = [new_blocks(rng, self.prefix_tokens // size) for _ in range(self.groups)]
        tokens = self.prefix_tokens + self.question_tokens
        own = tokens // size - self.prefix_tokens // size
        for number, at in enumerate(self._times(rng, self.rate)):
            group = int(rng.random() * self.groups)
            user = int(rng.random() * self.users)
            yield Arrival(
                number,
                at,
                tokens,
                self.output_tokens,
                prefixes[group] + new_blocks(rng, own),
                tenant=f"customer {group}",
                user=user + 1,
                session=f"{group}.{user}",
            )


@dataclass(slots=True, kw_only=True)
class Unique(Synthetic):
    """Requests without a common prefix."""

    prompt: Lengths = Lengths(3000.0, 0.5, 9000)
    output: Lengths = Lengths(200.0, 0.6, 1000)
    tenant: str = ""
    priority: str = ""  # the priority class of all requests; "": no class

    def __iter__(self) -> Iterator[Arrival]:
        rng = self._rng()
        for number, at in enumerate(self._times(rng, self.rate)):
            prompt = self._prompt(rng)
            blocks = new_blocks(rng, prompt // self.block_tokens)
            output = self.output.draw(rng)
            yield Arrival(
                number, at, prompt, output, blocks, tenant=self.tenant, priority=self.priority
            )

    def _prompt(self, rng: Random) -> int:
        return self.prompt.draw(rng)


@dataclass(slots=True, kw_only=True)
class Stragglers(Unique):
    """Traffic in which a fraction of the prompts is `factor` times as long as the others.

    The first tokens of the long prompts are late at any replica. So a second copy helps only the
    short requests that wait behind a long prompt.
    """

    prompt: Lengths = Lengths(1000.0, 0.3, 4000)
    straggling: float = 0.05
    factor: int = 10

    def _prompt(self, rng: Random) -> int:
        prompt = self.prompt.draw(rng)
        return prompt * self.factor if rng.random() < self.straggling else prompt


@dataclass(slots=True, kw_only=True)
class PowerUser(Synthetic):
    """A burst of requests of one tenant, whose prompts begin with the same document.

    The burst begins at `begins_s` and lasts `duration_s`. `rate` is the rate within the burst.
    """

    document_tokens: int = 4000
    question: Lengths = Lengths(200.0, 0.5, 2000)
    output: Lengths = Lengths(300.0, 0.6, 2000)
    tenant: str = "power user"

    def __iter__(self) -> Iterator[Arrival]:
        rng = self._rng()
        size = self.block_tokens
        document = new_blocks(rng, self.document_tokens // size)
        for number, at in enumerate(self._times(rng, self.rate)):
            prompt = self.document_tokens + self.question.draw(rng)
            blocks = document + new_blocks(rng, prompt // size - len(document))
            output = self.output.draw(rng)
            yield Arrival(number, at, prompt, output, blocks, tenant=self.tenant)


# -- conversations --------------------------------------------------------------------------------


class _Conversation(NamedTuple):
    number: int
    # Prompt tokens, output tokens and think time in seconds of each turn.
    turns: tuple[tuple[int, int, float], ...]
    blocks: tuple[int, ...]  # the blocks of the whole conversation


class _Turn(Arrival):
    """One turn of a conversation, with a reference to the conversation."""

    __slots__ = ("conversation", "source", "turn")

    def __init__(
        self, source: Chat, conversation: _Conversation, turn: int, at: float, size: int
    ) -> None:
        prompt, output, _ = conversation.turns[turn]
        full, end = prompt // size, (prompt + output) // size
        super().__init__(
            conversation.number * source.most_turns + turn,
            at,
            prompt,
            output,
            conversation.blocks[:full],
            session=f"chat {conversation.number}",
            answer_blocks=conversation.blocks[full:end],
        )
        self.source = source
        self.conversation = conversation
        self.turn = turn


@dataclass(slots=True, kw_only=True)
class Chat(Synthetic):
    """Conversations with the statistics of ShareGPT: the number of turns has a geometric
    distribution, and lengths have a lognormal distribution.

    Each turn arrives a think time after the previous answer. Its prompt contains the whole history.
    `rate` is the number of turns per second.
    """

    system_tokens: int = 200  # the system prompt that all conversations share
    more: float = 0.75  # the probability of another turn
    most_turns: int = 10
    most_tokens: int = 10_000  # maximum number of tokens of a conversation, answers included
    message: Lengths = Lengths(450.0, 0.8, 4000)
    output: Lengths = Lengths(180.0, 0.7, 1000)
    think_s: float = 10.0  # mean think time in seconds; exponential distribution

    @property
    def mean_turns(self) -> float:
        """The expected number of turns, without the limit `most_tokens`."""
        return sum(self.more**turn for turn in range(self.most_turns))

    def __iter__(self) -> Iterator[Arrival]:
        rng = self._rng()
        system = new_blocks(rng, self.system_tokens // self.block_tokens)
        for number, at in enumerate(self._times(rng, self.rate / self.mean_turns)):
            conversation = self._conversation(rng, number, system)
            yield _Turn(self, conversation, 0, at, self.block_tokens)

    def follow(self, ended: Arrival, now: float) -> Iterable[Arrival]:
        if not isinstance(ended, _Turn) or ended.source is not self:
            return ()
        conversation, turn = ended.conversation, ended.turn + 1
        if turn == len(conversation.turns):
            return ()
        think_s = conversation.turns[turn][2]
        return (_Turn(self, conversation, turn, now + think_s, self.block_tokens),)

    def _conversation(self, rng: Random, number: int, system: tuple[int, ...]) -> _Conversation:
        turns: list[tuple[int, int, float]] = []
        history = self.system_tokens
        while len(turns) < self.most_turns and (not turns or rng.random() < self.more):
            prompt, output = history + self.message.draw(rng), self.output.draw(rng)
            think_s = rng.expovariate(1.0 / self.think_s)
            if turns and prompt + output > self.most_tokens:
                break
            turns.append((prompt, output, think_s))
            history = prompt + output
        own = new_blocks(rng, history // self.block_tokens - len(system))
        return _Conversation(number, tuple(turns), system + own)


# -- mixed traffic --------------------------------------------------------------------------------


class Mix:
    """Several sources merged in order of arrival.

    Request numbers stay unique: request `number` of source `i` of `n` gets `n * number + i`.
    """

    def __init__(self, *sources: Traffic, name: str = "") -> None:
        sizes = {source.block_tokens for source in sources}
        if len(sizes) != 1:
            raise ValueError("the sources of a mix must have the same block_tokens")
        self.block_tokens = sizes.pop()
        self.name = name or " + ".join(source.name for source in sources)
        self._sources = sources

    def __iter__(self) -> Iterator[Arrival]:
        streams = [self._numbered(index, source) for index, source in enumerate(self._sources)]
        return merge(*streams, key=_time)

    def follow(self, ended: Arrival, now: float) -> Iterable[Arrival]:
        index = ended.number % len(self._sources)
        return self._numbered(index, self._sources[index].follow(ended, now))

    def share(self) -> float:
        """The smallest fraction that was read of a source."""
        shares = (one.share() for one in self._sources if isinstance(one, HasProgress))
        return min(shares, default=0.0)

    def _numbered(self, index: int, arrivals: Iterable[Arrival]) -> Iterator[Arrival]:
        for arrival in arrivals:
            arrival.number = arrival.number * len(self._sources) + index
            yield arrival


def _time(arrival: Arrival) -> float:
    return arrival.at
