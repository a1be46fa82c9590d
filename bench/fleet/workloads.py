"""The three workloads, each made from a seed and a request rate.

- `chat`: conversations of several turns, modelled on ShareGPT. The number of turns is geometric,
  message lengths are lognormal, and users think between turns. Each request contains the history,
  and all conversations have the same system prompt. ShareGPT has short messages and long answers;
  here messages are long and answers short. The prefill work is the same, and the load generator
  reads fewer tokens.
- `shared`: llm-d's published benchmark (blog of 24 Sep 2025) at half of its lengths: 150 customers,
  each with a long prefix and 5 users who ask one question each. First, one request with each
  customer's prefix fills the caches; the 750 requests after them are measured.
- `unique`: all prompts differ; their lengths are lognormal. Prefix affinity can only do harm here.

Requests arrive in a Poisson process. In `chat`, conversations do; their later turns follow after
the previous answer and the think time. Pure: the same arguments give the same script.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import exp, log
from random import Random

from bench.fleet.script import Conversation, Script, Turn, text

GROUPS, USERS = 150, 5
PREFIX_TOKENS, QUESTION_TOKENS = 3000, 600  # half of llm-d's 6,000 and 1,200
KV_SHARE = 0.73  # size of all shared prefixes together, as a share of the fleet's KV cache (llm-d)


@dataclass(frozen=True, slots=True)
class Size:
    """Lengths of a run in seconds, and the customers and users of the workload `shared`."""

    groups: int = GROUPS
    users: int = USERS
    chat_warm_s: float = 9.0
    chat_s: float = 16.0
    unique_warm_s: float = 3.0
    unique_s: float = 16.0

    @classmethod
    def quick(cls) -> Size:
        return cls(groups=24, users=2, chat_warm_s=1.5, chat_s=1.5, unique_warm_s=0.5, unique_s=1.5)


def arrivals(rng: Random, rate: float) -> Iterator[float]:
    """Yield arrival times in seconds, without end: a Poisson process with `rate` arrivals/s."""
    at = 0.0
    while True:
        at += rng.expovariate(rate)
        yield at


def lognormal(rng: Random, median: float, sigma: float, most: int) -> int:
    return max(1, min(most, round(exp(rng.gauss(log(median), sigma)))))


# -- chat -----------------------------------------------------------------------------------------

CHAT_SYSTEM_TOKENS = 200
CHAT_MORE = 0.75  # probability of another turn: a conversation has four turns on average
CHAT_MOST_TURNS = 10
CHAT_MESSAGE = (450.0, 0.8, 4000)  # tokens, lognormal: median, sigma, maximum
CHAT_OUTPUT = (32.0, 0.6, 128)
CHAT_THINK_S = 0.6  # mean of the exponential think time, in seconds
# Maximum tokens of user messages in a conversation; it ends before exceeding them.
CHAT_MOST_TOKENS = 10_000


def _chat_turns(rng: Random, name: str) -> tuple[Turn, ...]:
    turns: list[Turn] = []
    said = 0
    while len(turns) < CHAT_MOST_TURNS and (not turns or rng.random() < CHAT_MORE):
        length = lognormal(rng, *CHAT_MESSAGE)
        said += length
        if said > CHAT_MOST_TOKENS:
            break
        words = text(rng, length, f"{name} turn {len(turns)}")
        think = rng.expovariate(1 / CHAT_THINK_S) if turns else 0.0
        turns.append(Turn(words, lognormal(rng, *CHAT_OUTPUT), think))
    return tuple(turns)


def mean_turns() -> float:
    """Mean number of turns of a conversation, ignoring `CHAT_MOST_TOKENS`."""
    return sum(CHAT_MORE**n for n in range(CHAT_MOST_TURNS))


def chat(rate: float, seed: int, size: Size) -> Script:
    rng = Random(f"chat {seed}")
    system = text(rng, CHAT_SYSTEM_TOKENS, "You are a helpful assistant")
    until = size.chat_warm_s + size.chat_s
    conversations = []
    for at in arrivals(rng, rate / mean_turns()):
        if at >= until:
            break
        name = f"{rng.getrandbits(32):08x}"
        conversations.append(Conversation(at, system, _chat_turns(rng, name)))
    return Script(tuple(conversations), size.chat_warm_s, until)


# -- shared prefixes ------------------------------------------------------------------------------

SHARED_OUTPUT = 32


def shared(rate: float, seed: int, size: Size) -> Script:
    rng = Random(f"shared {seed}")
    prefixes = [
        text(rng, PREFIX_TOKENS, f"{rng.getrandbits(32):08x} customer {group}")
        for group in range(size.groups)
    ]
    first = list(range(size.groups))
    rng.shuffle(first)
    later = [group for group in range(size.groups) for _ in range(size.users)]
    rng.shuffle(later)
    conversations = []
    measure_from = 0.0
    at = 0.0
    for number, (group, at) in enumerate(zip(first + later, arrivals(rng, rate), strict=False)):
        if number == len(first):
            measure_from = at
        question = text(rng, QUESTION_TOKENS, f"{rng.getrandbits(32):08x} question")
        conversations.append(Conversation(at, prefixes[group], (Turn(question, SHARED_OUTPUT),)))
    return Script(tuple(conversations), measure_from, at + 1e-6)


# -- no reuse -------------------------------------------------------------------------------------

UNIQUE_PROMPT = (3000.0, 0.5, 9000)
UNIQUE_OUTPUT = 32


def unique(rate: float, seed: int, size: Size) -> Script:
    rng = Random(f"unique {seed}")
    until = size.unique_warm_s + size.unique_s
    conversations = []
    for at in arrivals(rng, rate):
        if at >= until:
            break
        words = text(rng, lognormal(rng, *UNIQUE_PROMPT), f"{rng.getrandbits(64):016x}")
        conversations.append(Conversation(at, "", (Turn(words, UNIQUE_OUTPUT),)))
    return Script(tuple(conversations), size.unique_warm_s, until)


Maker = Callable[[float, int, Size], Script]
WORKLOADS: dict[str, Maker] = {"chat": chat, "shared": shared, "unique": unique}
