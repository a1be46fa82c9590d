"""Flows: the flow that a request belongs to, and no advantage from an invented credential."""

import json
from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from router.config.keys import KeyLine, hash_of
from router.core.urgency import Urgency
from router.intake import flow as module
from router.intake.flow import CONFIRMED, Flow, Flows, Pending, header_of, user_of, with_steps
from router.intake.keys import Key
from router.observe.log.salt import Salter

HASHED = Salter("a salt", 0).name
ANN = b"Authorization: Bearer ann"
BOB = b"Authorization: Bearer bob"
HERE, THERE = "10.0.0.1", "10.0.0.2"


def a_key(name: str = "acme", **fields: Any) -> Key:
    return Key(KeyLine(**{"name": name, "hash": hash_of(b"k"), **fields}))


def raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(json.dumps(value).encode())


def flow(
    flows: Flows,
    authorization: bytes | None = None,
    peer: str = HERE,
    *,
    key: Key | None = None,
    api_key: bytes | None = None,
    forwarded_for: bytes | None = None,
    user: bytes = b"",
) -> Flow:
    return flows.of(key, authorization, api_key, peer, forwarded_for, user)


def names(found: Flow) -> tuple[str, str]:
    return found.account, found.member


# -- the flow of a request -----------------------------------------------------------------------


def test_a_flow_has_the_weight_of_its_key_until_the_keys_are_read_again() -> None:
    flows = Flows(HASHED)
    assert flow(flows, ANN).weight == 1.0
    for weight in (2.0, 3.0):
        key = a_key(weight=weight, names_users=True)
        assert flow(flows, ANN, key=key).weight == weight
        assert flow(flows, ANN, key=key, user=b"u").weight == weight
        flows.adopt(HASHED, ())


def test_limits_count_a_member_alone_where_its_client_cannot_invent_it() -> None:
    flows = Flows(HASHED)
    assert flow(flows, ANN, key=a_key()).is_member_counted
    assert flow(flows, ANN, user=b"u").is_member_counted  # a trusted client has named the user
    assert not flow(flows, ANN).is_member_counted


def test_users_are_members_of_their_key() -> None:
    flows = Flows(HASHED)
    ann, bob = (flow(flows, key=a_key(), user=user) for user in (b"ann", b"bob"))
    other = flow(flows, key=a_key("umbrella"), user=b"ann")
    assert ann.account == bob.account == "acme" != other.account
    assert len({ann.member, bob.member, ""}) == 3
    assert "ann" not in ann.member


def test_an_unconfirmed_credential_is_a_member_of_its_address() -> None:
    flows = Flows(HASHED)
    ann, bob, nobody = (flow(flows, line) for line in (ANN, BOB, None))
    assert ann.account == bob.account == nobody.account
    assert len({ann.member, bob.member, nobody.member}) == 3
    assert flow(flows, ANN, THERE).account != ann.account
    assert ann.counted == bob.counted == nobody.counted, "limits do not tell them apart"


def test_one_secret_is_one_credential_however_it_is_written() -> None:
    flows = Flows(HASHED)
    spellings = [b"authorization: bearer ann", b"AUTHORIZATION:\tBEARER  ann ", ANN]
    found = {flow(flows, line).member for line in spellings}
    found.add(flow(flows, api_key=b"x-api-key: ann").member)
    assert len(found) == 1


def test_a_secret_is_in_no_name() -> None:
    for found in (flow(Flows(HASHED), ANN, user=b"ann"), flow(Flows(HASHED))):
        told = f"{found.account} {found.member} {found.tenant} {found.within} {found.user}"
        assert "ann" not in told and HERE not in told


def test_prefixes_are_kept_apart_by_credential_not_by_address() -> None:
    flows = Flows(HASHED)
    here, there = flow(flows, ANN).isolation, flow(flows, ANN, THERE).isolation
    assert here == there != flow(flows, BOB).isolation
    assert flow(flows).isolation != flow(flows, peer=THERE).isolation


# -- confirmed credentials -----------------------------------------------------------------------


def test_a_confirmed_credential_is_an_account_wherever_it_comes_from() -> None:
    flows = Flows(HASHED)
    before = flow(flows, ANN)
    flows.confirm(before)
    for line, peer in ((ANN, HERE), (ANN, THERE), (b"authorization: bearer ann", HERE)):
        after = flow(flows, line, peer)
        assert names(after) == (before.tenant, "")
        assert after.isolation == before.isolation
    assert flow(flows, BOB).within, "another one is not"


def test_what_has_many_spellings_cannot_be_confirmed() -> None:
    flows = Flows(HASHED)
    basic = b"Authorization: Basic YW5uOmFubg=="
    flows.confirm(flow(flows, basic))
    assert flow(flows, basic).within


def test_confirmed_credentials_are_bounded() -> None:
    flows = Flows(HASHED)
    for n in range(CONFIRMED + 10):
        flows.confirm(flow(flows, b"Authorization: Bearer %d" % n))
    assert len(flows._confirmed) == CONFIRMED
    assert flow(flows, b"Authorization: Bearer 0").within, "the oldest is forgotten"
    assert not flow(flows, b"Authorization: Bearer %d" % CONFIRMED).within


def test_a_full_memo_forgets_no_confirmation() -> None:
    flows = Flows(HASHED)
    flows.confirm(flow(flows, ANN))
    for n in range(3 * module._MEMO):
        flow(flows, b"Authorization: Bearer %d" % n, f"10.1.{n % 256}.{n // 256}")
    assert not flow(flows, ANN).within
    held = len(flows._by_line), len(flows._by_name), len(flows._bare), flows._held
    assert max(held) <= module._MEMO


def test_one_credential_of_many_addresses_is_bounded() -> None:
    flows = Flows(HASHED)
    for n in range(3 * module._MEMO):
        flow(flows, ANN, f"10.{n % 7}.{n % 256}.{n // 256}")
        flow(flows, None, f"10.{n % 7}.{n % 256}.{n // 256}")
    assert sum(len(c.within) for c in flows._by_name.values()) <= module._MEMO
    assert len(flows._bare) <= module._MEMO


def test_another_salt_gives_other_names() -> None:
    flows = Flows(HASHED)
    flows.confirm(flow(flows, ANN))
    flows.adopt(Salter("another salt", 0).name, ())
    assert flow(flows, ANN).within


# -- addresses -----------------------------------------------------------------------------------


def at(flows: Flows, peer: str, said: bytes | None = None) -> str:
    return flow(flows, None, peer, forwarded_for=said).account


def test_a_client_does_not_choose_its_own_address() -> None:
    flows = Flows(HASHED, ["10.9.0.0/16"])
    assert at(flows, HERE, b"1.2.3.4") == at(flows, HERE), "the peer is no proxy"
    behind = at(flows, "10.9.0.1", b"7.7.7.7")
    assert behind == at(flows, "7.7.7.7")
    assert at(flows, "10.9.0.1", b"1.2.3.4, 7.7.7.7") == behind, "it wrote the first itself"
    assert at(flows, "10.9.0.1", b"7.7.7.7, 10.9.0.2") == behind, "a chain of proxies"
    assert at(flows, "10.9.0.1", b"7.7.7.7:4711") == behind, "some proxies add the port"


@pytest.mark.parametrize("said", [b"", b"unknown", b"1.2.3.4, _hidden", b",,,", b"\xff\xfe"])
def test_what_names_no_address_counts_as_the_proxy(said: bytes) -> None:
    flows = Flows(HASHED, ["10.9.0.0/16"])
    assert at(flows, "10.9.0.1", said) == at(flows, "10.9.0.1")


# -- users ---------------------------------------------------------------------------------------


def test_the_header_comes_before_the_body() -> None:
    assert user_of(b"ann", raw("bob")) == b"ann"
    assert user_of(None, raw("ann")) == user_of(b"", raw("ann")) == b"ann"


@pytest.mark.parametrize("user", [None, 5, ["ann"], {"id": "ann"}, "", "x" * 5000, True])
def test_what_names_no_user(user: object) -> None:
    assert user_of(None, raw(user)) == b""


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


# -- steps ---------------------------------------------------------------------------------------


def of_user(user: str, tenant: str = "a") -> Flow:
    return Flow(tenant, "", user)


def test_a_burst_spreads_and_anothers_first_request_is_on_top() -> None:
    pending = Pending()
    burst = [with_steps(Urgency(2.0, "key"), pending.come(of_user("1"))) for _ in range(1000)]
    numbers = [urgency.number for urgency in burst]
    assert numbers == sorted(set(numbers)), "each less urgent than the one before"
    assert {urgency.name for urgency in burst} == {"normal"}
    single = with_steps(Urgency(2.0, "key"), pending.come(of_user("2")))
    assert single.number == numbers[0] == 2.0
    assert single.number < min(numbers[1:])


def test_invented_credentials_share_the_steps_of_their_address() -> None:
    pending, flows = Pending(), Flows(HASHED)
    lines = [b"Authorization: Bearer %d" % n for n in range(5)]
    assert [pending.come(flow(flows, line)) for line in lines] == [0, 1, 2, 3, 4]
    assert pending.come(flow(flows, lines[0], THERE)) == 0


def test_a_user_whose_requests_have_ended_has_no_step() -> None:
    pending = Pending()
    for _ in range(5):
        assert pending.come(of_user("1")) == 0
        pending.go(of_user("1"))


FLOWS = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 3)), max_size=200)


@given(FLOWS, st.randoms(use_true_random=False))
def test_what_is_kept_is_what_is_pending(comes: list[tuple[str, int]], rng: Any) -> None:
    pending = Pending()
    here: list[tuple[str, int]] = []
    for tenant, user in comes:
        assert pending.come(of_user(str(user), tenant)) == here.count((tenant, user))
        here.append((tenant, user))
        if rng.random() < 0.5:
            tenant, user = here.pop(rng.randrange(len(here)))
            pending.go(of_user(str(user), tenant))
        assert len(pending) == len(Counter(here))
    for tenant, user in here:
        pending.go(of_user(str(user), tenant))
    assert len(pending) == 0
