"""Requests that wait for a first probe: tried again after each probe; no wait exceeds 2 s."""

from collections.abc import Callable

import pytest

from router.dispatch.driver import first_probes
from router.dispatch.driver.first_probes import WAIT_S, FirstProbes
from tests.dispatch.driven import Driven, World


class Waiting:
    """Requests that wait for the first probe of `new`, and what they were called with."""

    def __init__(self) -> None:
        self.world = World(replicas=1)
        self.new = self.world.joins("new", is_tried=False)
        self.probes = FirstProbes(self.world.fleet, self.world.time)
        self.called: list[str] = []

    def request(self, name: str) -> Driven:
        return Driven(self.world, name)

    def hold(self, request: Driven, retry: Callable[[], None] | None = None) -> bool:
        name = request.name

        def noted() -> None:
            self.called.append(f"retry {name}")

        return self.probes.hold(
            request, noted if retry is None else retry, lambda: self.called.append(f"late {name}")
        )

    def decided(self) -> None:
        """The first probe has ended; the current event-loop turn has not."""
        self.world.fleet.probes.probed(self.new, True)

    def passes(self, seconds: float) -> None:
        self.world.time.passes(seconds)


def test_several_probes_in_one_turn_are_one_retry_and_a_later_one_is_another() -> None:
    w = Waiting()
    later = w.world.joins("later", is_tried=False)
    w.world.joins("last", is_tried=False)
    w.hold(w.request("a"))
    w.decided()
    w.world.fleet.remove("last")
    w.world.time.turn()
    assert w.called == ["retry a"]
    w.world.fleet.probes.probed(later, True)
    w.world.time.turn()
    assert w.called == ["retry a", "retry a"]


def test_to_be_held_again_does_not_prolong_the_wait() -> None:
    w = Waiting()
    w.world.joins("later", is_tried=False)
    a = w.request("a")

    def again() -> None:
        w.called.append("again")
        assert w.hold(a)

    w.hold(a, again)
    w.passes(WAIT_S / 2)
    w.decided()
    w.passes(WAIT_S / 4)
    assert w.called == ["again"]
    w.passes(WAIT_S / 4)
    assert w.called == ["again", "late a"]


def test_a_forgotten_request_is_neither_tried_nor_late() -> None:
    w = Waiting()
    a, b = w.request("a"), w.request("b")
    w.hold(a)
    w.hold(b)
    w.probes.forget(a)
    w.probes.forget(a)
    w.decided()
    w.world.time.turn()
    assert w.called == ["retry b"]
    w.probes.forget(b)
    w.passes(2 * WAIT_S)
    assert w.called == ["retry b"]
    assert len(w.probes) == 0


def test_one_retry_may_end_another_request() -> None:
    w = Waiting()
    a, b = w.request("a"), w.request("b")
    w.hold(a, lambda: w.probes.forget(b))
    w.hold(b)
    w.decided()
    w.world.time.turn()
    assert w.called == []


def test_a_defect_of_one_request_does_not_stop_the_others() -> None:
    w = Waiting()
    crashes: list[str] = []

    class Reporting(Driven):
        def crashed(self, err: Exception) -> None:
            crashes.append(f"{self.name}: {err}")

    def fails() -> None:
        raise ValueError("a defect")

    a, b = w.request("a"), w.request("b")
    a.__class__ = Reporting
    w.hold(a, fails)
    w.hold(b)
    w.decided()
    w.world.time.turn()
    assert crashes == ["a: a defect"]
    assert w.called == ["retry b"]


def test_waiting_requests_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    w = Waiting()
    requests = [w.request(str(n)) for n in range(3)]
    for _ in range(first_probes._REQUESTS - 2):
        w.probes._waiting[w.request("x")] = first_probes._Wait(w.world.time.alarm(lambda: None))
    assert w.hold(requests[0]) and w.hold(requests[1])
    assert not w.hold(requests[2])
    assert w.hold(requests[0])  # a request that waits already
    assert len(w.probes) == first_probes._REQUESTS
