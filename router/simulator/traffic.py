"""What comes: requests in the order of their arrival, from a trace or a generator.

A source is read once, lazily, and holds a bounded number of requests at a time, so that ten million
of them need no more memory than ten. Must never: know a fleet or a policy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol, runtime_checkable


class Arrival:
    """One request as a trace tells of it.

    Two requests share KV for the common leading run of their `blocks`, each of which stands for the
    whole prompt up to its end (chained), and holds `Traffic.block_tokens` tokens. Only full blocks
    are in it; empty: the source does not know.
    """

    __slots__ = (
        "answer_blocks",
        "at",
        "blocks",
        "is_known",
        "kind",
        "model",
        "number",
        "output_tokens",
        "priority",
        "prompt_tokens",
        "session",
        "stream",
        "tenant",
        "user",
        "within",
    )

    def __init__(
        self,
        number: int,
        at: float,
        prompt_tokens: int,
        output_tokens: int,
        blocks: tuple[int, ...] = (),
        *,
        tenant: str = "",
        within: str = "",
        user: int = 0,
        is_known: bool = False,
        priority: str = "",
        session: str | None = None,
        model: str | None = None,
        stream: bool = True,
        kind: str = "chat",
        answer_blocks: tuple[int, ...] = (),
    ) -> None:
        self.number = number  # unique in its traffic; its order in the source
        self.at = at  # seconds since the beginning of the traffic, >= 0
        self.prompt_tokens = prompt_tokens  # >= 1
        self.output_tokens = output_tokens  # >= 0; 0: nothing is generated
        self.blocks = blocks
        self.tenant = tenant  # who pays, "" where nobody is told apart
        self.within = within  # the address whose share it uses, as in `intake.flow`
        self.is_known = is_known  # its tenant has a known key
        self.user = user  # a number among its tenant's; 0: none is named
        self.priority = priority  # its class by name, "" for none
        self.session = session  # the conversation it belongs to
        self.model = model
        self.stream = stream
        self.kind = kind  # the route, as in `policies.contract.RequestView`
        # Full blocks that end within the answer, where the source knows that somebody will come
        # for them (the next turn). Engines cache them; routers cannot know of them.
        self.answer_blocks = answer_blocks


class Traffic(Protocol):
    """A source of arrivals."""

    name: str
    block_tokens: int  # tokens of one of its blocks

    def __iter__(self) -> Iterator[Arrival]:
        """Arrivals by time, never going back. May raise `TraceError`."""

    def follow(self, ended: Arrival, now: float) -> Iterable[Arrival]:
        """What comes because `ended` has been answered at `now`: the next turn of a conversation.

        Their `at` is at or after `now`. Nothing, for traffic whose times are all given.
        """


@runtime_checkable
class Measured(Protocol):
    """A source that knows how far it has been read: for people who wait."""

    def share(self) -> float:
        """What was read of the whole, 0 to 1."""


class TraceError(ValueError):
    """A trace that cannot be read as what it says it is."""

    def __init__(self, path: str, line: int, problem: str) -> None:
        super().__init__(f"{path}:{line}: {problem}")
        self.path = path
        self.line = line  # 1 is the first
        self.problem = problem
