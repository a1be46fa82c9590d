"""What follows a broken stream, event by event, and how its outcome is counted."""

from typing import Any

import pytest

from router.addons.continuation import resumption
from router.addons.continuation.store import Outcome
from router.config.model import Config, Continuation, Timeouts
from router.core.errors import Reason
from router.dispatch.driver.attempt_state import Attempt
from router.dispatch.resumption import Rest, ResumableStream
from router.dispatch.usage.usage_tap import UsageTap
from router.fleet.engines.common.registry import ENGINES
from router.observe.metrics import Metrics
from tests.dispatch.driven import Driven, World
from tests.dispatch.driver.driver_tables import HEDGED, NO_RETRY, TIMES, case, happen, run
from tests.harness.messages import role, token

BODY = b'{"model": "m", "messages": [], "stream": true}'


class Streams:
    """The addon's streams of one router. Each of them has had one token."""

    def __init__(self, attempts: int = 2) -> None:
        self.metrics = Metrics()
        config = Config(continuation=Continuation(enabled=True, attempts=attempts))
        self.addon = resumption(config, self.metrics)
        self.streams: dict[Driven, ResumableStream] = {}

    def __call__(self, request: Driven, attempt: Attempt, reason: Reason) -> Rest | None:
        stream = self.streams.get(request)
        if stream is None:
            stream = self.addon.opens("chat", ENGINES["vllm"], UsageTap())
            assert stream is not None
            stream.feed(role() + token("a"))
            self.streams[request] = stream
        driver = request.driver
        others, take_budget = driver.others, driver.take_budget
        return stream.rest(driver.state, attempt, reason, BODY, others, take_budget)

    @property
    def outcomes(self) -> dict[str, int]:
        return dict(self.metrics.added["continuation"].take())


BREAKS = [
    case(
        "a stream breaks and another replica goes on",
        """
        a arrives continued  -> send a to r0
        r0 shows a           -> show a from r0
        r0 resets a          -> continue a to r1
        r1 shows a           -> show a from r1
        r1 ends a            -> release a at r1; end a: ok
        """,
    ),
    case(
        "the continuation cannot be connected",
        """
        a arrives continued  -> send a to r0
        r0 shows a           -> show a from r0
        r0 resets a          -> continue a to r1
        r1 refuses a         -> continue a to r2
        r2 refuses a         -> truncate a: replica_reset
        """,
        replicas=4,
    ),
    case(
        "the continuation breaks after content",
        """
        a arrives continued  -> send a to r0
        r0 shows a           -> show a from r0
        r0 garbles a         -> continue a to r1
        r1 shows a           -> show a from r1
        r1 resets a          -> continue a to r2
        r2 shows a           -> show a from r2
        r2 resets a          -> truncate a: replica_reset
        """,
        replicas=4,
    ),
    case(
        "two replicas are lost: there is no third",
        """
        a arrives continued  -> send a to r0
        r0 shows a           -> show a from r0
        r0 resets a          -> continue a to r1
        r1 resets a          -> truncate a: replica_reset
        """,
    ),
    case(
        "a stream that stops is continued",
        """
        a arrives continued  -> send a to r0
        r0 shows a           -> show a from r0
        2s passes            -> drop a at r0; continue a to r1
        r1 ends a            -> show a from r1; release a at r1; end a: ok
        """,
    ),
    case(
        "the continuation shows nothing in time",
        """
        a arrives continued  -> send a to r0
        r0 shows a           -> show a from r0
        r0 resets a          -> continue a to r1
        3.5s passes          -> nothing
        0.5s passes          -> drop a at r1; continue a to r2
        4s passes            -> drop a at r2; truncate a: replica_reset
        """,
    ),
    case(
        "there is no other replica",
        """
        a arrives continued  -> send a to r0
        r0 shows a           -> show a from r0
        r0 resets a          -> truncate a: replica_reset
        """,
        replicas=1,
    ),
    case(
        "there is no budget",
        """
        a arrives continued  -> send a to r0
        r0 shows a           -> show a from r0
        r0 resets a          -> truncate a: replica_reset
        """,
        retry=NO_RETRY,
    ),
    case(
        "the router closes",
        """
        a arrives continued  -> send a to r0
        r0 shows a           -> show a from r0
        the-router closes    -> nothing
        r0 resets a          -> truncate a: replica_reset
        """,
    ),
    case(
        "the request takes too long",
        """
        a arrives continued  -> send a to r0
        r0 shows a           -> show a from r0
        r0 resets a          -> continue a to r1
        3s passes            -> drop a at r1; truncate a: replica_reset
        """,
        timeouts=Timeouts(total_s=3.0),
    ),
    case(
        "the client leaves while another replica is asked",
        """
        a arrives continued  -> send a to r0
        r0 shows a           -> show a from r0
        r0 resets a          -> continue a to r1
        a leaves             -> drop a at r1; end a: client_gone
        """,
    ),
    case(
        "the winner of a race breaks, and neither of the two is asked",
        """
        a arrives continued  -> send a to r0
        1s passes            -> copy a to r1
        r1 shows a           -> drop a at r0; show a from r1
        r1 resets a          -> continue a to r2
        9s passes            -> drop a at r2; truncate a: replica_reset
        """,
        hedging=HEDGED,
    ),
]


@pytest.mark.parametrize(("table", "settings"), BREAKS)
def test_broken_streams(table: str, settings: dict[str, Any]) -> None:
    run(table, {"timeouts": TIMES, "resumes": Streams(), **settings})


@pytest.mark.parametrize(
    ("event", "expected", "settings"),
    [
        ("r1 shows a", {}, {}),  # the attempt that relays the content counts the tokens
        ("r1 garbles a", {Outcome.NO_REPLICA: 1}, {"has_begun": True}),
        ("r1 garbles a", {Outcome.FAILED: 1}, {}),
        ("3s passes", {Outcome.FAILED: 1}, {"timeouts": Timeouts(total_s=3.0)}),
    ],
    ids=["goes on", "nobody is left for the next", "fails", "takes too long"],
)
def test_the_outcome_of_a_broken_stream_is_counted_once(
    event: str, expected: dict[str, int], settings: dict[str, Any]
) -> None:
    has_begun = settings.pop("has_begun", False)
    streams = Streams()
    world = World(2, **{"timeouts": TIMES, "resumes": streams, **settings})
    for row in ("a arrives continued", "r0 shows a", "r0 resets a"):
        happen(world, row)
    assert world.said[-1] == "continue a to r1"
    if has_begun:
        happen(world, "r1 shows a")
    happen(world, event)
    assert streams.outcomes == expected
    for request in [*world.requests]:
        request.leaves()
    world.check_empty()


@pytest.mark.parametrize(
    ("settings", "outcome"),
    [
        ({"replicas": 1}, Outcome.NO_REPLICA),
        ({"retry": NO_RETRY}, Outcome.BUDGET),
        ({}, Outcome.CONTINUED),
    ],
    ids=["no replica", "no budget", "one continuation is all it may have"],
)
def test_why_a_broken_stream_is_not_continued_is_counted(
    settings: dict[str, Any], outcome: Outcome
) -> None:
    streams = Streams(attempts=1)
    world = World(resumes=streams, **settings)
    for row in ("a arrives continued", "r0 shows a", "r0 resets a"):
        happen(world, row)
    if outcome is Outcome.CONTINUED:
        assert world.said[-1] == "continue a to r1"
        happen(world, "r1 refuses a")
        assert streams.outcomes == {Outcome.FAILED: 1}, "one is all it may have"
    else:
        assert streams.outcomes == {outcome: 1}
    assert world.said[-1] == "truncate a: replica_reset"
    world.check_empty()
