"""Scripts: equal for equal seeds, of the requested size and rate, with the intended sharing."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import msgspec
import pytest

from bench.fleet import engines, workloads
from bench.fleet.script import Conversation, Script, Turn, message_tokens

QUICK = workloads.Size.quick()


@pytest.mark.parametrize("name", workloads.WORKLOADS)
def test_a_seed_makes_one_script(name: str) -> None:
    make = workloads.WORKLOADS[name]
    script = make(40.0, 7, QUICK)
    assert script == make(40.0, 7, QUICK)
    assert script != make(40.0, 8, QUICK)
    assert msgspec.convert(msgspec.to_builtins(script), Script) == script
    starts = [conversation.at for conversation in script.conversations]
    assert starts == sorted(starts) and starts[0] > 0
    assert starts[-1] < script.until
    assert 0 < script.measure_from < script.until


def test_every_customer_asks_once_before_measuring_and_each_user_after() -> None:
    size = workloads.Size(groups=30, users=5)
    script = workloads.shared(40.0, 1, size)
    warm = Counter(c.system for c in script.conversations if c.at < script.measure_from)
    measured = Counter(c.system for c in script.conversations if c.at >= script.measure_from)
    assert len(warm) == 30 and set(warm.values()) == {1}
    assert measured.keys() == warm.keys() and set(measured.values()) == {5}
    prefixes = sorted(measured)
    assert all(not b.startswith(a[:16]) for a, b in pairwise(prefixes))
    assert {len(prefix) for prefix in prefixes} == {workloads.PREFIX_TOKENS * 4}


def test_every_conversation_fits_into_the_smallest_engine() -> None:
    limit = engines.Spec(groups=QUICK.groups).blocks * engines.BLOCK_TOKENS
    for name, make in workloads.WORKLOADS.items():
        longest = max(p + o for p, o in make(60.0, 3, workloads.Size()).sizes())
        assert longest < limit, name


def test_sizes_count_the_history_and_reuse_what_came_before() -> None:
    turns = (Turn("a" * 40, 5), Turn("b" * 80, 7))
    talk = Conversation(0.0, "s" * 400, turns)
    script = Script((talk, talk), 0.0, 1.0)
    first = message_tokens("s" * 400) + message_tokens("a" * 40) + 3
    second = first + 5 + message_tokens("b" * 80) + 3
    assert script.sizes() == [(first, 5), (second, 7)] * 2
    assert script.reusable() == [0, first + 5, message_tokens("s" * 400), first + 5]
