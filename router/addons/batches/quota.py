"""Limits the number and the size of the files of each owner, and of all owners together.

An owner is an API key or a credential. Stored files count, including result files, and so do
uploads in progress. Results are always stored, because the requests were already executed. An owner
above a limit cannot upload more files.

A client without a known API key may invent credentials, and each of them is an owner. So all owners
without a known key together may use only the share `keyless_share` of each total. They cannot fill
the totals, and the owners with a known key can always use the rest.
"""

from __future__ import annotations

from math import ceil

from router.addons.batches.api.asked import Refused
from router.config.model import Batches
from router.core.owners import KEYED


class Usage:
    """The numbers of files and bytes of each owner, and of all owners together."""

    def __init__(self) -> None:
        self.files = 0
        self.bytes = 0
        # The parts of `files` and `bytes` that belong to owners without a known key.
        self.keyless_files = 0
        self.keyless_bytes = 0
        self._owners: dict[str, tuple[int, int]] = {}

    def of(self, owner: str) -> tuple[int, int]:
        """Return the number of files and the number of bytes of one owner."""
        return self._owners.get(owner, (0, 0))

    def add(self, owner: str, files: int, size: int) -> None:
        self.files += files
        self.bytes += size
        if not has_known_key(owner):
            self.keyless_files += files
            self.keyless_bytes += size
        had = self.of(owner)
        has = had[0] + files, had[1] + size
        if any(has):
            self._owners[owner] = has
        else:
            self._owners.pop(owner, None)


def has_known_key(owner: str) -> bool:
    return owner.startswith(KEYED)


def keyless_part(rules: Batches, total: int) -> int:
    """Return how much of `total` all owners without a known key may use together."""
    return ceil(total * rules.keyless_share)


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
    files_part = keyless_part(rules, rules.files_total)
    bytes_part = keyless_part(rules, rules.bytes_total)
    all_files, all_bytes = usage.files, usage.bytes
    if has_known_key(owner):
        # Results are always stored, so owners without a known key may hold more than their part.
        all_files -= max(0, usage.keyless_files - files_part)
        all_bytes -= max(0, usage.keyless_bytes - bytes_part)
    elif usage.keyless_files + files > files_part or usage.keyless_bytes + size > bytes_part:
        message = "The files of all clients without a known API key are at the limit."
        raise Refused(507, "storage_full", message, "file")
    if all_files + files > rules.files_total or all_bytes + size > rules.bytes_total:
        raise Refused(507, "storage_full", "The files of all clients are at the limit.", "file")
