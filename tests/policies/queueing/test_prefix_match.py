"""The prefix match of a waiting request: which replicas hold its prompt."""

from __future__ import annotations

from policies.queueing.prefix_match import PrefixMatch


def test_before_a_lookup_no_replica_is_worth_more_than_another() -> None:
    prefix = PrefixMatch()
    assert prefix.worth_at("a") == prefix.most_blocks == 0


def test_worth_is_what_is_saved_less_what_is_lost_elsewhere() -> None:
    prefix = PrefixMatch()
    prefix.update({"most": 4, "some": 1}, 7.0)
    assert (prefix.most_blocks, prefix.looked_up_at) == (4, 7.0)
    assert [prefix.worth_at(place) for place in ("most", "some", "none")] == [4, -2, -4]


def test_a_later_lookup_replaces_an_earlier_one() -> None:
    prefix = PrefixMatch()
    prefix.update({"a": 1}, 1.0)
    prefix.update({}, 2.0)
    assert prefix.worth_at("a") == prefix.most_blocks == 0
