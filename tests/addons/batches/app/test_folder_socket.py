"""The socket in the batch folder: found under any path, and refused when it is withdrawn."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from router.addons.batches.server import connected, listening, withdraw


def test_a_connection_to_the_owner_even_under_a_long_path(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 150)
    folder.mkdir(mode=0o700)
    with listening(folder) as owner, connected(folder) as other:
        assert stat.filemode((folder / "socket").stat().st_mode) == "srw-------"
        accepted, _ = owner.accept()
        accepted.sendall(b"hello")
        assert other.recv(5) == b"hello"
        accepted.close()


def test_without_an_owner_there_is_no_connection(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        connected(tmp_path)
    listening(tmp_path).close()  # as a crash leaves it
    with pytest.raises(OSError):
        connected(tmp_path)
    with listening(tmp_path), connected(tmp_path):
        pass


def test_a_connection_that_has_begun_is_accepted_after_the_withdrawal(tmp_path: Path) -> None:
    with listening(tmp_path) as owner, connected(tmp_path):
        withdraw(tmp_path)
        with pytest.raises(FileNotFoundError):
            connected(tmp_path)
        owner.accept()[0].close()
