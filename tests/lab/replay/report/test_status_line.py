"""A status line on a terminal replaces its text, and leaves nothing behind."""

from __future__ import annotations

import pytest

from router.lab.replay.report.words import StatusLine

ERASE = "\r\033[K"


def test_a_new_text_replaces_the_line_and_an_equal_one_is_not_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    line = StatusLine()
    line.show("reading: 1 %")
    line.show("reading: 1 %")
    line.show("reading: 2 %")
    assert capsys.readouterr().err == f"{ERASE}reading: 1 %{ERASE}reading: 2 %"


def test_closing_erases_the_line_once(capsys: pytest.CaptureFixture[str]) -> None:
    line = StatusLine()
    line.close()
    assert capsys.readouterr().err == ""
    line.show("reading: 1 %")
    capsys.readouterr()
    line.close()
    line.close()
    assert capsys.readouterr().err == ERASE
