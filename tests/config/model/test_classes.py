"""The section `classes`: defaults differ by class, and errors for old keys name the new keys."""

import pytest

from router.config.load import parse
from router.config.model import BatchClass, Classes, ClassTimeouts
from router.core.errors import ConfigError

REPLICA = "replicas: [http://gpu-1:8000]\n"
RESERVES = "queue: {reservations: {enabled: true}}\n"


def problems_of(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse(REPLICA + text)
    return caught.value.problems


def test_a_class_keeps_its_own_defaults_beside_what_is_given() -> None:
    text = "classes: {batch: {depth: 7, wait: 2h, timeouts: {whole: 1h}}}"
    classes = parse(REPLICA + text).classes
    timeouts = ClassTimeouts(whole_s=3600.0)
    assert classes == Classes(batch=BatchClass(depth=7, wait_s=7200.0, timeouts=timeouts))


def test_the_names_are_those_of_the_fields() -> None:
    assert tuple(Classes().by_name) == Classes.__struct_fields__
    for name, settings in Classes().by_name.items():
        assert settings is getattr(Classes(), name)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("classes: {urgent: {}}", "classes.urgent"),
        ("classes: {low: {wait: 600, starvation: 601}}", "classes.low.starvation"),
        ("classes: {low: {wait: 600, starvation: never}}", "classes.low.starvation"),
        ("classes: {high: {timeouts: {whole: 0s}}}", "classes.high.timeouts.whole"),
        ("classes: {high: {timeouts: {head: 1s}}}", "classes.high.timeouts.head"),
        ("classes: {high: {ttft_slo: 200ms}}", "classes.high.ttft_slo"),
        ("classes: {normal: {ttft_slo: 11s}}", "classes.low.ttft_slo"),
        ("classes: {batch: {tpot_slo: 199ms}}", "classes.batch.tpot_slo"),
        ("classes: {low: {tpot_slo: 0s}}", "classes.low.tpot_slo"),
        ("classes: {low: {late: never}}", "classes.low.late"),
        (RESERVES + "classes: {batch: {share: 0}}", "classes.batch.share"),
        (RESERVES + "classes: {batch: {share: 0.5}}", "classes"),
    ],
)
def test_what_is_wrong_is_named(text: str, path: str) -> None:
    (problem,) = problems_of(text)
    assert problem.startswith(f"{path}:"), problem


def test_the_default_slos_rise_from_class_to_class() -> None:
    classes = Classes().by_name.values()
    assert [one.ttft_slo_s for one in classes] == [0.25, 0.5, 2.0, 10.0, 600.0]
    assert [one.tpot_slo_s for one in classes] == [0.05, 0.05, 0.1, 0.2, 1.0]
    assert [one.weight for one in classes] == [16.0, 8.0, 4.0, 2.0, 1.0]


def test_an_slo_may_equal_that_of_a_more_urgent_class() -> None:
    found = parse(REPLICA + "classes: {normal: {ttft_slo: 500ms, tpot_slo: 50ms}}").classes
    assert (found.normal.ttft_slo_s, found.normal.tpot_slo_s) == (0.5, 0.05)


def test_shares_need_not_fit_where_nothing_is_reserved() -> None:
    parse(f"{REPLICA}classes: {{batch: {{share: 0.5}}}}")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("queue: {classes: {batch: {depth: 7}}}", "queue.classes: unknown key; it is now classes"),
        *(
            (
                f"classes: {{{name}: {{timeout: 10m}}}}",
                f"classes.{name}.timeout: unknown key; it is now classes.{name}.wait",
            )
            for name in Classes.__struct_fields__
        ),
    ],
)
def test_a_removed_key_names_its_successor(text: str, problem: str) -> None:
    assert problems_of(text) == [problem]
