"""Makes the IDs of files and batches (random) and of requests (from their batch and line)."""

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
    """Whether a client's text is a valid ID; no other text is used as a name on disk."""
    return _ID.match(text) is not None


def request_id(batch_id: str, line: int) -> str:
    """The request ID of a line: equal for every attempt, so the access log shows repetitions."""
    digest = hashlib.blake2b(f"{batch_id}/{line}".encode(), digest_size=16)
    return "batch_req_" + digest.hexdigest()
