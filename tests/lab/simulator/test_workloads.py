"""Synthetic traffic: seeded, in order of arrival, with the right lengths and shared prefixes."""

from itertools import pairwise
from typing import Any

import pytest

from router.lab.simulator.traffic import Arrival, HasProgress
from router.lab.simulator.workloads import (
    Chat,
    Lengths,
    Mix,
    PowerUser,
    Shared,
    Stragglers,
    Synthetic,
    Unique,
)


def made(kind: type[Synthetic], **changes: Any) -> Any:
    return kind(**{"rate": 20.0, "duration_s": 50.0, **changes})


@pytest.mark.parametrize("kind", [Shared, Unique, Stragglers, PowerUser])
def test_the_rate_is_kept(kind: type[Synthetic]) -> None:
    count = len(list(made(kind, duration_s=200.0)))
    assert count == pytest.approx(4000, rel=0.06)  # four standard deviations


def test_shared_prefixes_are_shared_within_a_group_only() -> None:
    prefixes: dict[str, set[tuple[int, ...]]] = {}
    tails = []
    for arrival in made(Shared, groups=10):
        assert arrival.prompt_tokens == 7200
        prefixes.setdefault(arrival.tenant, set()).add(arrival.blocks[: 6000 // 128])
        tails += arrival.blocks[6000 // 128 :]
    assert len(prefixes) == 10
    assert all(len(found) == 1 for found in prefixes.values())
    assert len({found.pop() for found in prefixes.values()}) == 10
    assert len(set(tails)) == len(tails)


def test_stragglers_are_the_share_they_should_be() -> None:
    lengths = [a.prompt_tokens for a in made(Stragglers, rate=100.0, prompt=Lengths(100.0))]
    assert set(lengths) == {100, 1000}
    assert lengths.count(1000) / len(lengths) == pytest.approx(0.05, abs=0.013)


def test_a_power_user_begins_at_its_time_and_asks_about_one_document() -> None:
    burst = list(made(PowerUser, begins_s=30.0, duration_s=5.0))
    assert burst[0].at > 30.0
    assert burst[-1].at < 35.0
    assert {a.tenant for a in burst} == {"power user"}
    assert len({a.blocks[: 4000 // 128] for a in burst}) == 1


def conversations(chat: Chat) -> dict[str | None, list[Arrival]]:
    """Play the conversations to their end; every request is answered at once."""
    found: dict[str | None, list[Arrival]] = {}
    for arrival in chat:
        turn: Arrival | None = arrival
        while turn is not None:
            found.setdefault(turn.session, []).append(turn)
            turn = next(iter(chat.follow(turn, turn.at + 2.0)), None)
    return found


def test_a_conversation_goes_on_from_all_that_was_said() -> None:
    chat = made(Chat, duration_s=100.0)
    found = conversations(chat)
    numbers = [turn.number for turns in found.values() for turn in turns]
    assert len(set(numbers)) == len(numbers)
    system = {turns[0].blocks[:1] for turns in found.values() if turns[0].blocks}
    assert len(system) == 1
    for turns in found.values():
        for before, turn in pairwise(turns):
            said = before.prompt_tokens + before.output_tokens
            assert turn.prompt_tokens > said
            assert turn.at > before.at + 2.0
            known = before.blocks + before.answer_blocks
            assert len(known) == said // 128
            assert turn.blocks[: len(known)] == known
    total = sum(map(len, found.values()))
    assert total / len(found) == pytest.approx(chat.mean_turns, rel=0.2)
    assert total == pytest.approx(100.0 * 20.0, rel=0.25)


def test_a_mix_is_in_order_and_each_source_is_asked_for_its_own() -> None:
    chat, other = made(Chat, duration_s=30.0), made(Unique, duration_s=30.0)
    mix = Mix(other, chat)
    arrivals = list(mix)
    times = [arrival.at for arrival in arrivals]
    assert times == sorted(times)
    assert len(arrivals) == len(list(chat)) + len(list(other))
    assert len({arrival.number for arrival in arrivals}) == len(arrivals)
    turns = [a for a in arrivals if a.session is not None]
    following = [later for turn in turns for later in mix.follow(turn, turn.at + 1.0)]
    assert following
    assert not {a.number for a in following} & {a.number for a in arrivals}
    assert {a.session for a in following} <= {a.session for a in turns}
    for arrival in arrivals:
        if arrival.session is None:
            assert not list(mix.follow(arrival, arrival.at))
    assert mix.name == "unique + chat"
    with pytest.raises(ValueError, match="same block_tokens"):
        Mix(made(Unique), made(Unique, block_tokens=16))


def test_a_source_reports_its_progress() -> None:
    for source in (made(Unique), Mix(made(Unique), made(Chat))):
        assert isinstance(source, HasProgress)
        assert source.share() == 0.0
        shares = [source.share() for _ in source]
        assert shares == sorted(shares)
        assert 0.9 < shares[-1] <= 1.0


def test_what_makes_no_sense_is_refused() -> None:
    for wrong in ({"rate": 0.0}, {"duration_s": -1.0}, {"block_tokens": 0}):
        with pytest.raises(ValueError, match="above 0"):
            made(Unique, **wrong)
