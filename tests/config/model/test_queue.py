"""The section `queue`: consistent defaults, and error texts that name the wrong setting."""

import pytest

from policies.queueing.contract import order_names
from router.config.load import parse
from router.config.model import Config, Queue
from router.core.errors import ConfigError
from tests.addons.needed import needs

REPLICA = "replicas: [http://gpu-1:8000]\n"


def problems_of(queue: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse(f"{REPLICA}queue: {queue}")
    return caught.value.problems


def test_the_default_is_good() -> None:
    assert parse(REPLICA).queue == Queue() == Config().queue


@needs("reservations", "preemption")
def test_everything_can_be_switched_on() -> None:
    on = "{reservations: {enabled: true}, preemption: {enabled: true}}"
    assert parse(f"{REPLICA}queue: {on}").queue.reservations.enabled


@pytest.mark.parametrize("name", order_names())
def test_every_order_can_be_asked_for(name: str) -> None:
    assert parse(f"{REPLICA}queue: {{policy: {name}}}").queue.policy == name


@pytest.mark.parametrize(
    ("queue", "path"),
    [
        ("{policy: fiar}", "queue.policy"),
        ("{policy: drr, options: {quantum: 0}}", "queue.options.quantum"),
        ("{policy: drr, options: {quanta: 5}}", "queue.options.quanta"),
        ("{order: sideways}", "queue.order"),
        ("{gates: {waiting: 0}}", "queue.gates.waiting"),
        ("{absent_s: 10}", "queue.absent_s"),
        ("{preemption: {gap: 0}}", "queue.preemption.gap"),
    ],
)
def test_what_is_wrong_is_named(queue: str, path: str) -> None:
    (problem,) = problems_of(queue)
    assert problem.startswith(f"{path}:"), problem


def test_a_misspelt_order_is_guessed() -> None:
    (problem,) = problems_of("{policy: fiar}")
    assert "did you mean fair?" in problem
