"""Which parties are at the same replicas at the same time."""

from __future__ import annotations

import pytest

from router.lab.audit.company import Company


def played(*stays: tuple[int, str, float, float]) -> Company:
    """Add stays, each (party, replica, from, to)."""
    company = Company()
    events = [(start, 1, party, replica, 0.0) for party, replica, start, _ in stays]
    events += [(end, 0, party, replica, end - start) for party, replica, start, end in stays]
    for now, comes, party, replica, stayed in sorted(events):
        if comes:
            company.comes(party, replica, now)
        else:
            company.goes(party, replica, now, stayed)
    return company


def test_shared_time_needs_requests_of_both_parties() -> None:
    company = played((1, "a", 0.0, 10.0), (2, "a", 6.0, 16.0))
    assert company.shared(1, 2) == pytest.approx(0.4)
    assert company.shared(2, 1) == pytest.approx(0.4)


def test_several_requests_of_one_party_are_one_presence() -> None:
    company = played((1, "a", 0.0, 4.0), (1, "a", 2.0, 10.0), (2, "a", 3.0, 5.0))
    assert company.present_s[1] == pytest.approx(10.0)
    assert company.shared(1, 2) == pytest.approx(0.2)
    assert company.shared(2, 1) == pytest.approx(1.0)


def test_parties_at_other_replicas_or_times_share_no_time() -> None:
    company = played((1, "a", 0.0, 10.0), (2, "b", 0.0, 10.0), (3, "a", 10.0, 12.0))
    assert company.shared(1, 2) == company.shared(1, 3) == company.shared(3, 1) == 0.0


def test_a_party_shares_no_time_with_itself() -> None:
    company = played((1, "a", 0.0, 10.0))
    assert company.shared(1, 1) == company.shared(7, 1) == 0.0


def test_a_crowd_is_counted_over_all_replicas() -> None:
    company = played((1, "a", 0.0, 10.0), (1, "b", 4.0, 6.0), (1, "c", 5.0, 7.0))
    crowd = company.crowds[1]
    assert (crowd.now, crowd.peak, crowd.peak_at) == (0, 3, 5.0)
    assert crowd.seconds == pytest.approx(14.0)


def test_nothing_is_kept_of_an_empty_replica() -> None:
    assert played((1, "a", 0.0, 1.0), (2, "b", 0.0, 1.0))._there == {}
