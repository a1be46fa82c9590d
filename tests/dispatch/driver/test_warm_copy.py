"""The copy that warms up a cold replica: when it is sent, and each of its ends."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from policies.allowed import Allowed
from router.config.model import Hedging, Timeouts
from router.core.errors import Reason
from router.observe.hedge_counts import CUT, FAILED, FILLED
from tests.dispatch.driven import TOKENS, Driven, World

WARM = Hedging(policy="off", warm_up_s=60.0, budget=1.0)
PREFIX = (1, 2, 3)
LONG_S = 1000.0


def prompt(number: int) -> tuple[int, ...]:
    return (*PREFIX, 100 + number)


def asks(world: World, number: int, **how: object) -> Driven:
    options = {"tokens": TOKENS * len(prompt(number)), "blocks": prompt(number), **how}
    return world.arrives(f"q{number}", **options)  # type: ignore[arg-type]


def cold(hedging: Hedging = WARM, requests: int = 3, spare: float = 1000.0, **how: object) -> World:
    """The prefix was used by some requests at r0; then r1 joins."""
    world = World(1, hedging=hedging, timeouts=Timeouts(token_gap_s=LONG_S), **how)  # type: ignore[arg-type]
    for number in range(requests):
        request = asks(world, number)
        request.whole(request.driver.live[0])
    world.joins("r1").health.begins_slowly(world.time.at)
    world.time.passes(1.0)
    world.hedger._budget.spare = spare
    world.said.clear()
    return world


def begins(world: World, number: int = 9, **how: object) -> Driven:
    """A request whose stream begins at r0."""
    request = asks(world, number, **how)
    request.shows(request.driver.live[0])
    world.time.passes(0.0)
    world.check()
    return request


SENT = ["send q9 to r0", "show q9 from r0", "warm q9 to r1"]


def counts(world: World) -> dict[str, int]:
    return {what: n for what, n in world.counts.warm_ups.items() if n}


def test_a_copy_is_sent_after_the_first_content() -> None:
    world = cold()
    request = asks(world, 9)
    request.shows(request.driver.live[0])
    assert world.said == SENT[:2], "the content is relayed first"
    world.time.passes(0.0)
    assert world.said == SENT
    r1 = world.fleet.replicas["r1"]
    assert (r1.inflight, r1.waiting, r1.pending_tokens) == (1, 1, 4 * TOKENS)
    world.check()


def test_the_first_token_ends_the_copy_and_fills_the_index() -> None:
    world = cold()
    request = begins(world)
    r1 = world.fleet.replicas["r1"]
    assert r1 not in world.fleet.knowledge.held(request.view)
    request.copy_shows()
    assert world.said == [*SENT, "drop q9 at r1"]
    assert world.fleet.knowledge.held(request.view)[r1] == 4
    assert counts(world) == {FILLED: 1} and world.counts.warm_up_tokens == 4 * TOKENS
    assert world.metrics.attempts["r1", "warm_up", Reason.OK] == 1
    world.check()
    request.whole(request.driver.live[0])
    world.check()
    assert counts(world) == {FILLED: 1}, "the end of the request counts nothing more"


def client_leaves(request: Driven) -> None:
    request.leaves()


def answer_ends(request: Driven) -> None:
    request.whole(request.driver.live[0])


def stream_breaks(request: Driven) -> None:
    request.fails(request.driver.live[0], Reason.REPLICA_RESET)


@pytest.mark.parametrize("ends", [client_leaves, answer_ends, stream_breaks])
def test_the_copy_ends_with_its_request(ends: Callable[[Driven], None]) -> None:
    world = cold()
    request = begins(world)
    ends(request)
    assert world.said[-1] == "drop q9 at r1"
    assert counts(world) == {CUT: 1}
    assert request.ended is not None and not world.requests
    world.check()


@pytest.mark.parametrize("reason", [Reason.REPLICA_RESET, Reason.SERVER_ERROR])
def test_a_failed_copy_does_not_affect_its_request(reason: Reason) -> None:
    world = cold()
    request = begins(world)
    assert request.driver.copy is not None
    request.fails(request.driver.copy.attempt, reason)
    assert world.said == SENT and request.ended is None
    assert counts(world) == {FAILED: 1}
    assert world.fleet.replicas["r1"].health.failures == 1
    world.check()
    request.whole(request.driver.live[0])
    assert request.ended is Reason.OK and counts(world) == {FAILED: 1}


def test_a_refused_connection_costs_no_tokens() -> None:
    world = cold()
    world.refusing.add("r1")
    begins(world)
    assert counts(world) == {FAILED: 1}
    assert (world.counts.warm_up_tokens, world.counts.warm_up_returned_tokens) == (0, 4 * TOKENS)


def test_a_late_copy_is_cancelled() -> None:
    world = cold()
    request = begins(world)
    assert request.driver.copy is not None
    request.connects(request.driver.copy.attempt)
    world.time.passes(world.config.timeouts.first_token_s + 1.0)
    assert world.said == [*SENT, "drop q9 at r1"] and counts(world) == {FAILED: 1}
    assert request.ended is None
    world.check()


def test_a_copy_survives_the_removal_of_its_replica() -> None:
    world = cold()
    request = begins(world)
    world.fleet.remove("r1")
    assert [r.id for r in world.fleet.leaving] == ["r1"]
    request.copy_shows()
    assert not world.fleet.leaving and counts(world) == {FILLED: 1}
    world.check()


def test_a_region_that_is_no_longer_allowed_gets_no_copy() -> None:
    """A reload changes the region of the replica before the copy is sent over its connection."""
    world = cold(regions=("eu", "eu"))
    request = begins(world, allowed=Allowed(["eu"]))
    assert request.driver.copy is not None
    world.moves("r1", "us")
    assert not request.connects(request.driver.copy.attempt)
    assert counts(world) == {FAILED: 1} and request.received == [("eu", request.view.allowed)]
    world.check()


# Requests without a copy: the world, and what differs about the request.
NOT_COPIED: dict[str, tuple[Callable[[], World], dict[str, object]]] = {
    "not configured": (lambda: cold(Hedging(policy="off", budget=1.0)), {}),
    "dry run": (lambda: cold(Hedging(warm_up_s=60.0, budget=1.0, dry_run=True)), {}),
    "no spare budget": (lambda: cold(spare=4 * TOKENS - 1.0), {}),
    "not repeatable": (cold, {"repeatable": False}),
    "forbidden": (cold, {"hedged": False}),
    "not streamed": (cold, {"streamed": False}),
    "no blocks": (cold, {"blocks": ()}),
    "the second request with the prefix": (lambda: cold(requests=1), {}),
    "another region": (
        lambda: cold(regions=("eu", "us")),
        {"allowed": Allowed(["eu"])},
    ),
}


@pytest.mark.parametrize("why", NOT_COPIED)
def test_no_copy(why: str) -> None:
    made, how = NOT_COPIED[why]
    world = made()
    begins(world, **how)
    assert world.said == SENT[:2]
    assert counts(world) == {} and not world.fleet.replicas["r1"].inflight


def test_no_copy_of_a_stream_that_has_ended() -> None:
    world = cold()
    request = asks(world, 9)
    request.whole(request.driver.live[0])
    world.time.passes(1.0)
    assert world.said == [*SENT[:2], "release q9 at r0", "end q9: ok"]


def test_no_copy_of_a_body_that_is_not_kept() -> None:
    world = cold()
    request = asks(world, 9)
    request.is_kept = False
    request.shows(request.driver.live[0])
    world.time.passes(0.0)
    assert world.said == SENT[:2]


def test_no_copy_of_a_request_that_refers_to_a_stored_response() -> None:
    world = cold()
    begins(world, pinned="r0")
    assert world.said == SENT[:2]


def test_no_copy_while_the_router_stops() -> None:
    world = cold()
    request = asks(world, 9)
    request.shows(request.driver.live[0])
    world.context.closing = True
    world.time.passes(0.0)
    assert world.said == SENT[:2]


def test_a_reload_turns_the_warm_up_off() -> None:
    world = cold()
    request = begins(world)
    world.hedger.adopt(Hedging())
    request.copy_shows()
    assert counts(world) == {FILLED: 1}, "a running copy is still counted"
    begins(world, 10)
    assert "warm q10 to r1" not in world.said


def test_a_defect_of_the_copy_does_not_end_its_request(monkeypatch: pytest.MonkeyPatch) -> None:
    world = cold()
    defects: list[Exception] = []
    world.context.log_defect = defects.append

    def breaks(*_: object) -> None:
        raise ValueError("a defect")

    request = asks(world, 9)
    monkeypatch.setattr(Driven, "attach_copy", breaks)
    monkeypatch.setattr(request, "drop", lambda attempt: None)
    request.shows(request.driver.live[0])
    world.time.passes(0.0)
    assert len(defects) == 1 and request.ended is None
    assert not world.fleet.replicas["r1"].inflight
