"""Makes the IDs of files and batches, which are random, and of the requests of a batch."""

from __future__ import annotations

import hashlib
import os
import re
from typing import Final

_ID: Final = re.compile(r"file-[0-9a-f]{32}\Z|batch_[0-9a-f]{32}\Z")


def new_file_id() -> str:
    return "file-" + os.urandom(16).hex()


def new_batch_id() -> str:
    return "batch_" + os.urandom(16).hex()


def is_id(text: str) -> bool:
    """Return whether a client's text is a valid ID. Only valid IDs are used as names on disk."""
    return _ID.match(text) is not None


def request_id(batch_id: str, line: int) -> str:
    """Return the request ID of a line of a batch file.

    The ID is the same for each retry of the line, so the access log shows the retries.
    """
    digest = hashlib.blake2b(f"{batch_id}/{line}".encode(), digest_size=16)
    return "batch_req_" + digest.hexdigest()
