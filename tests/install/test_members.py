"""The expected contents of sdist and wheel follow the tree, and a wrong member is reported."""

import tarfile
import zipfile
from pathlib import Path

from tests.install import members
from tests.places import ROOT


def test_the_wheel_holds_the_program_its_libraries_and_no_test() -> None:
    expected = members.expected_wheel(ROOT, "1.0", ".so")
    assert {
        "router/cli.py",
        "router/wire/client.so",
        "router/lab/emulator/http/server.py",
        "policies/contract.py",
        "router/lab/overhead/command.py",
        "hedgerow__mypyc.so",
        "hedgerow-1.0.dist-info/METADATA",
    } <= expected
    assert not [
        name
        for name in expected
        if name.startswith(("tests", "build", "bench")) or ".c" in name[-3:]
    ]
    assert "router/intake/shapes.so" not in expected  # setup.py excludes this module


def test_the_sdist_holds_what_a_build_needs_and_no_test() -> None:
    expected = members.expected_sdist(ROOT, "1.0")
    assert {
        "hedgerow-1.0/setup.py",
        "hedgerow-1.0/pyproject.toml",
        "hedgerow-1.0/README.md",
        "hedgerow-1.0/deploy/hedgerow.yaml",
        "hedgerow-1.0/router/cli.py",
    } <= expected
    assert not [name for name in expected if "/tests/" in name or name.endswith((".so", ".c"))]


def test_missing_and_foreign_members_are_reported(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.whl", "w") as wheel:
        wheel.writestr("router/cli.py", "")
        wheel.writestr("tests/test_cli.py", "")
    found = members.members(tmp_path / "a.whl")
    assert members.differences(found, {"router/cli.py", "router/core/build.py"}) == [
        "missing: router/core/build.py",
        "must not be there: tests/test_cli.py",
    ]


def test_an_sdist_is_read_without_its_folders(tmp_path: Path) -> None:
    (tmp_path / "setup.py").write_text("")
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as sdist:
        sdist.add(tmp_path, arcname="hedgerow-1.0", filter=lambda member: member)
    assert "hedgerow-1.0" not in members.members(tmp_path / "a.tar.gz")
    assert "hedgerow-1.0/setup.py" in members.members(tmp_path / "a.tar.gz")
