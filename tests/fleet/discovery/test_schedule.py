"""TTLs and back-off."""

from random import Random

from router.config.model import Discovery
from router.fleet.discovery.source import lifetime_s, retry_after_s

RULES = Discovery(ttl_min_s=2.0, ttl_max_s=100.0, retry_max_s=30.0)


def test_a_ttl_is_used_within_bounds() -> None:
    assert [lifetime_s(ttl, RULES) for ttl in (0.0, 2.0, 50.0, 3600.0)] == [2.0, 2.0, 50.0, 100.0]


def test_the_pause_doubles_up_to_a_maximum() -> None:
    rng = Random(1)
    for failures, pause in ((1, 2.0), (2, 4.0), (4, 16.0), (5, 30.0), (10_000, 30.0)):
        drawn = [retry_after_s(failures, RULES, rng) for _ in range(100)]
        assert 0.8 * pause <= min(drawn) < 0.9 * pause
        assert 1.1 * pause < max(drawn) <= 1.2 * pause
