"""The folder of files: a file that could not be kept leaves nothing behind."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import NoReturn

import pytest

from router.addons.batches.store.blob_store import BlobStore, Draft

NAME = "file-1"


def written(blobs: BlobStore) -> Draft:
    draft = blobs.draft(NAME)
    draft.open()
    draft.write(b"data")
    return draft


def names(folder: Path) -> list[str]:
    return [path.name for path in (folder / "files").iterdir()]


def test_a_file_has_its_final_name_when_it_is_complete(tmp_path: Path) -> None:
    blobs = BlobStore(tmp_path, 0)
    draft = written(blobs)
    assert names(tmp_path) == [NAME + ".part"]
    draft.keep()
    draft.drop()
    assert names(tmp_path) == [NAME]
    blobs.close()


def test_no_file_is_left_if_its_name_cannot_be_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: BlobStore) -> NoReturn:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    blobs = BlobStore(tmp_path, 0)
    draft = written(blobs)
    monkeypatch.setattr(BlobStore, "sync", broken)
    with pytest.raises(OSError):
        draft.keep()
    draft.drop()
    assert names(tmp_path) == []
    blobs.close()


def test_no_draft_is_left_if_it_cannot_be_renamed(tmp_path: Path) -> None:
    blobs = BlobStore(tmp_path, 0)
    draft = written(blobs)
    blobs.path(NAME).mkdir()
    with pytest.raises(OSError):
        draft.keep()
    draft.drop()
    assert names(tmp_path) == [NAME]  # only the folder
    blobs.close()
