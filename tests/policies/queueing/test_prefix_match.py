"""The prefix match of a waiting request: which replicas hold its prompt."""

from policies.queueing.prefix_match import PrefixMatch


def test_before_a_lookup_no_replica_is_worth_more_than_another() -> None:
    prefix = PrefixMatch()
    assert prefix.worth_at("a") == prefix.most_blocks == 0
