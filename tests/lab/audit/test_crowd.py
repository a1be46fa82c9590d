"""The concurrent requests of one party."""

from __future__ import annotations

from router.lab.audit.parties import Crowd


def test_the_peak_has_its_first_time_and_running_times_add_up() -> None:
    crowd = Crowd()
    for now in (1.0, 2.0, 3.0):
        crowd.comes(now)
    crowd.goes(5.0)
    crowd.comes(9.0)
    crowd.goes(0.5)
    assert (crowd.now, crowd.peak, crowd.peak_at, crowd.seconds) == (2, 3, 3.0, 5.5)
