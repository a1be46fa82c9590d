"""Flows: users stand inside their key, and a burst gives way to another's first request."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.config.keys import KeyLine, hash_of
from router.core.urgency import Urgency
from router.intake.flow import NOBODY, Flow, Pending, flow_of, header_of, with_steps
from router.intake.keys import Key


def a_key(name: str = "acme", **fields: Any) -> Key:
    return Key(KeyLine(**{"name": name, "hash": hash_of(b"k"), **fields}))


TRUSTED = a_key(names_users=True)


def raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(json.dumps(value).encode())


def test_without_a_key_and_a_user_there_is_no_flow() -> None:
    assert flow_of(None, False, b"ann", raw("ann")) == NOBODY
    assert flow_of(None, True, None, None) == NOBODY


def test_all_of_a_key_is_one_flow_unless_it_may_name_users() -> None:
    assert flow_of(a_key(), True, b"ann", raw("bob")) == ("acme", 0)
    ann, bob = (flow_of(TRUSTED, False, user, None) for user in (b"ann", b"bob"))
    assert len({ann, bob, ("acme", 0)}) == 3
    assert ann[0] == bob[0] == "acme"


def test_users_of_one_name_in_two_keys_are_two() -> None:
    other = a_key("umbrella", names_users=True)
    assert flow_of(TRUSTED, False, b"ann", None) != flow_of(other, False, b"ann", None)


def test_the_header_comes_before_the_body() -> None:
    ann = flow_of(TRUSTED, False, b"ann", None)
    assert flow_of(TRUSTED, False, b"ann", raw("bob")) == ann
    assert flow_of(TRUSTED, False, None, raw("ann")) == ann
    assert flow_of(TRUSTED, False, b"", raw("ann")) == ann


@pytest.mark.parametrize("user", [None, 5, ["ann"], {"id": "ann"}, "", "x" * 5000, True])
def test_what_names_no_user(user: object) -> None:
    assert flow_of(TRUSTED, False, None, raw(user)) == ("acme", 0)


def test_a_users_name_is_not_kept() -> None:
    name, user = flow_of(TRUSTED, False, b"ann@example.org", None)
    assert name == "acme"
    assert 0 < user < 1 << 64


@pytest.mark.parametrize(
    ("lines", "value"),
    [
        (b"\r\nX-User-Id: ann", b"ann"),
        (b"\r\nA: b\r\nx-user-id:ann \r\nC: d", b"ann"),
        (b"\r\nx-user-id: ", b""),
        (b"\r\nx-user-ids: ann", None),
        (b"\r\na: x-user-id: ann", None),
        (b"", None),
    ],
)
def test_the_users_header(lines: bytes, value: bytes | None) -> None:
    assert header_of(lines, b"\r\nx-user-id:") == value


# Steps.


def test_a_burst_spreads_and_anothers_first_request_is_on_top() -> None:
    pending = Pending()
    burst = [with_steps(Urgency(2.0, "key"), pending.come(("a", 1))) for _ in range(1000)]
    numbers = [urgency.number for urgency in burst]
    assert numbers == sorted(set(numbers)), "each less urgent than the one before"
    assert {urgency.name for urgency in burst} == {"normal"}
    single = with_steps(Urgency(2.0, "key"), pending.come(("a", 2)))
    assert single.number == numbers[0] == 2.0
    assert single.number < min(numbers[1:])


def test_who_has_waited_for_his_own_is_back_on_top() -> None:
    pending = Pending()
    for _ in range(5):
        assert pending.come(("a", 1)) == 0
        pending.go(("a", 1))


FLOWS = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 3)), max_size=200)


@given(FLOWS, st.randoms(use_true_random=False))
def test_what_is_kept_is_what_is_pending(comes: list[Flow], rng: Any) -> None:
    pending = Pending()
    here: list[Flow] = []
    for flow in comes:
        assert pending.come(flow) == here.count(flow)
        here.append(flow)
        if rng.random() < 0.5:
            pending.go(here.pop(rng.randrange(len(here))))
        assert len(pending) == len(Counter(here))
    for flow in here:
        pending.go(flow)
    assert len(pending) == 0


def test_ten_thousand_users_leave_nothing() -> None:
    pending = Pending()
    for n in range(10_000):
        flow = flow_of(TRUSTED, False, b"user-%d" % n, None)
        pending.come(flow)
        pending.go(flow)
    assert len(pending) == 0
