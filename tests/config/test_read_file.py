"""Files that the configuration names: read without waiting for the other end of a pipe."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from router.config.key_files import read_keys
from router.config.keys import KeysProblem
from router.config.load import load
from router.config.model import Credential, Keys
from router.config.read_file import read_file
from router.config.tls import FileProblem, token_of
from router.core.errors import ConfigError


def load_file(path: str) -> None:
    with pytest.raises(ConfigError, match="is empty"):
        load(path)


def keys_file(path: str) -> None:
    with pytest.raises(KeysProblem, match="is empty"):
        read_keys(Keys(file=path))


def token_file(path: str) -> None:
    with pytest.raises(FileProblem):
        token_of(Credential(token_file=path))


@pytest.mark.parametrize("read", [load_file, keys_file, token_file])
def test_a_pipe_without_a_writer_blocks_nothing(
    read: Callable[[str], None], tmp_path: Path
) -> None:
    pipe = str(tmp_path / "pipe")
    os.mkfifo(pipe)
    errors: list[BaseException] = []

    def run() -> None:
        try:
            read(pipe)
        except BaseException as err:
            errors.append(err)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(10)
    blocked = thread.is_alive()
    if blocked:
        os.close(os.open(pipe, os.O_WRONLY))  # ends the read
        thread.join()
    assert not blocked
    assert errors == []


def test_a_pipe_with_a_writer_is_read_until_its_end() -> None:
    """The shell passes such a path for `--config <(command)`."""
    reader, writer = os.pipe()
    path = f"/dev/fd/{reader}"

    def write() -> None:
        for _ in range(100):
            os.write(writer, b"x" * 1000)
        os.close(writer)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        assert read_file(path, 1 << 20) == b"x" * 100_000
        assert read_file(path, 1 << 20) == b""  # as at a reload
    finally:
        thread.join()
        os.close(reader)


def test_no_more_than_the_maximum_is_read(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"12345")
    assert (read_file(file, 4), read_file(file, 9)) == (b"1234", b"12345")
