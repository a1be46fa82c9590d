from collections import Counter

from policies.contract import RequestView, make_policy
from tests.policies.helpers import fleet, picks


def view(session: str, *blocks: int) -> RequestView:
    return RequestView(session=session, blocks=blocks)


def test_a_session_stays_and_sessions_spread() -> None:
    policy, candidates = make_policy("session"), fleet(*[1.0] * 8)
    homes: Counter[str] = Counter()
    for number in range(400):
        (home,) = picks(policy, candidates, view(f"session {number}"))
        homes[home] += 1
    assert min(homes.values()) > 20
    assert max(homes.values()) < 100


def test_a_busy_replica_is_avoided_until_it_has_room() -> None:
    policy, candidates = make_policy("session"), fleet(*[1.0] * 8)
    (home,) = picks(policy, candidates, view("s"))
    busy = next(c for c in candidates if c.id == home)
    busy.load = 20
    (guest,) = picks(policy, candidates, view("s"))
    assert guest != home
    busy.load = 2
    assert picks(policy, candidates, view("s")) == {home}


def test_a_replica_that_goes_moves_its_own_sessions_only() -> None:
    policy, candidates = make_policy("session"), fleet(*[1.0] * 8)
    policy.on_fleet_change(frozenset("abcdefgh"))
    before = {n: picks(policy, candidates, view(f"session {n}")) for n in range(200)}
    policy.on_fleet_change(frozenset("abcdefg"))
    after = {n: picks(policy, candidates[:7], view(f"session {n}")) for n in range(200)}
    moved = {n for n in before if before[n] != after[n]}
    assert moved == {n for n in before if before[n] == {"h"}}
    assert moved
