"""Engines whose gauges lag by one second and that do not report slots, like vLLM 0.32."""

from functools import partial

import pytest

from tests.admission.world import Spot, World, config

LAG_S = 1.0
OUTPUT = 50  # output tokens; at 20 ms each, one second
ENOUGH = {"normal": {"wait_s": 1e6}, "batch": {"wait_s": 1e6}}


def lagging(slots: int, count: int = 2) -> list[Spot]:
    return [
        Spot(
            f"{number}",
            slots=None,
            engine_slots=slots,
            lag_s=LAG_S,
            prefill_rate=100_000.0,
            together=True,
        )
        for number in range(count)
    ]


class Bench:
    """A closed loop of clients over engines; measures how busy the engines were."""

    def __init__(self, slots: int, clients: int, *, streamed: bool, number: float) -> None:
        self.spots = lagging(slots)
        self.world = World(self.spots, config(classes=ENOUGH))
        self.facts = {"tokens": 50, "output": OUTPUT, "streamed": streamed, "number": number}
        self.polled = dict.fromkeys(self.spots, 0)
        self.clients = clients
        self.came = 0
        self.world.on_polled = self._count
        self.world.poll_every(1.0)
        self.world.run(3.0)  # idle: no load is known yet
        self._refill()

    def _count(self, spot: Spot) -> None:
        self.polled[spot] += 1

    def _refill(self) -> None:
        """Each client sends its next request shortly after its answer."""
        while self.came - len(self.world.done) < self.clients:
            self.came += 1
            self.world.come(**self.facts)
        self.world.after(0.01, self._refill)


@pytest.mark.parametrize("slots", [4, 64])
@pytest.mark.parametrize("number", [2.0, 4.0], ids=["normal", "batch"])
@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])
def test_engines_are_kept_full_by_a_few_polls(slots: int, number: float, streamed: bool) -> None:
    """A router in front of engines costs no throughput and only a few polls."""
    seconds = 60.0
    bench = Bench(slots, 3 * 2 * slots, streamed=streamed, number=number)
    bench.world.run(seconds)
    each_s = 0.001 + 50 / 100_000.0 + OUTPUT * 0.02
    assert len(bench.world.done) >= 0.95 * seconds * 2 * slots / each_s
    regular = 1.0
    assert max(bench.polled.values()) / seconds + regular <= 3.0


@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])
def test_a_burst_at_cold_engines_is_spread_and_waits_here(streamed: bool) -> None:
    world = World(lagging(4), config(classes=ENOUGH))
    one, two = world.pool.spots
    world.poll_every(1.0)
    world.run(3.0)
    for _ in range(60):
        world.come(tokens=50, output=OUTPUT, streamed=streamed)
    assert max(one.inflight, two.inflight) <= 12, "8 are guessed to run, 3 may wait"
    sent = {one: 0, two: 0}

    def count(_: object, spot: Spot) -> None:
        sent[spot] += 1

    world.on_sent = count
    sent[one], sent[two] = one.inflight, two.inflight
    world.run(2.5)
    assert max(one.inflight, two.inflight) <= 4 + 3, "the polls have shown what they run"
    world.run(60.0)
    assert len(world.done) == 60
    assert max(sent.values()) <= 36


def test_load_of_other_clients_is_counted_and_expires() -> None:
    """Requests from other clients of an engine count while they run, in spite of the lag."""
    world = World(lagging(4), config(classes=ENOUGH))
    one, two = world.pool.spots
    world.poll_every(0.5)
    one.running = 4
    world.after(2.0, partial(_ends, world, one))
    world.run(1.9)
    assert (one.foreign_load, two.foreign_load) == (4, 0)
    world.run(3.0)
    assert one.foreign_load == 0


def _ends(world: World, spot: Spot) -> None:
    spot.running = 0
    world.gauged(spot)
