"""Reads a small file that another program writes.

The file is read in a thread, one read at a time: a read from a disk that hangs cannot be cancelled,
and must not take all threads.

Must never: open anything but a regular file, or wait for the other end of a pipe.
"""

from __future__ import annotations

import asyncio
import os
import stat

from router.config.read_file import without_waiting


class Unusable(ValueError):
    """The file is too large, or not a regular file. The text of the error states the reason."""


class SmallFile:
    """One file. Only one task uses it at a time."""

    def __init__(self, path: str, bytes_max: int) -> None:
        self.path = path
        self._bytes_max = bytes_max
        self._reading: asyncio.Future[bytes | None] | None = None  # The read that is in progress.

    async def read(self, timeout_s: float) -> bytes | None:
        """Return the content of the file; `None`: no file.

        After a TimeoutError, the next call waits for the same read. Raises OSError, ValueError (the
        path has a NUL byte), Unusable and TimeoutError.
        """
        reading = self._reading
        if reading is None:
            loop = asyncio.get_running_loop()
            reading = loop.run_in_executor(None, _read, self.path, self._bytes_max)
            # If this call is cancelled, perhaps nothing else asks for the result.
            reading.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._reading = reading
        done, _ = await asyncio.wait((reading,), timeout=timeout_s)
        if not done:
            raise TimeoutError(f"{self.path} is not read within {timeout_s:g} s")
        self._reading = None
        return reading.result()


def _read(path: str, bytes_max: int) -> bytes | None:
    try:
        with open(path, "rb", opener=without_waiting) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise Unusable(f"{path} is not a regular file")
            raw = file.read(bytes_max + 1)
    except FileNotFoundError:
        return None
    if len(raw) > bytes_max:
        raise Unusable(f"{path} is larger than {bytes_max} bytes")
    return raw
