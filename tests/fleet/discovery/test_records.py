"""DNS records, their times, and the replicas that they name."""

from random import Random
from typing import Any

import pytest

from router.config.model import Credential, Discovery, DnsName
from router.fleet.discovery.records import (
    Question,
    RecordCache,
    Reply,
    Service,
    first_questions,
    found_by,
    renewed,
    services_of,
    target_questions,
)

RULES = Discovery(ttl_min_s=1.0, ttl_max_s=100.0, retry_max_s=8.0)
V4, V6 = Question("vllm.svc", "A"), Question("vllm.svc", "AAAA")
SERVICE = Question("vllm.svc", "SRV")
BOTH = [V4, V6]


def cache() -> RecordCache:
    return RecordCache(RULES, Random(3))


def name(**fields: Any) -> DnsName:
    return DnsName(**{"url": "http://vllm.svc:8000", **fields})


def urls(name: DnsName, known: RecordCache) -> list[str]:
    services = services_of(name, known, 100)
    return [each.replica.url for each in found_by(name, known, services)]


def test_each_question_has_its_own_ttl() -> None:
    known = cache()
    assert known.due(BOTH, 0.0) == BOTH
    known.answered(V4, Reply(30.0, ("10.0.0.1",)), 0.0)
    known.answered(V6, Reply(5.0), 0.0)
    assert known.due(BOTH, 4.9) == []
    assert known.wait_s(3.0) == 2.0
    assert known.due(BOTH, 5.0) == [V6]
    assert known.wait_s(50.0) == 0.0


def test_a_failure_keeps_the_records_and_is_repeated_later_and_later() -> None:
    known = cache()
    known.answered(V4, Reply(1.0, ("10.0.0.1",)), 0.0)
    now, pauses = 1.0, []
    for _ in range(6):
        assert known.due([V4], now) == [V4]
        known.failed(V4, now)
        pauses.append(known.wait_s(now))
        now += pauses[-1]
        assert known.reply(V4).addresses == ("10.0.0.1",)
    assert pauses[0] < 2.0 < pauses[1] < pauses[2] <= max(pauses) < 10.0
    known.answered(V4, Reply(1.0, ("10.0.0.2",)), now)
    known.failed(V4, now)
    assert known.wait_s(now) < 2.0


def test_a_question_without_any_reply_is_awaited_for_a_while() -> None:
    known = cache()
    assert not known.is_settled(V4)
    for settled in (False, False, True):
        known.failed(V4, 0.0)
        assert known.is_settled(V4) is settled
    known.answered(V6, Reply(1.0), 0.0)
    assert known.is_settled(V6)
    known.keep([V6])
    assert not known.is_settled(V4) and known.is_settled(V6)


@pytest.mark.parametrize(
    ("records", "found"),
    [
        ("address", ["http://10.0.0.1:8000/x", "http://[::2]:8000/x"]),
        ("a", ["http://10.0.0.1:8000/x"]),
        ("aaaa", ["http://[::2]:8000/x"]),
    ],
)
def test_each_address_is_a_replica(records: Any, found: list[str]) -> None:
    known, asked = cache(), name(url="http://vllm.svc:8000/x", records=records)
    assert [q.kind for q in first_questions(asked)] == (
        ["A", "AAAA"] if records == "address" else [records.upper()]
    )
    known.answered(V4, Reply(1.0, ("10.0.0.1", "0.0.0.0", "224.0.0.1", "10.0.0.1")), 0.0)
    known.answered(V6, Reply(1.0, ("0:0::2", "::", "::2")), 0.0)
    assert urls(asked, known) == found


def test_a_replica_has_the_settings_of_its_name() -> None:
    asked = name(engine="vllm", max_inflight=7, models=("m",), weight=2.0, spot=True, zone="z")
    known = cache()
    known.answered(V4, Reply(1.0, ("10.0.0.1",)), 0.0)
    (found,) = found_by(asked, known, ())
    replica = found.replica
    assert (replica.id, replica.region, replica.zone) == ("10.0.0.1:8000", "", "z")
    assert (replica.engine, replica.max_inflight, replica.models) == ("vllm", 7, ("m",))
    assert (replica.weight, replica.spot) == (2.0, True)
    asked = name(region="us", pool="p", type="h100", credential=Credential(token="secret"))
    (found,) = found_by(asked, known, ())
    replica = found.replica
    assert (replica.region, replica.pool, replica.type) == ("us", "p", "h100")
    assert replica.credential == asked.credential


def test_replicas_of_an_earlier_answer_get_the_new_settings_of_their_name() -> None:
    asked, known = srv(Service(1, 30, 8000, "a"), Service(1, 10, 8001, "b"))
    known.answered(Question("b", "A"), Reply(1.0), 0.0)
    known.answered(Question("b", "AAAA"), Reply(1.0, ("::b",)), 0.0)
    changed = name(url="http://vllm.svc/y", records="srv", weight=8.0, region="us", pool="p")
    for before, after in zip(
        found_by(asked, known, services_of(asked, known, 100)),
        found_by(changed, known, services_of(changed, known, 100)),
        strict=True,
    ):
        assert before.replica != after.replica
        assert renewed(before, changed) == after


def srv(*services: Service) -> tuple[DnsName, RecordCache]:
    known, asked = cache(), name(url="https://vllm.svc/x", records="srv", weight=3.0)
    known.answered(SERVICE, Reply(1.0, services=services), 0.0)
    for number, service in enumerate(services):
        known.answered(Question(service.target, "A"), Reply(1.0, (f"10.0.0.{number}",)), 0.0)
    return asked, known


def test_srv_records_have_port_priority_and_weight() -> None:
    services = (
        Service(1, 30, 8000, "a"),
        Service(1, 10, 8001, "b"),
        Service(1, 0, 8002, "c"),
        Service(2, 0, 8003, "d"),
        Service(2, 0, 8004, "e"),
    )
    asked, known = srv(*services)
    found = found_by(asked, known, services_of(asked, known, 100))
    by_url = {each.replica.url: each for each in found}
    assert list(by_url) == [
        "https://10.0.0.2:8002/x",
        "https://10.0.0.1:8001/x",
        "https://10.0.0.0:8000/x",
        "https://10.0.0.3:8003/x",
        "https://10.0.0.4:8004/x",
    ]
    assert [each.priority for each in found] == [1, 1, 1, 2, 2]
    # 3.0 times the weight, divided by the mean weight 40 / 3.
    weights = [round(each.replica.weight, 3) for each in found]
    assert weights == [0.03, 2.25, 6.75, 3.0, 3.0]


def test_equal_weights_that_change_together_change_nothing() -> None:
    """CoreDNS divides 100 by the number of replicas."""
    for weight in (100, 50, 33):
        asked, known = srv(Service(0, weight, 8000, "a"), Service(0, weight, 8000, "b"))
        found = found_by(asked, known, services_of(asked, known, 100))
        assert [each.replica.weight for each in found] == [3.0, 3.0]


def test_a_target_with_two_families_is_one_engine() -> None:
    asked, known = srv(Service(0, 1, 8000, "a"))
    services = services_of(asked, known, 100)
    assert target_questions(services) == [Question("a", "A"), Question("a", "AAAA")]
    known.answered(Question("a", "AAAA"), Reply(1.0, ("::1",)), 0.0)
    assert urls(asked, known) == ["https://10.0.0.0:8000/x"]
    known.answered(Question("a", "A"), Reply(1.0), 0.0)
    assert urls(asked, known) == ["https://[::1]:8000/x"]


def test_unusable_srv_records_and_too_many() -> None:
    asked, known = srv(
        Service(0, 1, 8000, ""), Service(0, 1, 0, "a"), *(Service(0, 1, 9, f"b{n}") for n in "312")
    )
    found = services_of(asked, known, 2)
    assert [service.target for service in found] == ["b1", "b2"]
