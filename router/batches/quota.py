"""Limits the number and the size of the files of each owner, and of all owners together.

An owner is an API key or a credential. Stored files count, including result files, and so do
uploads in progress. Results are always stored, because the requests were already executed. An owner
above a limit cannot upload more files.
"""

from __future__ import annotations

from router.batches.api.asked import Refused
from router.config.model import Batches


class Usage:
    """The numbers of files and bytes of each owner, and of all owners together."""

    def __init__(self) -> None:
        self.files = 0
        self.bytes = 0
        self._owners: dict[str, tuple[int, int]] = {}

    def of(self, owner: str) -> tuple[int, int]:
        """Returns the number of files and the number of bytes of one owner."""
        return self._owners.get(owner, (0, 0))

    def add(self, owner: str, files: int, size: int) -> None:
        self.files += files
        self.bytes += size
        had = self.of(owner)
        has = had[0] + files, had[1] + size
        if any(has):
            self._owners[owner] = has
        else:
            self._owners.pop(owner, None)


def check_quota(rules: Batches, usage: Usage, owner: str, files: int, size: int) -> None:
    """Raises Refused if an owner may not store `files` more files with `size` more bytes."""
    own_files, own_bytes = usage.of(owner)
    if own_files + files > rules.files:
        message = f"You have {own_files} files of {rules.files}; delete some, or let them expire."
        raise Refused(403, "file_quota_exceeded", message, "file")
    if own_bytes + size > rules.bytes:
        message = (
            f"Your files hold {own_bytes} bytes of {rules.bytes}; delete some, or let them expire."
        )
        raise Refused(403, "byte_quota_exceeded", message, "file")
    if usage.files + files > rules.files_total or usage.bytes + size > rules.bytes_total:
        raise Refused(507, "storage_full", "The files of all clients are at the limit.", "file")
