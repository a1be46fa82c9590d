"""Stores the contents of files in a folder.

A file is written under a temporary name, synced to disk, and then moved to its final name. So a
file is complete or does not exist. No input of a client becomes part of a path. Called only in the
worker's thread. All functions raise OSError, for example if the disk is full, and then remove the
unfinished file.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from pathlib import Path
from typing import BinaryIO, Final

PART: Final = ".part"
# A file that is being written is synced to disk each time that so many more bytes were written. So
# the last sync of a large file does not take seconds.
SYNC_EVERY: Final = 16 * 1024 * 1024


class BlobStore:
    """One folder, which only this process uses.

    Raises BlockingIOError if another process uses it.
    """

    def __init__(self, folder: Path, least_free: int) -> None:
        folder.mkdir(mode=0o700, parents=False, exist_ok=True)
        self.folder = folder
        self._files = folder / "files"
        self._files.mkdir(mode=0o700, exist_ok=True)
        self._least_free = least_free
        self._lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as err:
            os.close(self._lock)
            raise OSError(err.errno, f"{folder} is in use by another router") from None

    def close(self) -> None:
        os.close(self._lock)

    def check_room(self, wanted: int) -> None:
        """Raises OSError (ENOSPC) if writing `wanted` bytes would leave too little free space."""
        if shutil.disk_usage(self._files).free - wanted < self._least_free:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def path(self, name: str) -> Path:
        return self._files / name

    def reading(self, name: str) -> Reading:
        return Reading(self.path(name))

    def draft(self, name: str) -> Draft:
        """Return a new unfinished file. Its `keep` replaces an existing file with that name."""
        return Draft(self, name)

    def remove(self, name: str) -> None:
        self.path(name).unlink(missing_ok=True)

    def sweep(self, known: set[str]) -> None:
        """Removes what a crash has left: unfinished files, and files that are not in `known`."""
        for path in self._files.iterdir():
            if path.name not in known:
                path.unlink(missing_ok=True)

    def sync(self) -> None:
        """Syncs the names of the folder's files to disk."""
        handle = os.open(self._files, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


class Reading:
    """A file that is being read. It is opened by the first `read` and may be closed at any time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None

    def read(self, size: int) -> bytes:
        """Return the next bytes; an empty result means the end of the file."""
        if self._file is None:
            self._file = self._path.open("rb", buffering=0)
        return self._file.read(size)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


class Draft:
    """An unfinished file. Call `open` first, and `keep` or `drop` at the end."""

    def __init__(self, blobs: BlobStore, name: str) -> None:
        self._blobs = blobs
        self._path = blobs.path(name + PART)
        self._place = blobs.path(name)
        self._file: BinaryIO | None = None
        self.bytes = 0
        self._unsynced = 0

    def open(self) -> None:
        handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        self._file = os.fdopen(handle, "wb", buffering=0)

    def write(self, data: bytes | bytearray) -> None:
        assert self._file is not None
        left = memoryview(data)
        while left:
            left = left[self._file.write(left) :]
        self.bytes += len(data)
        self._unsynced += len(data)
        if self._unsynced >= SYNC_EVERY:
            self._blobs.check_room(0)
            os.fdatasync(self._file.fileno())
            self._unsynced = 0

    def keep(self) -> None:
        """Syncs the file and moves it to its final name.

        After an error there is no file with the final name, and `drop` removes the draft.
        """
        assert self._file is not None
        os.fsync(self._file.fileno())
        self._file.close()
        os.replace(self._path, self._place)
        self._file = None
        try:
            self._blobs.sync()
        except BaseException:
            self._place.unlink(missing_ok=True)
            raise

    def drop(self) -> None:
        """Removes the unfinished file. Does nothing after `keep`."""
        if self._file is not None:
            self._file.close()
            self._file = None
            self._path.unlink(missing_ok=True)
