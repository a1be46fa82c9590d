"""Defines how answers of an engine are read: detection marks, metrics, health and facts.

The module contains data, and pure functions over bytes. Neither this file nor the engines' files do
I/O. The poller and the prober send the requests, and pass the answers to these functions.

Reading never raises. A missing or impossible value is `None` in the `Signals`. If a metric has an
impossible value, the metric's name is added to `odd`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from router.core.numbers import whole_number
from router.fleet.engines.common.exposition import Samples, Wanted, read
from router.fleet.signals import NO_SIGNALS, Signals

# The metric with the start time of the engine's process.
START_TIME: Final = "process_start_time_seconds"

# Maximum data-parallel ranks behind one address. A larger number is invalid, because each rank is a
# replica, with memory of its own.
MOST_RANKS: Final = 256

Odd = set[str]  # Names of metrics with impossible values.


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about an engine that change only with a restart.

    A field is `None` if the engine does not report it.
    """

    slots: int | None = None
    kv_tokens: int | None = None
    block_tokens: int | None = None
    context_tokens: int | None = None  # Maximum tokens of prompt and answer together.
    version: str | None = None
    by_priority: bool | None = None  # Whether the engine schedules requests by priority.
    low_first: bool | None = None  # Whether the engine serves lower priority numbers first.
    metrics_on: bool | None = None  # Whether the engine has Prometheus metrics.


NO_FACTS = Facts()


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """What was known about a replica before the answer that is being read."""

    facts: Facts = NO_FACTS
    last: Signals = NO_SIGNALS  # The previous signals of the same source.
    empty: int = 0  # Number of previous answers of the source in a row that had nothing new.


NOTHING_KNOWN = Known()


class Source:
    """One path with metrics, and how its answer is read.

    `timeout_s`: the minimum timeout, in seconds, of a request to the path.
    """

    __slots__ = ("path", "timeout_s")

    def __init__(self, path: str, timeout_s: float) -> None:
        self.path = path
        self.timeout_s = timeout_s

    def parse(
        self, body: bytes, known: Known = NOTHING_KNOWN, odd: Odd | None = None
    ) -> Signals | None:
        """Return the signals of a whole answer; `None`: the body is no answer of this source."""
        raise NotImplementedError


class Ranks:
    """How a metrics page shows the data-parallel ranks of an engine.

    `label`: the label with the rank's number. `numbers`: returns the numbers of the ranks to which
    the router can send requests; they need not begin at 0, if the ranks of one engine are behind
    several addresses. Less than two if there is only one rank, or if the engine's version cannot be
    told which rank to use. `shared`: the metrics of the whole engine, which count for each rank.
    """

    __slots__ = ("label", "numbers", "shared")

    def __init__(
        self, label: str, numbers: Callable[[Samples], range], shared: frozenset[str]
    ) -> None:
        self.label = label
        self.numbers = numbers
        self.shared = shared | {START_TIME}


class TextSource(Source):
    """A page in the Prometheus text format. `ranks`: `None`: the engine has no ranks."""

    __slots__ = ("ranks", "read", "wanted")

    def __init__(
        self,
        path: str,
        names: tuple[str, ...],
        read: Callable[[Samples, Known], Signals],
        timeout_s: float = 0.0,
        ranks: Ranks | None = None,
    ) -> None:
        super().__init__(path, timeout_s)
        self.wanted = Wanted(*names, START_TIME)
        self.read = read
        self.ranks = ranks

    def parse(
        self, body: bytes, known: Known = NOTHING_KNOWN, odd: Odd | None = None
    ) -> Signals | None:
        return self.parse_samples(read(body, self.wanted), known, odd)

    def parse_samples(self, samples: Samples, known: Known, odd: Odd | None) -> Signals:
        signals = self.read(samples, known)
        if odd is not None:
            odd |= samples.odd
        return signals

    def by_rank(self, samples: Samples, known: Known) -> dict[int, Signals]:
        """Return the signals of each data-parallel rank, by its number; empty if there is only one
        rank, or more than MOST_RANKS."""
        ranks = self.ranks
        numbers = range(0) if ranks is None else ranks.numbers(samples)
        if ranks is None or not 2 <= len(numbers) <= MOST_RANKS:
            return {}
        each = samples.by_rank(ranks.label, numbers, ranks.shared)
        return {rank: self.read(own, known) for rank, own in each.items()}


class JsonSource(Source):
    """A JSON document. `split`: returns a document for each data-parallel rank, by its number."""

    __slots__ = ("read", "split")

    def __init__(
        self,
        path: str,
        read: Callable[[Any, Known, Odd], Signals | None],
        timeout_s: float = 0.0,
        split: Callable[[Any], dict[int, Any]] | None = None,
    ) -> None:
        super().__init__(path, timeout_s)
        self.read = read
        self.split = split

    def by_rank(self, body: bytes, known: Known) -> dict[int, Signals]:
        """Return the signals of each data-parallel rank, by its number; empty if there is only one
        rank, or more than MOST_RANKS."""
        documents = {} if self.split is None else self.split(decoded(body))
        if len(documents) > MOST_RANKS:
            return {}
        read = {rank: self.read(each, known, set()) for rank, each in documents.items()}
        found = {rank: signals for rank, signals in read.items() if signals is not None}
        return found if len(found) > 1 and len(found) == len(documents) else {}

    def parse(
        self, body: bytes, known: Known = NOTHING_KNOWN, odd: Odd | None = None
    ) -> Signals | None:
        document = decoded(body)
        if document is INVALID:
            return None
        return self.read(document, known, set() if odd is None else odd)


@dataclasses.dataclass(frozen=True, slots=True)
class FactsSource:
    """A path at which an engine reports its facts."""

    path: str
    read: Callable[[Any], Facts]

    def parse(self, body: bytes) -> Facts:
        return self.read(decoded(body))


@dataclasses.dataclass(frozen=True, slots=True)
class Check:
    """A path that shows the engine's health, if the engine has such a path."""

    path: str
    timeout_s: float = 0.0  # The minimum timeout, in seconds, of a request to this path.
    # The HTTP statuses that show the engine's health; empty: all statuses but ABSENT.
    only: frozenset[int] = frozenset()

    def decides(self, status: int) -> bool:
        """Return whether this HTTP status shows the engine's health.

        Status 0 means that there was no answer.
        """
        if status in ABSENT:
            return False
        return not self.only or not status or status in self.only


# HTTP statuses of a server for a path that it does not have.
ABSENT: Final = frozenset({404, 405, 501})


@dataclasses.dataclass(frozen=True, slots=True)
class Marks:
    """How an engine is detected from its answers."""

    owned_by: str | None = None  # The value of `owned_by` in the engine's /v1/models.
    order: int = 100  # The order of the detection requests; common engines have low numbers.
    metrics: tuple[bytes, ...] = ()  # The prefixes of the engine's metric names.
    answers: Mapping[str, Callable[[Any], bool]] = dataclasses.field(default_factory=dict)


INVALID: Final = object()


def decoded(body: bytes) -> Any:
    """Return the decoded JSON document, or INVALID if the bytes are not valid JSON."""
    try:
        return msgspec.json.decode(body)
    except (ValueError, RecursionError):
        return INVALID


def count(value: Any, name: str, odd: Odd) -> int | None:
    """Return `value` if it is a valid count: an integer from 0 on.

    Otherwise return None, and add the metric's name to `odd`, unless the value is missing.
    """
    if value is None:
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53:
        return value
    odd.add(name)
    return None


def share(value: Any, name: str, odd: Odd) -> float | None:
    """Return `value` if it is a number between 0 and 1.

    Otherwise return None, and add the metric's name to `odd`, unless the value is missing.
    """
    if value is None:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1.001:
        return min(float(value), 1.0)
    odd.add(name)
    return None


def whole(text: str | None) -> int | None:
    """Return a label's text as an integer from 0 on; None if it is no such number.

    Engines write the text `None` for an unknown number.
    """
    return None if text is None else whole_number(text, 12)


def text(value: Any) -> str | None:
    return value if isinstance(value, str) and len(value) <= 200 else None


def mapping(value: Any) -> dict[str, Any]:
    """Return `value` if it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def times(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a * b


def plus(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b
