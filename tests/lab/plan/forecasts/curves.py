"""Series with a known future."""

from math import pi, sin
from random import Random

WINDOW_S = 3600.0  # 24 windows a day
DAY = 24


def daily(windows: int, noise: float = 0.0, growth: float = 0.0, seed: int = 1) -> list[float]:
    """A daily sine around 100 with an amplitude of 60."""
    rng = Random(seed)
    return [
        (100.0 + 60.0 * sin(2.0 * pi * n / DAY) + growth * n) * (1.0 + rng.gauss(0.0, noise))
        for n in range(windows)
    ]


def unpredictable(windows: int, seed: int = 1) -> list[float]:
    """Rare spikes of random sizes: no method can forecast them."""
    rng = Random(seed)
    return [rng.uniform(50.0, 2000.0) if rng.random() < 0.1 else 0.5 for _ in range(windows)]
