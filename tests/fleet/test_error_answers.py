"""Tests `fleet/error_answers.py`: which error answers are compared, and when a replica is sick."""

import pytest

from router.fleet.error_answers import (
    BUSY_ANSWERS,
    BUSY_S,
    PATIENCE_MAX,
    ErrorAnswers,
    ErrorKind,
    kind_of,
)

ALWAYS = (ErrorKind.KEY, ErrorKind.MISSING, ErrorKind.FAILED)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        *((401, ErrorKind.KEY), (403, ErrorKind.KEY), (404, ErrorKind.MISSING)),
        *((400, ErrorKind.REJECTED), (422, ErrorKind.REJECTED), (500, ErrorKind.FAILED)),
        *((429, ErrorKind.BUSY), (503, ErrorKind.BUSY), (200, ErrorKind.FAILED)),
    ],
)
def test_kinds(status: int, kind: int) -> None:
    assert kind_of(status) == kind


@pytest.mark.parametrize("kind", ALWAYS)
def test_three_contradictions_in_a_row_are_enough(kind: int) -> None:
    errors = ErrorAnswers()
    found = []
    for body in range(1, 5):
        assert errors.came(kind)
        found.append(errors.contradicted(kind, body, 0.0))
    assert found == [False, False, True, True]


def test_one_client_with_one_body_is_not_enough() -> None:
    errors = ErrorAnswers()
    assert not any(errors.contradicted(ErrorKind.KEY, 7, 0.0) for _ in range(100))
    assert errors.contradicted(ErrorKind.KEY, 8, 0.0)


def test_a_refusal_of_the_routers_credential_needs_no_second_client() -> None:
    errors = ErrorAnswers()
    assert [errors.contradicted(ErrorKind.KEY, None, 0.0) for _ in range(3)] == [False, False, True]


def test_a_replica_that_mostly_works_is_not_sick() -> None:
    errors = ErrorAnswers()
    for body in range(100):
        errors.came(ErrorKind.FAILED)
        assert not errors.contradicted(ErrorKind.FAILED, body, 0.0)
        for _ in range(3):
            errors.worked()


def test_a_few_400s_are_not_compared_and_a_row_is() -> None:
    errors = ErrorAnswers()
    found = [errors.came(ErrorKind.REJECTED) for _ in range(4)]
    assert found == [False, False, True, True]
    # If one answer in ten is a 400, none is compared.
    errors = ErrorAnswers()
    for _ in range(50):
        assert not errors.came(ErrorKind.REJECTED)
        for _ in range(9):
            errors.worked()


@pytest.mark.parametrize("kind", [ErrorKind.KEY, ErrorKind.REJECTED])
def test_confirmed_errors_are_compared_less_often(kind: int) -> None:
    errors = ErrorAnswers()
    compared = 0
    for _ in range(1000):
        if errors.came(kind):
            compared += 1
            errors.confirmed(kind)
    assert compared <= 1000 / (PATIENCE_MAX + 1.0) + 5


def test_the_third_error_in_a_row_pauses() -> None:
    errors = ErrorAnswers()
    found = []
    for _ in range(4):
        errors.came(ErrorKind.KEY)
        found.append(errors.pauses(ErrorKind.KEY))
    assert found == [False, False, True, True]


def test_a_busy_replica_is_sick_only_after_a_while_without_success() -> None:
    errors = ErrorAnswers()
    for number in range(100):
        assert not errors.contradicted(ErrorKind.BUSY, number, BUSY_S * number / 100)
    errors.worked()
    for number in range(BUSY_ANSWERS - 1):
        assert not errors.contradicted(ErrorKind.BUSY, number, 10.0 * number)
    assert errors.contradicted(ErrorKind.BUSY, 99, 100.0)
