"""Loads YAML text and flags into one frozen Config, or reports every problem.

A configuration is used only if all of it is valid: `load` never returns a part of one, and it does
not stop at the first error. The same call serves start, `hedgerow check` and reload.
"""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Any

import msgspec

from router.config.address import parse_replica_url
from router.config.checks import check
from router.config.decode import decode
from router.config.document import MAX_BYTES, parse_document
from router.config.model import Config
from router.config.problems import Problems


def load(
    path: str | PathLike[str] | None,
    overrides: Mapping[str, Any] | None = None,
    *,
    serves: bool = True,
) -> Config:
    """Read a configuration from the file at `path` (None: no file) and apply `overrides` to it.

    `overrides` has the shape of the file: `{"listen": "…", "routing": {"policy": "p2c"}}`. Mappings
    are merged; any other value replaces that of the file. `serves`: a router will run with the
    configuration, so replicas are required; a replay takes its replicas from the log. Raises
    ConfigError with all problems.
    """
    problems = Problems()
    text = "" if path is None else read_text(path, problems)
    problems.raise_if_any()
    return parse(text, overrides, serves=serves)


def parse(text: str, overrides: Mapping[str, Any] | None = None, *, serves: bool = True) -> Config:
    """`load` for YAML text instead of a file."""
    problems = Problems()
    data = parse_document(text, problems)
    if problems.is_unreadable:
        problems.raise_if_any()
    data = _expanded(_merged(data, overrides or {}))
    config = decode(Config, data, problems)
    check(config, problems, serves=serves)
    problems.raise_if_any()
    return _completed(config)


def read_text(path: str | PathLike[str], problems: Problems) -> str:
    """The text of a configuration file; a file that cannot be read is a problem."""
    try:
        with open(path, "rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as err:  # ValueError: a NUL byte in the path
        why = err.strerror if isinstance(err, OSError) and err.strerror else str(err)
        problems.add(str(path), f"cannot be read: {why}")
        return ""
    if len(raw) > MAX_BYTES:
        problems.add(str(path), f"is larger than {MAX_BYTES} bytes")
        return ""
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as err:
        problems.add(str(path), f"is not UTF-8 (byte {err.start})")
        return ""


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        if not isinstance(value, Mapping):
            merged[key] = value
        elif below is None or isinstance(below, Mapping):
            merged[key] = _merged(below or {}, value)
        # else: the file has no mapping at this path; `decode` reports that
    return merged


def _expanded(data: dict[str, Any]) -> dict[str, Any]:
    """Replace each replica that is written as a bare URL by a mapping with that URL."""
    replicas = data.get("replicas")
    if isinstance(replicas, list | tuple):
        short = [{"url": item} if isinstance(item, str) else item for item in replicas]
        return {**data, "replicas": short}
    return data


def _completed(config: Config) -> Config:
    """Set the fields that are derived from others: the ID of a replica without one."""
    replicas = tuple(
        replica
        if replica.id
        else msgspec.structs.replace(replica, id=parse_replica_url(replica.url).default_id)
        for replica in config.replicas
    )
    return msgspec.structs.replace(config, replicas=replicas)
