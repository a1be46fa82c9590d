"""A replica's own facts: the time without visible work after which it is suspect."""

from router.core.lease import Lease
from router.fleet.replica import Replica
from router.fleet.signals import Signals
from tests.fleet.helpers import Table

NOW = 1000.0


def told(replica: Replica, at: float, **signals: int) -> None:
    replica.reports.signals = Signals(**signals)
    replica.reports.at = at


def test_what_is_hidden_is_given_time(table: Table) -> None:
    replica = table.add("a")
    least_s, factor = table.rules.suspect_min_s, table.rules.suspect_factor
    stream = Lease(replica, 10)
    assert replica.silence_s(NOW) == least_s
    whole = Lease(replica, 10, streamed=False)
    assert replica.silence_s(NOW) == factor * least_s  # no whole answer is known yet
    replica.progress.whole_answer(30.0)
    assert replica.silence_s(NOW) == factor * 30.0
    replica.slots = 2
    assert replica.silence_s(NOW) == least_s  # a slot is free for a visible stream
    replica.foreign_load = 1
    assert replica.silence_s(NOW) == factor * 30.0
    for lease in (stream, whole):
        lease.release()


def test_live_totals_that_were_just_read_hide_nothing(table: Table) -> None:
    replica = table.add("a", engine="vllm")
    least_s = table.rules.suspect_min_s
    whole = Lease(replica, 10, streamed=False)
    told(replica, NOW, generated_tokens=7)
    assert replica.silence_s(NOW + least_s / 2) == least_s
    assert replica.silence_s(NOW + least_s) > least_s  # the replica's metrics are missing
    replica.engine = "llamacpp"  # llama.cpp counts tokens only when a request ends
    assert replica.silence_s(NOW) > least_s
    whole.release()
