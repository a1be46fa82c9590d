"""Tables as texts: numbers, marks, groups, order."""

from math import inf
from typing import NamedTuple

import pytest
from hypothesis import given, strategies as st

from router.core.text.table import Column, build, markdown, number, plain
from router.lab.replay.report.columns import of_runs
from tests.lab.replay.report.made import outcome, run


class Row(NamedTuple):
    name: str
    fleet: int
    wait: float | None


COLUMNS: list[Column[Row]] = [
    Column("name", "name", text=lambda row: row.name),
    Column("fleet", "fleet", value=lambda row: row.fleet),
    Column("wait", "wait", "ms", lambda row: row.wait, "low"),
]
ROWS = [Row("a", 8, 20.0), Row("b", 8, 10.0), Row("a", 9, 5.0), Row("b", 9, None)]


def test_plain() -> None:
    table = build(ROWS, COLUMNS, group=lambda row: row.fleet)
    assert plain(table) == (
        "name fleet  wait\n"
        "              ms\n"
        "---- ------ -----\n"
        "a        8  20.0\n"
        "b        8  10.0*\n"
        "\n"
        "a        9  5.00*\n"
        "b        9     –\n"
    )


def test_markdown() -> None:
    table = build(ROWS[:2], COLUMNS, group=lambda row: row.fleet)
    assert markdown(table) == (
        "| name | fleet | wait (ms) |\n"
        "| --- | ---: | ---: |\n"
        "| a | 8 | 20.0 |\n"
        "| b | 8 | **10.0** |\n"
    )


def test_markdown_takes_any_name_as_it_is() -> None:
    table = build([Row("a|b\n<i>*x*</i>", 1, 1.0)], COLUMNS)
    assert markdown(table).splitlines()[2] == r"| a\|b \<i\>\*x\*\</i\> | 1 | 1.00 |"


def test_sorted_best_first_and_without_figure_last() -> None:
    assert [row[0].text for row in build(ROWS, COLUMNS, sort="wait").rows] == ["a", "b", "a", "b"]
    assert [row[2].text for row in build(ROWS, COLUMNS, sort="wait").rows] == [
        *("5.00", "10.0", "20.0", "–"),
    ]
    high = [*COLUMNS[:2], Column("wait", "wait", "ms", lambda row: row.wait, "high")]
    assert build(ROWS, high, sort="wait").rows[0][2].text == "20.0"


def test_an_unknown_column_to_sort_by_is_an_error() -> None:
    with pytest.raises(KeyError):
        build(ROWS, COLUMNS, sort="nope")


def test_what_reads_the_same_is_equally_good_and_all_equal_is_no_best() -> None:
    def best(*waits: float) -> list[bool]:
        table = build([Row("x", 1, wait) for wait in waits], COLUMNS)
        return [row[2].is_best for row in table.rows]

    assert best(100.1, 100.2, 300.0) == [True, True, False]
    assert best(100.1, 100.2) == [False, False]
    assert best(5.0) == [False]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (inf, "∞"),
        (0, "0"),
        (0.0, "0"),
        (7, "7"),
        (12345, "12,345"),
        (0.01234, "0.012"),
        (0.1234, "0.12"),
        (1.0, "1.00"),
        (9.996, "10.0"),
        (99.96, "100"),
        (12345.6, "12,346"),
    ],
)
def test_numbers(value: float | None, text: str) -> None:
    assert number(value) == text


@given(st.lists(st.floats(0.0, 1e12), min_size=1, max_size=8))
def test_columns_of_plain_text_stay_in_line(waits: list[float]) -> None:
    table = build([Row("x" * (n + 1), n, wait) for n, wait in enumerate(waits)], COLUMNS)
    head, _, rule, *body = plain(table).splitlines()
    assert max(map(len, body)) <= len(rule)
    assert all(line.rstrip("*").rfind(" ") < len(head) for line in body)


def test_second_copies_have_columns_where_there_are_any() -> None:
    hedged = outcome(0.0, prompt=100, cached=20, attempts=2)
    hedged.hedged, hedged.hedge_won, hedged.wasted_tokens = True, True, 40
    runs = [run("with", [hedged, outcome(1.0, prompt=100, cached=20)]), run("without", [outcome()])]
    columns = of_runs(runs)
    cells = [[cell.text for cell in row] for row in build(runs, columns).rows]
    keys = [column.key for column in columns]
    assert keys[-3:] == ["hedged", "hedges_won", "extra"]
    assert [row[-3:] for row in cells] == [["1", "1", "25.0"], ["0", "0", "0"]]
    document = runs[0].summary.document()
    assert [document[key] for key in ("hedged", "hedges_won", "wasted_tokens")] == [1, 1, 40]


def test_columns_that_only_some_runs_need() -> None:
    runs = [run(routers=4), run(routers=4, shared=True)]
    columns = of_runs(runs)
    table = build(runs, columns)
    place = [column.key for column in columns].index("routers")
    assert [row[place].text for row in table.rows] == ["4 separate", "4 shared"]
