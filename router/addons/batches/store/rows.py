"""The rows of the database for files and batches. Times are whole seconds since 1970."""

from __future__ import annotations

from typing import Final, NamedTuple

VALIDATING: Final = "validating"
FAILED: Final = "failed"
IN_PROGRESS: Final = "in_progress"
FINALIZING: Final = "finalizing"
COMPLETED: Final = "completed"
EXPIRED: Final = "expired"
CANCELLING: Final = "cancelling"
CANCELLED: Final = "cancelled"

UNFINISHED: Final = (VALIDATING, IN_PROGRESS, FINALIZING, CANCELLING)


class File(NamedTuple):
    """One batch file or result file. The content of the file is in the folder, named by its ID."""

    number: int
    id: str
    owner: str
    purpose: str
    filename: str
    bytes: int
    created_at: int
    expires_at: int


class Batch(NamedTuple):
    """One batch. The fields are the columns of the table of batches, in the same order."""

    number: int
    id: str
    owner: str
    needs_secret: bool  # its requests need the client's credentials, which are never on disk
    endpoint: str
    completion_window: str
    input_file: str
    output_file: str | None
    error_file: str | None
    next_output: str  # the ID that the output file will have
    next_error: str  # the ID that the error file will have
    output_seconds: int | None  # seconds that result files are kept; None: as long as other files
    status: str
    ending: str  # the status after `finalizing`: completed or expired
    metadata: str | None  # JSON
    errors: str | None  # JSON
    total: int
    completed: int
    failed: int
    created_at: int
    in_progress_at: int | None
    expires_at: int
    finalizing_at: int | None
    completed_at: int | None
    failed_at: int | None
    expired_at: int | None
    cancelling_at: int | None
    cancelled_at: int | None
