"""The descriptor of an engine: everything that the router must know about one kind of engine.

Each file of `router/fleet/engines` creates one `Engine`. All other code reads its attributes, and
never compares or lists names of engines. The default attributes describe an unknown engine.

The class is compiled, because its attributes are read for every request.

Must never: do I/O, or be changed after it was created.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from router.fleet.engines.common.base import Check, FactsSource, Marks, Source
from router.fleet.engines.common.counters import Counters
from router.fleet.engines.common.priority import SILENT, Dialect
from router.fleet.engines.common.publishers import Publisher

# A value of `Adapters`: the engine serves the model or adapter that the body's `model` names.
MODEL: Final = "model"
_NO_MARKS: Final = Marks()
# Every event with token counts in OpenAI's format contains these bytes.
COUNTS: Final = b'_tokens"'


class Abort:
    """How a request is aborted at an engine if closing its connection is not enough.

    `intake/shapes.py` must read the body's member `key`, because an ID from a client is never
    forwarded.
    """

    def __init__(self, path: str, key: str, paths: frozenset[bytes]) -> None:
        # A POST to this path aborts a request. The request's ID is the member `key` of the body.
        self.path = path
        self.key = key.encode()  # The name of the member with the ID in a request's body.
        self.paths = paths  # The paths whose requests can have an ID.
        self.nameless = b'"%b":null' % self.key  # A member that leaves the request without an ID.

    def member(self, name: bytes) -> bytes:
        """Return the member with a request's ID. `name`: the ID, in ASCII without quotes."""
        return b'"%b":"%b"' % (self.key, name)


class UsageAsk:
    """How the token counts of a stream are requested from an engine (`stream_options`).

    Only an engine that sends the counts in a separate event has a `UsageAsk`. The router removes
    this event again if the client did not request it.
    """

    def __init__(
        self, options: bytes, *, asks_by_default: bool, continuous_needs_usage: bool
    ) -> None:
        self.options = options  # Options that request one usage event and change nothing else.
        self.member = b'"stream_options":' + options
        # True: a `stream_options` object without `include_usage` requests the counts, too.
        self.asks_by_default = asks_by_default
        # True: `continuous_usage_stats` only has an effect together with `include_usage`.
        self.continuous_needs_usage = continuous_needs_usage
        # Whether options without `continuous_usage_stats` put the counts into every event.
        self.is_continuous_by_default = b"continuous_usage_stats" in options


# OpenAI's own definition, for providers whose API is compatible.
OPENAI_USAGE: Final = UsageAsk(
    b'{"include_usage":true}', asks_by_default=False, continuous_needs_usage=True
)


class Adapters:
    """The member of a body by which an engine chooses an adapter, on each path.

    Each value of `by_path` is the name of a member that `intake/authority.py` knows. "": the engine
    serves its own model, whatever the body contains.
    """

    def __init__(
        self,
        by_path: Mapping[bytes, str],
        *,
        unknown: str = MODEL,
        by_plain_name: str = MODEL,
    ) -> None:
        self.by_path = {**by_path}
        # The member that names the adapter on a path that the router does not know.
        self.unknown = unknown
        # The member that names the adapter on any other path, if `model` has the name of an adapter
        # without its model (not in the form `model:adapter`).
        self.by_plain_name = by_plain_name


class NativePath:
    """An inference path of an engine's own API, for `intake/routes.py`."""

    def __init__(
        self, kind: str, path: str, *, streams_events: bool = False, light: bool = False
    ) -> None:
        self.kind = kind  # The kind of the route, such as "chat".
        self.path = path.encode()
        # Whether streams of this path consist of server-sent events.
        self.streams_events = streams_events
        self.light = light  # True: requests to this path use no GPU.


def native(kind: str, *paths: str, events: bool = False, light: bool = False) -> list[NativePath]:
    """Return several paths of one kind. `events`, `light`: see `NativePath`."""
    return [NativePath(kind, path, streams_events=events, light=light) for path in paths]


def paths(*lines: str) -> frozenset[bytes]:
    """Return the paths in these lines, which are separated by spaces."""
    return frozenset([path.encode() for line in lines for path in line.split()])


@dataclass(eq=False)
class Blocked:
    """Paths, headers and members of bodies that an engine obeys and that clients must not send."""

    # Paths that stop the engine, change it or show its state, in lower case. All paths below
    # `control_below` are blocked, too.
    control: frozenset[bytes] = frozenset()
    control_below: tuple[bytes, ...] = ()
    # Request headers in lower case.
    private_headers: frozenset[bytes] = frozenset()
    # Members of a body that choose where the engine reads or writes: another process, foreign cache
    # blocks, a data-parallel rank.
    private_members: frozenset[str] = frozenset()
    # Objects in a body whose members the engine reads like members of the body itself.
    member_nests: frozenset[str] = frozenset()


NOT_BLOCKED: Final = Blocked()


@dataclass(eq=False, repr=False)
class Engine:
    """One kind of engine. `common/registry.py` finds it as the value ENGINE of its file."""

    name: str

    # -- detection and polls
    marks: Marks = _NO_MARKS
    # The sources of metrics, the best one first. If a source is absent or empty, the next one is
    # used.
    sources: tuple[Source, ...] = ()
    health: tuple[Check, ...] = (Check("/health"),)
    facts: FactsSource | None = None
    keeps_alive: bool = True  # Whether polls may reuse connections.
    # Whether the engine's total of generated tokens grows while requests are running.
    counts_live: bool = False

    # -- paths, headers and bodies
    native: Sequence[NativePath] = ()  # The inference paths of the engine's own API.
    blocked: Blocked = NOT_BLOCKED  # What clients must not send.

    # -- models
    # Whether the engine answers 404 for a model that it does not list.
    refuses_models: bool = False
    # Whether the engine accepts `model:adapter` as the name of a model's adapter.
    names_adapters: bool = False
    # `None`: the engine reads `model` on all paths, except paths of other engines' own APIs.
    adapters: Adapters | None = None

    # -- priorities
    dialect: Dialect = SILENT
    low_first: Dialect | None = None  # The dialect if the engine's facts have `low_first`.
    # True: the engine's facts show whether the engine schedules by priority.
    tells_scheduling: bool = False

    # -- running requests
    abort: Abort | None = None  # None: closing a request's connection aborts the request.
    usage_ask: UsageAsk | None = None  # None: the router does not request token counts of streams.
    # Bytes that every event with token counts contains, and few other events.
    counts_mark: bytes = COUNTS
    # Paths whose answers have token counts in the engine's own format.
    counts_natively: frozenset[bytes] = frozenset()
    # Whether the engine can continue a text (`continue_final_message`).
    continues: bool = False

    # -- KV events and token IDs
    # The path that returns the token IDs of a text or of chat messages; "": there is none.
    tokenize: str = ""
    publisher: Publisher | None = None  # How the engine reports its publishers of KV events.
    # False: the engine was not detected, so the replica may run any engine.
    is_recognised: bool = True
    # The names of the engine's totals in Prometheus; `None`: `hedgerow plan` cannot read this
    # engine's counters.
    counters: Counters | None = None

    # -- data-parallel ranks
    # The value of the header `Server` of front ends that count the ranks of their own address from
    # 0 in request headers, whatever numbers the metrics show; "": there are none.
    local_ranks_at: str = ""

    def __repr__(self) -> str:
        return f"Engine({self.name})"
