"""The goals of the bench: ours against the best baseline of each load."""

from bench.gain.found import Row, judge
from bench.gain.world import BASELINES, OURS, Contestant, Part, Score, Slo

SLOS = {"high": Slo(1.0, 0.1, 8.0), "normal": Slo(2.0, 0.1, 4.0), "low": Slo(9.0, 0.2, 2.0)}


def row(load: int, contestant: Contestant, share: float, runs: int = 10) -> Row:
    """Every class has this share of its tokens, and of its requests, in time."""
    scores = []
    for number in range(runs):
        score = Score(SLOS)
        for name in SLOS:
            on_time = int(1000 * share) + number
            score.by_class[name] = Part(1000, on_time, on_time, 1000, on_time)
        scores.append(score)
    return Row(load, contestant, scores)


def words(load: int, ours: float, theirs: float, runs: int = 10) -> dict[str, str]:
    rows = [row(load, OURS, ours, runs), row(load, BASELINES[0], theirs, runs)]
    return {verdict.name.partition(":")[0]: verdict.words() for verdict in judge(rows)}


def test_ours_must_lead_in_overload() -> None:
    assert words(150, 0.9, 0.5)["TDG at 150 %"].startswith("met")
    assert words(150, 0.5, 0.9)["TDG at 150 %"].startswith("missed")
    assert words(150, 0.5, 0.505)["TDG at 150 %"].startswith("missed")


def test_below_overload_ours_may_be_a_little_worse() -> None:
    assert words(50, 0.5, 0.505)["TDG at 50 %"].startswith("met")
    assert words(50, 0.5, 0.6)["TDG at 50 %"].startswith("missed")
