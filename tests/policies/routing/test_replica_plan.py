"""Which replicas are kept for which class."""

from policies.contract import Candidate
from policies.facts import RequestView
from policies.routing.replica_plan import NOBODY, ReplicaPlan
from tests.policies.routing.test_gain import HIGH, LOW, NORMAL, asked, known


def run(plan: ReplicaPlan, candidate: Candidate, urgency: int, count: int) -> None:
    view: RequestView = asked(urgency)
    for _ in range(count):
        plan.add(candidate, view, 500.0, 500.0)
        candidate.load += 1
        candidate.inflight += 1


def kept(plan: ReplicaPlan, *candidates: Candidate) -> list[int]:
    plan.renew()
    return [plan.at[one.id].kept for one in candidates]


def room(plan: ReplicaPlan, candidate: Candidate, urgency: int) -> float:
    return plan.room(candidate, urgency, plan.slower(candidate))


def test_the_replica_with_most_of_a_class_is_kept_for_it() -> None:
    plan = ReplicaPlan(0.2)
    a, b = known(0, 0)
    run(plan, a, HIGH, 5)
    run(plan, a, LOW, 2)
    run(plan, b, HIGH, 20)
    run(plan, b, LOW, 30)
    assert kept(plan, a, b)[1] == HIGH


def test_a_class_gets_as_many_replicas_as_it_needs() -> None:
    plan = ReplicaPlan(0.2)
    fleet = known(0, 0, 0, 0)
    for one in fleet[:2]:
        run(plan, one, HIGH, 28)
    for one in fleet[2:]:
        run(plan, one, LOW, 200)
    assert kept(plan, *fleet) == [HIGH, HIGH, LOW, LOW]


def test_without_slos_nothing_is_kept() -> None:
    plan = ReplicaPlan(0.2)
    (a,) = known(0)
    plan.add(a, RequestView(), 500.0, 500.0)
    assert kept(plan, a) == [NOBODY]


def test_a_replica_that_left_is_forgotten() -> None:
    plan = ReplicaPlan(0.2)
    a, b = known(0, 0)
    run(plan, a, HIGH, 1)
    run(plan, b, HIGH, 1)
    plan.drop("a")
    assert list(plan.at) == ["b"]
    plan.remove(a, HIGH, 10)
    plan.remove(b, HIGH, None)
    assert plan.at["b"].total == 0


def test_a_client_that_states_another_slo_does_not_change_that_of_its_class() -> None:
    plan = ReplicaPlan(0.2)
    (a,) = known(0)
    run(plan, a, NORMAL, 20)
    loose = asked(NORMAL)
    loose.tpot_slo_s = 1e6
    plan.add(a, loose, 500.0, 500.0)
    assert 0.1 <= plan.tpot_slo_s[NORMAL] < 0.11
    for _ in range(1000):
        plan.add(a, loose, 500.0, 500.0)
    assert plan.tpot_slo_s[NORMAL] > 1000.0  # it is the usual one now


def test_a_huge_request_moves_the_means_little() -> None:
    plan = ReplicaPlan(0.2)
    (a,) = known(0)
    run(plan, a, NORMAL, 50)
    before = room(plan, a, NORMAL)
    plan.add(a, asked(NORMAL), 2e6, 2e6)
    plan.remove(a, NORMAL, 10**14)
    assert room(plan, a, NORMAL) > 0.9 * before


def test_the_attention_of_long_prompts_leaves_less_room() -> None:
    rooms = []
    for attention_s in (0.0, 4e-9):
        plan = ReplicaPlan(0.2)
        (a,) = known(0)
        a.speed.attention_s = attention_s
        for _ in range(500):
            plan.add(a, asked(NORMAL), 40_000.0, 40_000.0)
        plan.renew()
        rooms.append(room(plan, a, NORMAL))
    token_s = 1e-4 * 40_000.0
    attention_s = 4e-9 * 0.5 * 40_000.0**2
    assert 1.0 < rooms[0] / rooms[1] < 1.0 + attention_s / token_s
