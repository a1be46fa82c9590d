"""Qwen-Bailian's rows: blocks that are not chained, conversations by their first chat."""

from __future__ import annotations

from pathlib import Path

import pytest

from router.lab.traces import bailian, open_trace
from tests.lab.traces.helpers import DATA, json_lines, read


def test_the_sample() -> None:
    trace = open_trace(DATA / "bailian.jsonl")
    assert trace.block_tokens == 16
    found = list(trace)
    assert [(a.at, a.prompt_tokens, a.output_tokens) for a in found] == [
        (0.0, 40, 12),
        (0.25, 32, 9),
        (12.114, 70, 30),
        (61.5, 128, 0),
        (61.5, 9, 4),
    ]
    assert [len(a.blocks) for a in found] == [2, 2, 4, 8, 0]
    assert [a.session for a in found] == ["1", "2", "1", "1", "77"]


def test_an_id_means_its_place_and_what_is_before_it() -> None:
    first, second, third, fourth, _ = [a.blocks for a in open_trace(DATA / "bailian.jsonl")]
    assert first[0] == second[0]
    assert first == third[:2] == fourth[:2]
    assert third == fourth[:4]
    assert len(set(fourth)) == 8  # id 1 occurs twice, at two positions of the prompt


def test_parents_are_remembered_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bailian, "PARENTS", 4)
    rows = [
        {
            "chat_id": chat,
            "parent_chat_id": chat - 1 if chat else -1,
            "timestamp": chat,
            "input_length": 5,
            "output_length": 1,
            "hash_ids": [chat],
        }
        for chat in range(20)
    ]
    rows.append({**rows[0], "chat_id": 99, "parent_chat_id": 16, "timestamp": 20})
    rows.append({**rows[0], "chat_id": 98, "parent_chat_id": 17, "timestamp": 21})
    rows.append({**rows[0], "chat_id": 97, "parent_chat_id": 3, "timestamp": 22})
    found = read(tmp_path, json_lines(*rows))
    assert {a.session for a in found[:22]} == {"0"}  # for a conversation of any length
    assert found[22].session == "3"  # the older conversation was forgotten
