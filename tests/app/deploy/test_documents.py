"""The documents link to files that exist, and name tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from policies.contract import policy_names
from router.config.reference import page
from tests.places import ROOT

DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("deploy/**/*.md"), *ROOT.glob("policies/*.md")])
LINK = re.compile(r"\]\(([^)#]+)(?:#[^)]*)?\)")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_to_a_file(document: Path) -> None:
    links = LINK.findall(document.read_text())
    assert [to for to in links if "://" not in to and not (document.parent / to).exists()] == []


def test_every_test_of_the_security_table_exists() -> None:
    text = (ROOT / "deploy" / "README.md").read_text()
    rows = text.partition("## Security")[2].splitlines()
    named = [name for row in rows for name in re.findall(r"`([\w/]+/(?:\w+\.py)?)`", row)]
    assert len(named) > 10
    assert [name for name in named if not (ROOT / "tests" / name).exists()] == []


def test_every_alert_has_a_row_in_the_runbook() -> None:
    rules = (ROOT / "deploy" / "prometheus" / "hedgerow.rules.yml").read_text()
    alerts = re.findall(r"alert: (\w+)", rules)
    text = (ROOT / "deploy" / "README.md").read_text()
    rows = re.findall(r"^\| (`Hedgerow[^|]*) \|", text, re.MULTILINE)
    assert re.findall(r"`(\w+)`", " ".join(rows)) == alerts


def test_every_setting_of_the_migration_tables_exists() -> None:
    """In the right column; `*` and `[]` stand for any name and any item."""
    reference = page()
    known = set(re.findall(r"^- `([\w.*\[\]]+)`", reference, re.MULTILINE))
    known |= set(re.findall(r"^## ([\w.*\[\]]+)$", reference, re.MULTILINE))
    known |= set(policy_names())
    text = (ROOT / "deploy" / "migration.md").read_text()
    rows = [row.split("|") for row in text.splitlines() if row.startswith("| `")]
    wanted = {
        name.replace("classes.*", "classes.normal")
        for row in rows
        for name in re.findall(r"`([a-z_]+(?:\.[\w*]+|\[\]\.\w+)+)(?=[`:])", row[2])
    }
    assert len(wanted) > 20
    assert wanted - known == set()
