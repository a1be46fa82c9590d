"""The tables contain every row, mark problems, and their JSON is complete."""

from __future__ import annotations

import json

from bench.overhead import goals, report
from bench.overhead.row import Row


def a_report() -> report.Report:
    own = Row("hedgerow", "0.1", "as shipped")
    own.add("json_c32_us", 30.04)
    own.add("rss_mb", 44.0)
    other = Row("haproxy", "2.6", "logging")
    other.add("json_c32_us", 20.0)
    other.add("others_cpu", 1.4)
    other.problem("json_c32", "status errors: 2")
    gone = Row("envoy", absent="not installed")
    rows = [own, other, gone]
    parts = {"internal": 9.5}
    verdicts = goals.judge({row.name: row for row in rows}, parts, "no figure")
    return report.Report({"CPUs": 2}, rows, verdicts, "Load: wrk.", parts)


def test_the_text_table() -> None:
    lines = report.text(a_report()).splitlines()
    head = next(line for line in lines if "hedgerow" in line)
    assert head.split() == ["hedgerow", "haproxy"]
    row = next(line for line in lines if "JSON request, c=32" in line)
    assert row.split()[-2:] == ["30.0", "20.0!"]
    # the table has no line for a figure that no router has
    assert not any("requests/s, c=4 " in line for line in lines)
    assert "! haproxy, json_c32: status errors: 2" in lines
    assert "envoy: absent: not installed" in lines
    assert any(line.startswith("! 1.4 CPUs were busy") for line in lines)
    assert any(line.startswith("internal overhead: request parsed") for line in lines)
    assert "Load: wrk." in lines
    goal = next(line for line in lines if "≤ 2 × haproxy, target 1.7" in line)
    assert " ".join(goal.split()).startswith(
        "JSON request, c=32 ≤ 2 × haproxy, target 1.7 1.50 met, target met (haproxy: status"
    )


def test_the_json_says_all_of_it() -> None:
    found = json.loads(json.dumps(a_report().as_json()))
    assert [row["name"] for row in found["peers"]] == ["hedgerow", "haproxy", "envoy"]
    assert found["peers"][0]["figures"]["json_c32_us"] == 30.04
    assert found["goals"][0]["met"] is True
    assert found["goals"][0]["verdict"] == (
        "met, target met (haproxy: status errors: 2; the machine was busy with other work)"
    )
    assert found["parts_us"] == {"internal": 9.5}
