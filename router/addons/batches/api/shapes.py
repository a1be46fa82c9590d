"""Formats files, batches and lists as in OpenAI's API, and the lines of result files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from router.addons.batches.run.lines import LineError, is_json
from router.addons.batches.store.rows import Batch, File

_encode = msgspec.json.Encoder().encode

EXPIRED: Final = (
    "batch_expired",
    "This request could not be executed before the completion window expired.",
)
CANCELLED: Final = ("batch_cancelled", "This request was not executed: the batch was cancelled.")


def file_object(file: File) -> dict[str, Any]:
    return {
        "id": file.id,
        "object": "file",
        "bytes": file.bytes,
        "created_at": file.created_at,
        "expires_at": file.expires_at,
        "filename": file.filename,
        "purpose": file.purpose,
        "status": "processed",
        "status_details": None,
    }


def batch_object(batch: Batch) -> dict[str, Any]:
    """Return a batch in OpenAI's format. JSON values of its database row are not decoded."""
    errors = None
    if batch.errors:
        errors = {"object": "list", "data": msgspec.Raw(batch.errors.encode())}
    return {
        "id": batch.id,
        "object": "batch",
        "endpoint": batch.endpoint,
        "errors": errors,
        "input_file_id": batch.input_file,
        "completion_window": batch.completion_window,
        "status": batch.status,
        "output_file_id": batch.output_file,
        "error_file_id": batch.error_file,
        "created_at": batch.created_at,
        "in_progress_at": batch.in_progress_at,
        "expires_at": batch.expires_at,
        "finalizing_at": batch.finalizing_at,
        "completed_at": batch.completed_at,
        "failed_at": batch.failed_at,
        "expired_at": batch.expired_at,
        "cancelling_at": batch.cancelling_at,
        "cancelled_at": batch.cancelled_at,
        "request_counts": {
            "total": batch.total,
            "completed": batch.completed,
            "failed": batch.failed,
        },
        "metadata": msgspec.Raw(batch.metadata.encode()) if batch.metadata else None,
    }


def page(objects: Sequence[dict[str, Any]], has_more: bool) -> dict[str, Any]:
    """Return one page of a list in OpenAI's format."""
    return {
        "object": "list",
        "data": objects,
        "first_id": objects[0]["id"] if objects else None,
        "last_id": objects[-1]["id"] if objects else None,
        "has_more": has_more,
    }


def errors_column(errors: Sequence[LineError]) -> str:
    """Return the errors in a batch file in the format in which the store keeps them."""
    return _encode(
        [{"code": e.code, "message": e.message, "param": e.param, "line": e.line} for e in errors]
    ).decode()


def answered(request_id: str, custom_id: str, status: int, body: msgspec.Raw | str) -> bytes:
    """Return the line of a result file for a request that got a response, with its newline."""
    return _line(
        request_id,
        custom_id,
        {"status_code": status, "request_id": request_id, "body": body},
        None,
    )


def unanswered(request_id: str, custom_id: str, code: str, message: str) -> bytes:
    """Return the line of a result file for a request without a response, with its newline."""
    return _line(request_id, custom_id, None, {"code": code, "message": message})


def as_json(body: bytes) -> msgspec.Raw | None:
    """Return `body` without line breaks, to be part of a line of JSON; None if it is not JSON."""
    if not is_json(body):
        return None
    # Line breaks can be removed, because JSON has them only outside of strings.
    return msgspec.Raw(body.translate(None, b"\r\n") if b"\n" in body or b"\r" in body else body)


def _line(request_id: str, custom_id: str, response: Any, error: Any) -> bytes:
    found = {"id": request_id, "custom_id": custom_id, "response": response, "error": error}
    return _encode(found) + b"\n"
