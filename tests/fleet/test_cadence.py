"""The token rate of the running streams: measured while streams run, else unknown."""

import pytest

from router.fleet.cadence import Cadence


def test_it_is_the_time_of_all_streams_over_their_tokens() -> None:
    cadence = Cadence()
    cadence.begins(10.0)
    cadence.begins(10.0)
    cadence.events += 100
    assert cadence.look(11.0) == pytest.approx(0.02)


def test_it_follows_what_runs_and_forgets_what_ended() -> None:
    cadence = Cadence()
    cadence.begins(10.0)
    cadence.events += 5
    assert cadence.look(11.0) == pytest.approx(0.2)
    for second in range(12, 20):
        cadence.events += 50
        found = cadence.look(float(second))
    assert found == pytest.approx(0.02, rel=0.1)
    cadence.ends(20.0)
    assert cadence.look(20.5) is None
    assert cadence.look(30.0) is None


def test_events_without_a_token_are_taken_off() -> None:
    cadence = Cadence()
    cadence.begins(10.0, 3)
    cadence.events += 3 + 10
    assert cadence.look(11.0) == pytest.approx(0.1)


def test_looks_in_quick_succession_keep_the_last_figure() -> None:
    cadence = Cadence()
    cadence.begins(10.0)
    cadence.events += 50
    assert cadence.look(11.0) == pytest.approx(0.02)
    assert cadence.look(11.01) == pytest.approx(0.02)


def test_an_event_of_several_tokens_is_learned() -> None:
    cadence = Cadence()
    for _ in range(100):
        cadence.learn(400, 100)
    cadence.begins(10.0)
    cadence.events += 10
    assert cadence.look(11.0) == pytest.approx(1.0 / 40.0, rel=0.01)
    cadence.learn(5, 0)  # implausible values are ignored
    assert (cadence.look(12.0) or 0.0) > 0.0


def test_a_clock_that_stands_still_harms_nothing() -> None:
    cadence = Cadence()
    cadence.begins(10.0)
    cadence.ends(10.0)
    assert cadence.look(9.0) is None


def test_the_fewest_tokens_per_event() -> None:
    cadence = Cadence()
    assert cadence.least == 1.0
    cadence.learn(70, 8)  # too short
    assert cadence.least == 1.0
    cadence.learn(800, 100)
    assert cadence.least == 8.0
    cadence.learn(200, 100)
    assert cadence.least == 2.0  # it falls at once
    cadence.learn(800, 100)
    assert 2.0 < cadence.least < 3.0  # it rises slowly
    for _ in range(100):
        cadence.learn(800, 100)
    assert cadence.least == pytest.approx(8.0, rel=0.01)
