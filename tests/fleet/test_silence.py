"""The time without visible work after which a replica is suspect, and signs of work."""

from __future__ import annotations

import pytest

from router.core.errors import Reason
from router.core.lease import Lease
from router.fleet.monitor.signal_changes import has_worked
from router.fleet.replica import Replica
from router.fleet.signals import NO_SIGNALS, Signals
from router.wire.sweep import NEVER
from tests.fleet.helpers import Table
from tests.harness.running import scenario

NOW = 1000.0


def told(replica: Replica, at: float, **signals: int) -> None:
    replica.signals = Signals(**signals)
    replica.signals_at = at


# -- what counts as work ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after", "worked"),
    [
        (Signals(generated_tokens=5), Signals(generated_tokens=6), True),
        (Signals(generated_tokens=5), Signals(generated_tokens=5), False),
        (Signals(generated_tokens=5), Signals(generated_tokens=1), False),  # another process
        (Signals(prompt_tokens=5), Signals(prompt_tokens=9), True),
        (Signals(kv_usage=0.1), Signals(kv_usage=0.2), True),
        (Signals(kv_usage=0.2), Signals(kv_usage=0.1), False),
        (Signals(running=4, waiting=2), Signals(running=4, waiting=1), True),
        (Signals(running=4, waiting=2), Signals(running=3, waiting=2), True),
        (Signals(running=3, waiting=1), Signals(running=4, waiting=2), False),
        # Clients that disconnect from a hanging engine also leave its queue.
        (Signals(waiting=2, generated_tokens=5), Signals(waiting=1, generated_tokens=5), False),
        (NO_SIGNALS, Signals(generated_tokens=6, running=1), False),
        (Signals(generated_tokens=6, running=1), NO_SIGNALS, False),
    ],
)
def test_what_two_polls_show(before: Signals, after: Signals, worked: bool) -> None:
    assert has_worked(before, after) is worked


# -- how long ---------------------------------------------------------------------------------


@scenario
async def test_what_is_hidden_is_given_time() -> None:
    table = Table()
    replica = table.add("a")
    least_s, factor = table.rules.suspect_min_s, table.rules.suspect_factor
    stream = Lease(replica, 10)
    assert replica.silence_s(NOW) == least_s
    whole = Lease(replica, 10, streamed=False)
    assert replica.silence_s(NOW) == factor * least_s  # no such answers are known yet
    replica.progress.whole_answer(30.0)
    assert replica.silence_s(NOW) == factor * 30.0
    replica.slots = 2
    assert replica.silence_s(NOW) == least_s  # a slot is free for a visible stream
    replica.foreign_load = 1
    assert replica.silence_s(NOW) == factor * 30.0
    for lease in (stream, whole):
        lease.release()
    table.close()


@scenario
async def test_live_totals_that_were_just_read_hide_nothing() -> None:
    table = Table()
    replica = table.add("a", engine="vllm")
    least_s = table.rules.suspect_min_s
    whole = Lease(replica, 10, streamed=False)
    told(replica, NOW, generated_tokens=7)
    assert replica.silence_s(NOW + least_s / 2) == least_s
    assert replica.silence_s(NOW + least_s) > least_s  # its metrics are missing
    replica.engine = "llamacpp"  # counts tokens only when a request ends
    assert replica.silence_s(NOW) > least_s
    whole.release()
    table.close()


# -- in the fleet -----------------------------------------------------------------------------


@scenario
async def test_an_overdue_token_is_looked_at_again_while_the_replica_works() -> None:
    table = Table()
    fleet, least_s = table.fleet, table.rules.suspect_min_s
    replica = table.add("a")
    table.add("b")
    sent = fleet._clock()
    now = sent + least_s
    replica.progress.at = sent + 2.0
    assert fleet.overdue(replica, sent, now) == sent + 2.0 + least_s
    assert table.events == []
    now = sent + 2.0 + least_s
    fleet._clock = lambda: now
    assert fleet.overdue(replica, sent, now) == NEVER
    assert table.events == [("suspect", "a")]
    assert table.ids("m") == ["b"]
    replica.progress.at = now + 1.0  # a token of another stream
    now += 1.0
    fleet.on_deadline(now)
    assert table.ids("m") == ["a", "b"]
    table.close()


@pytest.mark.parametrize("reason", [Reason.TTFT_TIMEOUT, Reason.TOKEN_GAP_TIMEOUT])
@scenario
async def test_a_timeout_counts_only_against_a_silent_replica(reason: Reason) -> None:
    table = Table(eject_after=100)
    fleet = table.fleet
    replica = table.add("a")
    now = fleet._clock()
    fleet._clock = lambda: now
    replica.progress.at = now - 1.0
    fleet.failed(replica, reason, now - 60.0, now - 60.0)
    assert replica.health.failures == 0
    fleet.failed(replica, reason, now - 60.0, now - 1.0)  # that was its own content
    assert replica.health.failures == 1
    replica.progress.at = now - 2.0 * table.rules.suspect_min_s
    fleet.failed(replica, reason, now - 60.0, now - 60.0)
    assert replica.health.failures == 2
    table.close()
