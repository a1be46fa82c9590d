from random import Random

from policies.contract import Candidate, Context, RequestView, make_policy
from policies.routing.gain import Gain
from policies.routing.replica_plan import NOBODY
from tests.policies.helpers import context, loaded, picks

NORMAL, HIGH, LOW = 2, 1, 3
SLOTS = 256


def asked(urgency: int, prompt_tokens: int = 500) -> RequestView:
    """A request with the shipped targets of its class."""
    worth, ttft_slo_s, tpot_slo_s = {
        HIGH: (8.0, 0.5, 0.05),
        NORMAL: (4.0, 2.0, 0.1),
        LOW: (2.0, 10.0, 0.2),
    }[urgency]
    return RequestView(
        stream=True,
        prompt_tokens=prompt_tokens,
        urgency=urgency,
        worth=worth,
        ttft_slo_s=ttft_slo_s,
        tpot_slo_s=tpot_slo_s,
        output_tokens=200,
        arrived=1000.0,
    )


def known(*loads: int) -> list[Candidate]:
    """Replicas that prefill 10,000 tokens/s, and whose step takes 20 ms and 0.5 ms a stream."""
    found = loaded(*loads)
    for one in found:
        one.slots = SLOTS
        speed = one.speed
        speed.serves_since = 1000.0  # the time of the tests' contexts
        speed.is_known = speed.is_pace_known = True
        speed.base_s, speed.token_s, speed.attention_s, speed.running_s = 0.02, 1e-4, 0.0, 0.0
        speed.step_s, speed.sequence_s, speed.context_s = 0.02, 5e-4, 0.0
    return found


def running(policy: Gain, candidate: Candidate, urgency: int, count: int) -> None:
    """`count` requests of a class run at the replica."""
    for _ in range(count):
        policy.on_dispatch(asked(urgency), candidate, context())
        candidate.inflight += 1
        candidate.load += 1


def gain(**options: float) -> Gain:
    made = make_policy("gain", options)
    assert isinstance(made, Gain)
    return made


def test_the_first_token_in_time_decides() -> None:
    candidates = known(1, 1)
    candidates[0].pending_tokens = 8_000  # 0.8 s; the target of class high is 0.5 s
    assert picks(gain(), candidates, asked(HIGH)) == {"b"}


def test_time_already_waited_counts() -> None:
    candidates = known(1, 1)
    candidates[0].pending_tokens, candidates[1].pending_tokens = 10_000, 0
    view = asked(NORMAL)
    assert picks(gain(), candidates, view) == {"a", "b"}  # both are in time
    view.arrived = 1000.0 - 1.5
    assert picks(gain(), candidates, view) == {"b"}


def test_a_long_low_request_takes_the_emptier_replica() -> None:
    candidates = known(6, 2)
    candidates[0].pending_tokens = 1_000
    assert picks(gain(), candidates, asked(LOW, 6_000)) == {"b"}


def test_streams_that_would_become_too_slow_count_as_a_loss() -> None:
    policy = gain()
    candidates = known(0, 0)
    running(policy, candidates[0], HIGH, 60)  # a step of 50 ms: the target of class high
    running(policy, candidates[1], LOW, 100)  # 70 ms; these streams have 200 ms
    assert picks(policy, candidates, asked(NORMAL)) == {"b"}


def test_a_replica_kept_for_high_takes_nothing_that_would_make_it_too_slow() -> None:
    policy = gain()
    first, second = known(0, 0)
    running(policy, first, HIGH, 40)
    running(policy, second, LOW, 40)
    running(policy, second, NORMAL, 1)
    assert policy.closed_to(first) & (1 << LOW | 1 << NORMAL) == 1 << LOW | 1 << NORMAL
    assert not policy.closed_to(second) & (1 << LOW | 1 << NORMAL)


def test_a_class_waits_for_the_replica_where_it_is_in_time() -> None:
    policy = gain()
    first, second = known(0, 0)
    running(policy, first, HIGH, 5)
    running(policy, second, LOW, 100)  # a step of 70 ms, and high has 50 ms
    assert policy.closed_to(second) & (1 << HIGH)
    assert not policy.closed_to(first) & (1 << HIGH)


def test_a_replica_is_judged_as_it_would_be_after_a_request_has_left() -> None:
    policy = gain()
    (first,) = known(0)
    running(policy, first, HIGH, 5)
    while not policy.closed_to(first) & (1 << LOW):
        running(policy, first, LOW, 1)  # until the replica has no room beside class high
    assert not policy.closed_to(first, LOW) & (1 << LOW)
    assert policy.closed_to(first, HIGH) & (1 << LOW)  # its room stays kept for class high
    assert policy.closed_to(first) == policy.closed_to(first, NOBODY)


def test_a_plan_change_is_counted_if_it_changes_what_other_replicas_take() -> None:
    policy = gain()
    first, second = known(0, 0)
    running(policy, first, HIGH, 5)
    running(policy, second, LOW, 100)
    assert policy.closed_to(second) & (1 << HIGH)
    counts = []
    for _ in range(4):  # one comes as another one goes
        policy.on_finish(asked(LOW), second, 200, context())
        policy.on_dispatch(asked(LOW), second, context())
        policy.closed_to(second)
        counts.append(policy.plan_changes())
    before = counts[-1]
    assert counts[1] == before > 0
    running(policy, first, HIGH, 60)  # class high is in time nowhere any more
    policy.closed_to(first)
    assert policy.plan_changes() > before
    assert not policy.closed_to(second) & (1 << HIGH)


def test_a_replica_that_is_down_keeps_nothing_away_from_others() -> None:
    policy = gain()
    first, second = known(0, 0)
    running(policy, first, HIGH, 5)
    running(policy, second, LOW, 100)
    assert policy.closed_to(second) & (1 << HIGH)
    first.is_fit = False
    running(policy, second, LOW, 1)  # a change, so that the plan is made anew
    assert not policy.closed_to(second) & (1 << HIGH)


def test_a_new_replica_with_an_old_id_begins_empty() -> None:
    policy = gain()
    (old,), (new,) = known(0), known(0)
    running(policy, old, HIGH, 60)
    assert policy.closed_to(new) == 0
    running(policy, new, HIGH, 2)
    policy.on_finish(asked(HIGH), old, 10, context())
    plan = policy._plans[None].of(new)
    assert plan is not None and plan.total == 2


def test_running_requests_stay_counted_when_the_models_of_their_replica_change() -> None:
    """Before the fix, the counts began at 0 again, and each earlier request was subtracted."""
    policy = gain()
    first, second = known(0, 0)
    running(policy, first, HIGH, 5)
    running(policy, second, LOW, 100)
    before = policy.closed_to(first), policy.closed_to(second)
    assert before[1] & (1 << HIGH)
    for one in (first, second):
        one.models = frozenset({"m", "adapter"})
    assert (policy.closed_to(first), policy.closed_to(second)) == before
    first.models = frozenset({"m"})
    running(policy, first, HIGH, 2)
    policy.on_finish(asked(HIGH), first, 10, context())
    plan = policy._plans[first.models]
    assert [one.total for one in plan.at.values()] == [6]
    assert plan.tpot_slo_s[LOW] == asked(LOW).tpot_slo_s


def test_a_replica_is_part_of_one_plan() -> None:
    policy = gain()
    first, second = known(0, 0)
    for number in range(20):
        first.models = frozenset({"m", f"adapter {number}"})
        running(policy, first, HIGH, 1)
        running(policy, second, HIGH, 1)
    assert {*policy._plans} == {first.models, None}
    (other,) = known(0)  # it replaces the first replica
    other.models = frozenset({"n"})
    running(policy, other, HIGH, 1)
    assert {*policy._plans} == {other.models, None}
    policy.on_fleet_change(frozenset({"b"}))
    assert {*policy._plans} == {None}


def test_the_end_of_a_request_that_was_sent_under_another_policy_object_does_not_count() -> None:
    """A reload creates new policies, which get the ends of the requests that run."""
    (candidate,) = known(0)
    old, new = asked(HIGH), asked(HIGH)
    old.arrived, new.arrived = 1000.0, 1002.0
    policy = gain()
    policy.on_finish(old, candidate, 10, Context(Random(0), 1001.0))
    for view in (new, new, new, old):
        policy.on_dispatch(view, candidate, Context(Random(0), 1002.0))
    one = policy._plans[None].of(candidate)
    assert one is not None and one.total == 3
    for _ in range(2):
        policy.on_finish(old, candidate, 10, Context(Random(0), 1003.0))
    assert one.total == 3
    policy.on_finish(new, candidate, 10, Context(Random(0), 1003.0))
    assert one.total == 2


def test_an_unknown_pace_keeps_nothing_away() -> None:
    policy = gain()
    (candidate,) = known(0)
    running(policy, candidate, HIGH, 100)
    running(policy, candidate, LOW, 1)
    assert policy.closed_to(candidate)
    candidate.speed.is_pace_known = False
    assert policy.closed_to(candidate) == 0


def test_nothing_is_kept_away_without_the_option() -> None:
    policy = gain(holds=False)
    (candidate,) = known(0)
    running(policy, candidate, HIGH, 59)
    running(policy, candidate, LOW, 2)
    assert policy.closed_to(candidate) == 0


def test_the_most_urgent_class_that_fits_somewhere_is_never_kept_away_everywhere() -> None:
    rng = Random(3)
    for _ in range(200):
        policy = gain()
        candidates = known(0, 0, 0)
        for one in candidates:
            for urgency in (HIGH, NORMAL, LOW):
                running(policy, one, urgency, rng.randint(0, 30))
        plan = policy._plans[None]
        room = max(plan.room(one, HIGH, plan.slower(one)) - one.load for one in candidates)
        if room >= 1.0:
            assert not all(policy.closed_to(one) & (1 << HIGH) for one in candidates)


def test_ended_requests_do_not_count() -> None:
    policy = gain()
    (candidate,) = known(0)
    view = asked(HIGH)
    for _ in range(70):
        policy.on_dispatch(view, candidate, context())
    for _ in range(70):
        policy.on_finish(view, candidate, 10, Context(Random(1)))
    candidate.load = 70
    running(policy, candidate, LOW, 1)
    assert policy.closed_to(candidate) == 0


def test_requests_that_do_not_decode_have_no_place_in_the_plan() -> None:
    policy = gain()
    first, second = known(0, 0)
    running(policy, first, HIGH, 5)
    running(policy, second, LOW, 100)
    before = policy.closed_to(first), policy.closed_to(second)
    view = asked(HIGH, 8000)
    view.decodes = False
    for _ in range(50):
        policy.on_dispatch(view, first, context())
    plan = policy._plans[None]
    one = plan.of(first)
    assert one is not None and one.total == 5
    assert plan.prompt_tokens < 1000
    assert (policy.closed_to(first), policy.closed_to(second)) == before
    policy.on_finish(view, first, None, context())
    assert one.total == 5


def test_a_request_that_does_not_decode_makes_no_batch_larger() -> None:
    policy = gain(near=0.1, holds=False)
    candidates = known(0, 0)
    for one in candidates:
        one.speed.sequence_s = 0.02
    running(policy, candidates[0], HIGH, 1)  # a step of 40 ms; with two streams, 60 ms is too long
    running(policy, candidates[1], LOW, 1)
    view = asked(NORMAL, 1)
    assert picks(policy, candidates, view) == {"b"}
    view.decodes = False
    assert picks(policy, candidates, view) == {"a", "b"}
