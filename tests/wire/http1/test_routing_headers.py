"""What each declared header writes into the fields, and which of them reach the replica."""

from itertools import permutations
from math import inf

import pytest

from router.wire.http1.routing_headers import DECLARED, RoutingHeaders

BY_NAME = {header.name: header for header in DECLARED}


def read(*fields: tuple[bytes, bytes]) -> RoutingHeaders:
    into = RoutingHeaders()
    for name, value in fields:
        BY_NAME[name].read(value, into)
    return into


def test_names_are_unique_and_in_lower_case() -> None:
    assert len(BY_NAME) == len(DECLARED)
    assert all(name == name.lower() for name in BY_NAME)


def test_headers_that_only_the_router_may_obey_are_not_forwarded() -> None:
    """A second router behind this one would apply the priority or the timeout again."""
    kept = {name for name, header in BY_NAME.items() if not header.passes}
    assert kept == {
        *(b"x-router-model", b"x-priority", b"x-hedge", b"x-request-timeout-ms"),
        *(b"x-slo-ttft-ms", b"x-slo-tpot-ms", b"x-ttft-estimate"),
        *(b"x-region", b"x-served-region"),
        # Servers may take them for fields with hyphens.
        *(b"session_id", b"conversation_id"),
    }


def test_a_text_is_kept_as_written_and_the_last_one_counts() -> None:
    found = read(
        (b"x-router-model", b"A"),
        (b"x-router-model", b"Big\xff"),
        (b"x-session-id", b"S 1"),
        (b"x-priority", b"High"),
    )
    assert (found.model, found.session, found.priority) == (b"Big\xff", b"S 1", b"High")


def test_hedge_is_read_in_lower_case() -> None:
    assert read((b"x-hedge", b"NEVER")).hedge == b"never"


@pytest.mark.parametrize(("value", "wanted"), [(b"true", True), (b"TRUE", True), (b"0", False)])
def test_an_estimate_is_wanted_only_if_the_client_says_so(value: bytes, wanted: bool) -> None:
    assert read((b"x-ttft-estimate", value)).wants_estimate is wanted


@pytest.mark.parametrize(("value", "wanted"), [(b"true", True), (b"TRUE", True), (b"0", False)])
def test_the_region_is_named_only_if_the_client_says_so(value: bytes, wanted: bool) -> None:
    found = read((b"x-region", b"eu"), (b"x-served-region", value))
    assert (found.region, found.wants_region) == (b"eu", wanted)
    assert not read().wants_estimate


TIMEOUTS = [
    ((b"x-request-timeout-ms", b"2500"), 2.5),
    ((b"x-envoy-expected-rq-timeout-ms", b"4000"), 4.0),
    ((b"grpc-timeout", b"3S"), 3.0),
]


@pytest.mark.parametrize("order", list(permutations(TIMEOUTS)))
def test_the_shortest_timeout_counts_in_any_order(
    order: tuple[tuple[tuple[bytes, bytes], float], ...],
) -> None:
    assert read(*[field for field, _ in order]).timeout_s == 2.5


def test_an_sdk_timeout_is_separate_and_the_shorter_one_counts() -> None:
    found = read((b"x-stainless-timeout", b"600"), (b"x-stainless-read-timeout", b"30"))
    assert (found.sdk_timeout_s, found.timeout_s) == (30.0, inf)
    found = read((b"x-stainless-read-timeout", b"30"), (b"x-stainless-timeout", b"600"))
    assert found.sdk_timeout_s == 30.0


def test_the_slos_are_separate_and_the_last_one_counts() -> None:
    none = read()
    assert (none.ttft_slo_s, none.tpot_slo_s) == (0.0, 0.0)
    found = read((b"x-slo-ttft-ms", b"900"), (b"x-slo-tpot-ms", b"40"), (b"x-slo-ttft-ms", b"700"))
    assert (found.ttft_slo_s, found.tpot_slo_s) == (0.7, 0.04)
