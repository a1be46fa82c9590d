"""The descriptor of an engine: everything that the router must know about one kind of engine.

Each file of `router/fleet/engines` makes one `Engine`. All other code reads its attributes, and
never compares or lists names of engines. The default attributes describe an engine about which
nothing is known.

The class is compiled and its attributes are plain values, because requests read them.

Must never: do I/O, or be changed after it was made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from router.fleet.engines.common.base import Check, FactsSource, Marks, Source
from router.fleet.engines.common.priority import SILENT, Dialect
from router.fleet.engines.common.publishers import Publisher

MODEL: Final = "model"  # an engine goes by the body's `model`
_NO_MARKS: Final = Marks()
COUNTS: Final = b'_tokens"'  # stands in every event that tells counts in OpenAI's words


class Abort:
    """How an engine is told to stop a request where closing its connection is not enough.

    `intake/fields.py` must read the member `key`, because a client's own name never passes.
    """

    def __init__(self, path: str, key: str, paths: frozenset[bytes]) -> None:
        self.path = path  # POST, with the name as `key` in a JSON object
        self.key = key.encode()  # the member of a request's body that names it
        self.paths = paths  # of requests that can be named
        self.nameless = b'"%b":null' % self.key  # a member in which the request has no name

    def member(self, name: bytes) -> bytes:
        """The member that gives a request its name, which is ASCII without quotes."""
        return b'"%b":"%b"' % (self.key, name)


class UsageAsk:
    """What an engine makes of `stream_options`: how it is asked for the counts of a stream.

    Only for an engine whose answer to it is an event of its own, which can be taken out again.
    """

    def __init__(
        self, options: bytes, *, asks_by_default: bool, continuous_needs_usage: bool
    ) -> None:
        self.options = options  # that ask for one event of usage and change nothing else
        self.member = b'"stream_options":' + options
        self.asks_by_default = asks_by_default  # an object without `include_usage` asks for it
        # `continuous_usage_stats` counts only together with `include_usage`.
        self.continuous_needs_usage = continuous_needs_usage


class Adapters:
    """By which member of a body an engine chooses the adapter that it serves, on each path.

    The values are the members that `intake/authority.py` knows. "": the engine serves its own
    model, whatever the body says.
    """

    def __init__(
        self,
        by_path: Mapping[bytes, str],
        *,
        unknown: str = MODEL,
        by_plain_name: str = MODEL,
    ) -> None:
        self.by_path = {**by_path}
        self.unknown = unknown  # on a path that the router does not know
        # On any other path where `model` is the plain name of an adapter.
        self.by_plain_name = by_plain_name


class NativePath:
    """A path of an engine's own API that is inference, for `intake/routes.py`."""

    def __init__(
        self, kind: str, path: str, *, streams_events: bool = False, light: bool = False
    ) -> None:
        self.kind = kind  # of the route
        self.path = path.encode()
        self.streams_events = streams_events  # a stream that is asked for comes as events
        self.light = light  # it uses no GPU


def native(kind: str, *paths: str, events: bool = False, light: bool = False) -> list[NativePath]:
    """Several paths of one kind."""
    return [NativePath(kind, path, streams_events=events, light=light) for path in paths]


class Engine:
    """An engine. `common/registry.py` finds it as the value ENGINE of its file."""

    def __init__(
        self,
        name: str,
        *,
        order: int = 100,
        # How it is recognised, and what is asked of it.
        marks: Marks = _NO_MARKS,
        sources: tuple[Source, ...] = (),
        health: tuple[Check, ...] = (Check("/health"),),
        facts: FactsSource | None = None,
        keeps_alive: bool = True,
        counts_live: bool = False,
        # What its paths and headers mean.
        native: list[NativePath] | None = None,
        control: frozenset[str] = frozenset(),
        control_below: tuple[str, ...] = (),
        private_headers: frozenset[str] = frozenset(),
        # Models.
        refuses_models: bool = False,
        names_adapters: bool = False,
        adapters: Adapters | None = None,
        # Priorities.
        dialect: Dialect = SILENT,
        low_first: Dialect | None = None,
        tells_scheduling: bool = False,
        # Requests under way.
        abort: Abort | None = None,
        usage_ask: UsageAsk | None = None,
        counts_mark: bytes = COUNTS,
        counts_natively: frozenset[str] = frozenset(),
        continues: bool = False,
        # The exact way.
        tokenize: str = "",
        publisher: Publisher | None = None,
        is_recognised: bool = True,
        # For the emulator.
        reserves_output: bool = False,
        displaces_by: int | None = None,
        gauges_lag: bool = False,
    ) -> None:
        self.name = name
        self.order = order  # of the questions which engine it is, the usual ones first
        self.marks = marks
        self.sources = sources  # the better one first; the next where it is absent or silent
        self.health = health
        self.facts = facts
        self.keeps_alive = keeps_alive  # connections may be used for more than one question
        # Its total of generated tokens grows while requests are under way.
        self.counts_live = counts_live
        self.native = native or []  # paths of its own API that are inference
        # Paths that stop, change or show it: closed to clients. In lower case.
        self.control = frozenset([path.encode() for path in control])
        self.control_below = tuple([path.encode() for path in control_below])
        # Request headers that it obeys and that clients must not send. In lower case.
        self.private_headers = frozenset([header.encode() for header in private_headers])
        self.refuses_models = refuses_models  # 404 for the name of a model that it does not list
        self.names_adapters = names_adapters  # `model:adapter` names one of a model's adapters
        # None: an engine that goes by `model` wherever no other engine has a path of its own.
        self.adapters = adapters
        self.dialect = dialect
        self.low_first = low_first  # its dialect where its facts say so
        self.tells_scheduling = tells_scheduling  # its facts say whether it goes by priorities
        self.abort = abort  # None: closing a request's connection stops it
        self.usage_ask = usage_ask  # None: it is not asked
        self.counts_mark = counts_mark  # stands in every event that tells counts, in few others
        # Paths whose answers tell counts in words of their own.
        self.counts_natively = frozenset([path.encode() for path in counts_natively])
        self.continues = continues  # it can go on where a text ends (`continue_final_message`)
        self.tokenize = tokenize  # the path that tells token ids, of messages too; "": none
        self.publisher = publisher  # of KV events
        self.is_recognised = is_recognised  # False: it may be any engine
        self.reserves_output = reserves_output  # lets a request in when all its KV is sure
        # A new request takes the place of a running one whose number is worse by more than this.
        self.displaces_by = displaces_by
        self.gauges_lag = gauges_lag  # they show what was sent up to a second ago

    def __repr__(self) -> str:
        return f"Engine({self.name})"
