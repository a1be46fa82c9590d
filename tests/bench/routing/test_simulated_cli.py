"""The command line of the simulated benches: each part once in quick mode."""

import json
from pathlib import Path
from random import Random

import pytest

from bench.fleet.simulated import cli, matrix
from tests.commands import command_of

run = command_of(cli)


@pytest.fixture
def trace(tmp_path: Path) -> str:
    """Sixty conversations in Mooncake's format, whose later turns repeat the earlier text."""
    rng, rows, fresh = Random(1), [], 0
    said: dict[int, list[int]] = {}
    for number in range(240):
        talk = said.setdefault(rng.randrange(60), [])
        more = rng.randint(1, 12)
        talk += range(fresh, fresh + more)
        fresh += more
        rows.append(
            {
                "timestamp": number // 10 * 3000,
                "input_length": 512 * len(talk),
                "output_length": rng.randint(1, 300),
                "hash_ids": list(talk),
            }
        )
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.mark.parametrize(
    "words",
    [
        ("policies", "--policy", "nosuch"),
        ("ladder", "--trace", "/nowhere/trace.jsonl"),
        ("loads", "--policy", "random,nosuch"),
    ],
)
def test_a_mistake_is_said_and_nothing_is_run(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*words, "--quick") == 2
    captured = capsys.readouterr()
    assert "no" in captured.err and not captured.out


def test_the_ladder(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("ladder", "--trace", trace, "--policy", "p2c", "--speedup", "4", "--jobs", "1")
    status = run(*words, "--json", "-")
    first = capsys.readouterr().out
    document = json.loads(first)
    assert status == (0 if all(goal["met"] for goal in document["goals"]) else 1)
    names = [row[0] for row in document["rows"]]
    assert names[:5] == ["random", "least_load", "prefix_affinity", "kv_aware", "p2c"]
    assert names[-1] == "kv_aware, 4 separate routers"
    assert document["speedup"] == 4.0
    assert 0.0 < document["reuse"]["lru"] <= document["reuse"]["infinite"] < 1.0
    assert len(document["goals"]) == 4
    assert all(goal["value"] is not None for goal in document["goals"])
    assert run(*words, "--json", "-") == status
    assert capsys.readouterr().out == first


def test_the_loads(capsys: pytest.CaptureFixture[str]) -> None:
    policies = ("--policy", "kv_aware,random", "--jobs", "1")
    assert run("loads", *policies, "--quick", "--json", "-") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["capacity"] > 0.0
    assert {(point["load"], point["policy"]) for point in document["points"]} == {
        (load, policy) for load in (50, 70, 90, 110) for policy in ("kv_aware", "random")
    }
    assert len(document["rows"]) == 8


def test_the_matrix(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(matrix, "QUICK", 30)
    assert run("policies", "--policy", "kv_aware,random", "--jobs", "1", "--quick") == 0
    out = capsys.readouterr().out
    assert "worst" in out and "kv_aware" in out and "random" in out
    assert "The table speaks for" in out


def test_the_speed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("speed", "--quick", "--json", "-") == 0
    document = json.loads(capsys.readouterr().out)
    short, long = (dict(zip(document["columns"], row, strict=True)) for row in document["rows"])
    assert int(long["requests"]) > 5 * int(short["requests"]) > 0
    # The queue and hedging are part of the measurement.
    assert int(long["waited"]) > 0 and int(long["copies"]) > 0
