"""Files that do not have the expected format: a clear error with the line, never a traceback."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from router.lab.simulator.traffic import TraceError
from router.lab.traces import FORMATS, open_trace
from tests.lab.traces.helpers import DATA, SAMPLES, json_lines, mooncake_row, read

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
A1 = "2023-11-16 18:15:46.6805900,374,44\n"
LOG = {"ts": 100.0, "id": "a", "kind": "chat", "prompt_tokens": 9, "output_tokens": 3}


def mooncake(**wrong: Any) -> str:
    return json_lines(mooncake_row(), mooncake_row(1), mooncake_row(2) | wrong)


def log(**wrong: Any) -> str:
    return json_lines(LOG, LOG, LOG | wrong)


def without(row: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key != name}


CASES: list[tuple[str, str, str | bytes, int, str]] = [
    # what is wrong, format, content, line, words of the error
    ("mooncake: text", "mooncake", mooncake(input_length="12"), 3, "input_length"),
    ("mooncake: fraction", "mooncake", mooncake(input_length=12.5), 3, "input_length"),
    ("mooncake: negative", "mooncake", mooncake(input_length=-5), 3, "input_length is -5"),
    ("mooncake: zero", "mooncake", mooncake(input_length=0), 3, "input_length is 0"),
    ("mooncake: huge", "mooncake", mooncake(input_length=100_000_001), 3, "100,000,000"),
    ("mooncake: output", "mooncake", mooncake(output_length=-1), 3, "output_length is -1"),
    ("mooncake: huge output", "mooncake", mooncake(output_length=10**20), 3, "output_length"),
    ("mooncake: ids", "mooncake", mooncake(hash_ids=[1, "x"]), 3, "hash_ids"),
    ("mooncake: too many ids", "mooncake", mooncake(hash_ids=[1] * 9), 3, "block_tokens"),
    ("mooncake: no ids", "mooncake", mooncake(hash_ids=None), 3, "all rows or none"),
    ("mooncake: no time", "mooncake", mooncake(timestamp=None), 3, "missing timestamp"),
    ("mooncake: far future", "mooncake", mooncake(timestamp=1e30), 3, "invalid time"),
    (
        "mooncake: back in time",
        "mooncake",
        json_lines(mooncake_row(6000), mooncake_row(9000), mooncake_row(8000)),
        3,
        "1 s before the previous row",
    ),
    (
        "mooncake: missing column",
        "mooncake",
        json_lines(mooncake_row(), without(mooncake_row(1), "output_length")),
        2,
        "missing required field `output_length`",
    ),
    ("mooncake: no JSON", "mooncake", mooncake() + "{]\n", 4, "not a JSON object"),
    ("mooncake: a list", "mooncake", mooncake() + "[1]\n", 4, "expected `object`"),
    ("mooncake: cut off", "mooncake", mooncake() + '{"timestamp": 3, "in', 4, "truncated"),
    ("mooncake: depth", "mooncake", mooncake() + "[" * 100_000 + "\n", 4, ""),
    (
        "mooncake: UTF-8",
        "mooncake",
        json_lines(mooncake_row()).encode() + b'{"timestamp": 1, "session_id": "\xff\xfe"}\n',
        2,
        "",
    ),
    ("azure: missing column", "azure", "TIMESTAMP,GeneratedTokens\n", 1, "ContextTokens"),
    ("azure: header only", "azure", AZURE, 1, "no rows"),
    ("azure: empty", "azure", "", 1, "empty file"),
    ("azure: no number", "azure", AZURE + A1 + "2023-11-16 18:15:47,x,1\n", 3, "ContextTokens"),
    ("azure: empty cell", "azure", AZURE + A1 + "2023-11-16 18:15:47,,1\n", 3, "ContextTokens"),
    ("azure: negative", "azure", AZURE + A1 + "2023-11-16 18:15:47,1,-1\n", 3, "is -1"),
    ("azure: zero", "azure", AZURE + "2023-11-16 18:15:47,0,1\n", 2, "ContextTokens is 0"),
    ("azure: digits", "azure", AZURE + A1.replace("374", "9" * 5000), 2, "ContextTokens"),
    ("azure: no time", "azure", AZURE + A1 + "yesterday,1,1\n", 3, "TIMESTAMP is not a time"),
    (
        "azure: back",
        "azure",
        AZURE + A1 + "2023-11-16 18:15:45,1,1\n",
        3,
        "before the previous row",
    ),
    ("azure: short row", "azure", AZURE + A1 + "2023-11-16 18:15:47,1\n", 3, "2 cells"),
    ("azure: long row", "azure", AZURE + A1 + "2023-11-16 18:15:47,1,1,1\n", 3, "4 cells"),
    ("azure: cut off", "azure", AZURE + A1 + "2023-11-16 18:1", 3, "truncated"),
    ("azure: UTF-8", "azure", (AZURE + A1).encode() + b"\xff\xff,1,1\n", 3, "not UTF-8"),
    ("azure: quotes", "azure", AZURE + A1 + '"' + "x" * 200_000 + '",1,1\n', 3, "not CSV"),
    ("hedgerow: text file", "hedgerow", log() + "no\n" * 20, 12, "not a JSON object"),
    ("hedgerow: no time", "hedgerow", json_lines(LOG, without(LOG, "ts")), 2, "`ts`"),
    ("hedgerow: text", "hedgerow", log(prompt_tokens="many"), 3, "prompt_tokens"),
    ("hedgerow: negative", "hedgerow", log(prompt_tokens=-4), 3, "is -4"),
    ("hedgerow: huge", "hedgerow", log(output_tokens=10**9), 3, "output_tokens is 1000000000"),
    ("hedgerow: no base64", "hedgerow", log(blocks="%%%%"), 3, "blocks"),
    ("hedgerow: odd blocks", "hedgerow", log(blocks="AAAA"), 3, "3 bytes"),
    ("hedgerow: duration", "hedgerow", log(duration_ms=-5.0), 3, "invalid time"),
    ("hedgerow: last, but whole", "hedgerow", log() + "{}\n", 4, "`ts`"),
    ("hedgerow: nothing", "hedgerow", json_lines(LOG | {"kind": "models"}), 1, "nothing to replay"),
    (
        "hedgerow: unknown",
        "hedgerow",
        json_lines(without(LOG, "output_tokens")),
        1,
        "output_tokens",
    ),
]


@pytest.mark.parametrize(
    ("format", "content", "line", "words"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_errors_are_reported_with_their_line(
    tmp_path: Path, format: str, content: str | bytes, line: int, words: str
) -> None:
    with pytest.raises(TraceError) as caught:
        read(tmp_path, content, format=format)
    assert caught.value.line == line
    assert words in caught.value.problem
    assert str(caught.value).startswith(f"{tmp_path / 'trace'}:{line}: ")
    assert len(str(caught.value)) < 1000


def test_every_format_is_among_them() -> None:
    assert {case[1] for case in CASES} == set(FORMATS)


def test_what_a_client_asked_for_is_checked(tmp_path: Path) -> None:
    wrong: list[dict[str, Any]] = [
        {"number": 4.5},
        {"number": "high"},
        {"deadline_ms": -1},
        {"max_tokens": 0},
        {"hedge": "maybe"},
        {"slots": -1},
        {"ttft_ms": -5.0},
    ]
    for fields in wrong:
        with pytest.raises(TraceError, match=f":3: .*{next(iter(fields))}"):
            read(tmp_path, log(**fields), format="hedgerow")


@settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(
    sample=st.sampled_from([name for name in SAMPLES if not name.endswith("400.jsonl")]),
    where=st.floats(0.0, 1.0),
    what=st.binary(min_size=1, max_size=8),
    keep=st.booleans(),
)
def test_damaged_input_is_read_or_reported(
    tmp_path: Path, sample: str, where: float, what: bytes, keep: bool
) -> None:
    content = (DATA / sample).read_bytes()[:2000]
    at = int(where * len(content))
    damaged = content[:at] + what + content[at + (0 if keep else len(what)) :]
    file = tmp_path / "damaged"
    file.write_bytes(damaged)
    try:
        found = list(open_trace(file, format=SAMPLES[sample]))
    except TraceError as err:
        assert 1 <= err.line <= damaged.count(b"\n") + 1
        return
    times = [a.at for a in found]
    assert times == sorted(times)
    assert all(a.prompt_tokens >= 1 and a.output_tokens >= 0 for a in found)


def test_the_rows_of_the_cases_are_fine_without_what_is_wrong(tmp_path: Path) -> None:
    assert len(read(tmp_path, mooncake())) == 3
    assert len(read(tmp_path, log())) == 3
    assert len(read(tmp_path, AZURE + A1)) == 1
