"""Azure's rows: times in every format of the traces of both years."""

from __future__ import annotations

from pathlib import Path

import pytest

from router.lab.traces import open_trace
from tests.lab.traces.helpers import AZURE, DATA, read

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


def test_the_sample_of_2023() -> None:
    raw = [line.split(",") for line in AZURE.read_text().splitlines()[1:]]
    found = list(open_trace(AZURE))
    assert [(a.prompt_tokens, a.output_tokens) for a in found] == [
        (int(prompt), int(output)) for _, prompt, output in raw
    ]
    # 18:15:46.6805900, 18:15:50.9951690, 18:15:51.2224670
    assert [a.at for a in found[:3]] == [0.0, 4.314579, 4.541877]
    assert all(a.blocks == () for a in found)


def test_the_spellings_of_2024() -> None:
    found = list(open_trace(DATA / "azure2024.csv"))
    assert [round(a.at + 0.00993, 6) for a in found] == [0.00993, 0.017335, 1.0, 1.5, 2.0, 2.25]
    assert [a.output_tokens for a in found] == [5, 6, 15, 0, 8, 300]


def test_a_week_of_times_keeps_its_microseconds(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        HEADER + "2024-05-10 00:00:00.000001+00:00,1,1\n2024-05-17 00:00:00.000003+00:00,1,1\n",
    )
    assert found[1].at == 7 * 86400 + 0.000002


@pytest.mark.parametrize(
    "content",
    [
        "GeneratedTokens,Region,ContextTokens,TIMESTAMP\n44,eu,374,2023-11-16 18:15:46\n",
        ' TIMESTAMP , ContextTokens , GeneratedTokens \r\n"2023-11-16 18:15:46","374",44\r\n',
    ],
    ids=["another order", "quoted"],
)
def test_columns_go_by_name(tmp_path: Path, content: str) -> None:
    (found,) = read(tmp_path, content)
    assert (found.prompt_tokens, found.output_tokens) == (374, 44)
