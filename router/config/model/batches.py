"""Declares the section `batches`: the batch API and its limits."""

from __future__ import annotations

from typing import Annotated

import msgspec

from router.config.model.setting_types import (
    Bytes,
    BytesOrNone,
    Count,
    Frozen,
    GiB,
    MiB,
    Seconds,
    Share,
)


class Batches(Frozen, frozen=True):
    """OpenAI's /v1/files and /v1/batches, served by the router itself."""

    # Turn the batch API on. Files and batches belong to the credential of a request. So without
    # `keys.required`, all clients without a credential share their files and batches, and so do all
    # clients that send the same one, such as `Bearer EMPTY`.
    enabled: bool = False
    # The folder for files and batches. No other router may use it. Its parent folder must exist.
    folder: str = "batches"
    file: Bytes = 512 * MiB  # Maximum size of an uploaded file.
    # Maximum number of lines in the file of one batch. Each line is one request.
    lines: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 50_000
    line: Bytes = 16 * MiB  # Maximum size of one line of a batch file.
    result: Bytes = 16 * MiB  # Maximum size of the response to one line of a batch file.
    # Maximum number of files of one owner (API key), including result files.
    files: Count = 1000
    files_total: Count = 100_000  # Maximum number of files of all owners.
    bytes: Bytes = 16 * GiB  # Maximum size of all files of one owner.
    bytes_total: Bytes = 256 * GiB  # Maximum size of all files.
    unfinished: Count = 100  # Maximum number of unfinished batches of one owner.
    unfinished_total: Count = 1000  # Maximum number of unfinished batches of all owners.
    # The share of each total (`files_total`, `bytes_total`, `unfinished_total`) that all owners
    # without a known API key may use together. Each invented credential is an owner, so the limits
    # of one owner do not limit such clients. If no API keys are configured when the process starts,
    # there is no such limit.
    keyless_share: Share = 0.1
    # Maximum number of batch lines whose requests are in progress. The router sends fewer requests
    # while enough of them wait in the queue.
    concurrency: Count = 1024
    # How often the request of a batch line is sent if it fails. A refusal because the fleet is busy
    # does not count.
    attempts: Count = 5
    retention_s: Seconds = 30 * 86400.0  # Files and finished batches are deleted after this time.
    # Space that is left free on the disk. While less is free, uploads are refused and results wait.
    disk_free: BytesOrNone = 1024 * MiB
