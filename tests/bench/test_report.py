"""The tables hold every row, mark what went wrong, and their JSON is whole."""

from __future__ import annotations

import json

from bench.overhead import goals, report
from bench.overhead.measure import Row


def a_report() -> report.Report:
    own = Row("hedgerow", "0.1", "as shipped", figures={"json_c4_us": 30.04, "rss_mb": 44.0})
    other = Row("haproxy", "2.6", "logging", figures={"json_c4_us": 20.0, "others_cpu": 1.4})
    other.problem("json_c4", "2 × status 503")
    gone = Row("envoy", absent="not installed")
    rows = [own, other, gone]
    verdicts = goals.judge({row.name: row for row in rows}, 9.5, "")
    return report.Report({"CPUs": 2}, rows, verdicts, {"us": 9.5, "note": "sockets excluded"})


def test_the_text_table() -> None:
    lines = report.text(a_report()).splitlines()
    head = next(line for line in lines if "hedgerow" in line)
    assert head.split() == ["hedgerow", "haproxy"]
    row = next(line for line in lines if "JSON request, c=4" in line)
    assert row.split()[-2:] == ["30.0", "20.0!"]
    assert not any("requests/s, c=32 " in line for line in lines)  # nobody's figure: no line
    assert "! haproxy, json_c4: 2 × status 503" in lines
    assert "envoy: absent: not installed" in lines
    assert any(line.startswith("! haproxy: 1.4 CPUs were busy") for line in lines)
    assert "internal overhead: sockets excluded" in lines


def test_the_markdown_tables_have_as_many_cells_as_columns() -> None:
    tables = [line for line in report.markdown(a_report()).splitlines() if line.startswith("|")]
    assert {line.count(" | ") for line in tables} == {2, 3}


def test_the_json_says_all_of_it() -> None:
    found = json.loads(json.dumps(a_report().as_json()))
    assert [row["name"] for row in found["peers"]] == ["hedgerow", "haproxy", "envoy"]
    assert found["peers"][0]["figures"]["json_c4_us"] == 30.04
    assert found["goals"][0]["met"] is True
    assert found["goals"][0]["verdict"] == (
        "met (haproxy: 2 × status 503; haproxy: the machine was busy with other work)"
    )
    assert found["internal"]["us"] == 9.5
