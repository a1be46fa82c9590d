"""Which bodies are refused because they were in flight when engines died."""

import pytest

from router.fleet.suspects import MOST, WINDOW_S, Suspects, digest_of

HOLD_S = 300.0


@pytest.fixture
def suspects() -> Suspects:
    made = Suspects()
    made.adopt(HOLD_S)
    return made


def dies(suspects: Suspects, process: str, *bodies: bytes, at: float) -> int:
    for body in bodies:
        suspects.lost(process, body, at)
    return suspects.died(process, at + 0.01)


def test_two_deaths_make_a_body_suspect_for_a_time(suspects: Suspects) -> None:
    assert suspects.is_empty
    assert dies(suspects, "a", b"x", b"y", at=0.0) == 0
    assert not suspects.refuses(b"x", 1.0)
    assert dies(suspects, "b", b"x", b"z", at=10.0) == 1
    assert [suspects.refuses(body, 11.0) for body in (b"x", b"y", b"z")] == [True, False, False]
    assert suspects.held == 1
    assert not suspects.refuses(b"x", 11.0 + HOLD_S)
    assert suspects.held == 0


def test_a_loss_without_a_death_shows_nothing(suspects: Suspects) -> None:
    for process in ("a", "b", "c"):
        suspects.lost(process, b"x", 0.0)
    assert not suspects.refuses(b"x", 0.1)
    assert suspects.died("a", WINDOW_S + 1.0) == 0
    assert suspects.died("b", WINDOW_S + 1.0) == 0
    assert suspects.is_empty


def test_one_death_counts_once(suspects: Suspects) -> None:
    """Two clients sent the same body, and the second loss was noticed later."""
    dies(suspects, "a", b"x", at=0.0)
    assert dies(suspects, "a", b"x", at=0.5) == 0
    assert dies(suspects, "a", b"x", at=20.0) == 1  # The restarted process died again.


def test_an_old_death_is_forgotten(suspects: Suspects) -> None:
    dies(suspects, "a", b"x", at=0.0)
    assert dies(suspects, "b", b"x", at=HOLD_S + 1.0) == 0
    assert dies(suspects, "c", b"x", at=HOLD_S + 2.0) == 1
    assert not suspects.refuses(b"y", 3 * HOLD_S)
    assert suspects.is_empty


def test_an_answer_clears_a_body(suspects: Suspects) -> None:
    dies(suspects, "a", b"x", at=0.0)
    suspects.answered(b"x")
    assert suspects.is_empty
    assert dies(suspects, "b", b"x", at=1.0) == 0


def test_a_body_may_become_suspect_until_its_losses_are_old(suspects: Suspects) -> None:
    suspects.lost("a", b"x", 0.0)
    assert not suspects.may_become(b"x", 0.1)
    suspects.lost("b", b"x", 0.1)
    assert suspects.may_become(b"x", 0.2)
    assert not suspects.may_become(b"x", 5.0)
    suspects.died("a", 5.0)
    suspects.lost("b", b"x", 5.0)
    assert suspects.may_become(b"x", 5.1)


def test_its_memory_is_bounded(suspects: Suspects) -> None:
    for round_ in range(2):
        for process in range(300):
            dies(suspects, f"{round_}-{process}", *[b"%d" % n for n in range(50)], at=float(round_))
    bodies = [b"%d" % n for n in range(10 * MOST)]
    for process in ("a", "b"):
        dies(suspects, process, *bodies, at=3.0)
    for process in range(10_000):
        suspects.lost(f"{process}", b"x", 4.0)
    assert suspects.held <= MOST
    assert len(suspects._deaths) <= MOST
    assert len(suspects._lost) <= 64
    assert not suspects.refuses(bodies[0], 3.1)
    assert suspects.refuses(bodies[-1], 3.1)


def test_without_a_time_nothing_is_remembered(suspects: Suspects) -> None:
    dies(suspects, "a", b"x", at=0.0)
    dies(suspects, "b", b"x", at=0.0)
    suspects.adopt(0.0)
    assert suspects.is_empty
    assert not suspects.refuses(b"x", 0.1)
    suspects.lost("a", b"x", 1.0)
    assert not suspects.died("a", 1.0)


@pytest.mark.parametrize("size", [0, 10, 1 << 20, (1 << 20) + 1, 3_000_000])
def test_the_hash_does_not_depend_on_the_pieces(size: int) -> None:
    body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    whole = digest_of(b"/p", [body])
    for step in (700, 65_536, 1_000_001):
        assert digest_of(b"/p", [body[n : n + step] for n in range(0, size, step)]) == whole
    assert digest_of(b"/q", [body]) != whole
    assert digest_of(b"/p", [body + b"x"]) != whole
    assert digest_of(b"/p", [b"y" + body[1:]]) != whole or not size
