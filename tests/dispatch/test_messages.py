"""Every reason for which the router may end a request has a message, without internal names."""

import re

import pytest

from router.core.errors import Reason, Source
from router.dispatch.driver.retry import LOST, PASSING, UNSENT
from router.dispatch.messages import MESSAGES
from router.fleet.health import BLAMED
from tests.dispatch.driven import World
from tests.dispatch.driver.driver_tables import HEDGED, PAUSES, happen

# No attempt fails for this reason: the request is refused before, with its own message.
NEVER_SAID = {Reason.STATE_LOST}


@pytest.mark.parametrize("reason", MESSAGES)
def test_a_message_names_no_address_and_reads_like_the_others(reason: Reason) -> None:
    message = MESSAGES[reason]
    assert re.fullmatch(r"[a-z][a-z' ]+", message)


def test_each_reason_has_its_own_message() -> None:
    assert len(set(MESSAGES.values())) == len(MESSAGES)


def test_every_failure_of_an_attempt_has_a_message() -> None:
    """Any failure may become the reason of a request whose retry finds no replica."""
    of_replicas = {reason for reason in Reason if reason.source is Source.REPLICA}
    assert (of_replicas | PASSING | UNSENT | LOST | BLAMED) - NEVER_SAID <= MESSAGES.keys()


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        # The other replica fails during the pause before the retry.
        (["r0 errs-in-the-stream-of a", "r1 goes-down", "1s passes"], Reason.STREAM_ERROR),
        (["r0 503s a", "r1 goes-down", "1s passes"], Reason.REPLICA_BUSY),
        (["r0 refuses a", "r1 refuses a"], Reason.CONNECT_FAILED),
        (["r0 garbles a"], Reason.BAD_RESPONSE),
    ],
)
def test_what_is_left_to_say_after_the_last_attempt(events: list[str], reason: Reason) -> None:
    world = World(replicas=2, retry=PAUSES)
    happen(world, "a arrives")
    for event in events:
        happen(world, event)
    assert world.said[-1] == f"answer a: {reason}"
    assert reason in MESSAGES


def test_an_error_that_was_too_long_to_keep_is_blamed_after_a_copy() -> None:
    """While the copy was running the error was not relayed; then the copy finds no engine."""
    world = World(replicas=2, hedging=HEDGED)
    happen(world, "a arrives")
    happen(world, "1s passes")
    request = world.of("a")
    first, copy = request.driver.state.live
    request.fails(first, Reason.SERVER_ERROR)
    request.fails(copy, Reason.CONNECT_FAILED)
    assert world.said[-1] == f"answer a: {Reason.SERVER_ERROR}"
    assert Reason.SERVER_ERROR in MESSAGES
