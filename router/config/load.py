"""Loads YAML text and flags into one frozen Config, or reports every problem.

A configuration is used only if all of it is valid: `load` never returns a part of a configuration.
It does not stop at the first error. The start, the command `hedgerow check` and a reload all call
`load`.
"""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Any

import msgspec

from router.config.address import parse_replica_url
from router.config.checks import check
from router.config.decode import decode
from router.config.document import MAX_BYTES, parse_document, parse_list
from router.config.model import Config, Replica
from router.config.problems import Problems
from router.config.read_file import read_file
from router.config.replica_checks import check_replicas
from router.core.errors import ConfigError

_TARGETS = ("targets", "fallbacks")  # the settings of a name in `models` that are lists of targets


def load(
    path: str | PathLike[str] | None,
    overrides: Mapping[str, Any] | None = None,
    *,
    serves: bool = True,
    reads_files: bool = True,
) -> Config:
    """Reads a configuration from the file at `path` (None: no file) and applies `overrides` to it.

    `overrides` has the structure of the file: `{"listen": "…", "routing": {"policy": "p2c"}}`.
    Mappings are merged; any other value replaces the value in the file. `serves`: a router will run
    with the configuration, so replicas are required. (A replay takes its replicas from the log.)
    `reads_files`: checks the files and environment variables that the configuration names, too.
    Raises ConfigError with all errors.
    """
    problems = Problems()
    text = "" if path is None else read_text(path, problems)
    problems.raise_if_any()
    return parse(text, overrides, serves=serves, reads_files=reads_files)


def parse(
    text: str,
    overrides: Mapping[str, Any] | None = None,
    *,
    serves: bool = True,
    reads_files: bool = True,
) -> Config:
    """Does the same as `load` for YAML text instead of a file."""
    problems = Problems(reads_files=reads_files)
    data = parse_document(text, problems)
    if problems.is_unreadable:
        problems.raise_if_any()
    data = _merged(_expanded(data), _expanded(dict(overrides or {})))
    config = decode(Config, data, problems)
    check(config, problems, serves=serves)
    problems.raise_if_any()
    replicas = tuple(in_region(_named(replica), config) for replica in config.replicas)
    return msgspec.structs.replace(config, replicas=replicas)


def parse_replica(entry: object, config: Config) -> Replica:
    """Reads one entry of `replicas` that comes from the admin API, not from the file.

    The entry has the same fields as an entry in the file, except `credential`, and the fields are
    checked in the same way. `config`: the configuration in force. Raises ConfigError with all
    problems. The path of a problem begins with the name of a field.
    """
    if isinstance(entry, Mapping) and entry.get("credential") is not None:
        # It could name any file or variable that the router can read, and send it to any server.
        text = "cannot be set over the admin API; set `pool` to a pool that has the credential"
        raise ConfigError([f"credential: {text}"])
    problems = Problems(is_short=True)
    found = _replicas([entry], config, problems)
    path = "replicas[0]"
    lines = [line.removeprefix(path).lstrip(".") for line in problems.lines]
    if lines:
        raise ConfigError([line.removeprefix(": ") for line in lines])
    return in_region(found[0], config)


def parse_replicas(raw: bytes, config: Config) -> tuple[Replica, ...]:
    """Reads a list of entries of `replicas`, in YAML or JSON, that is not in the configuration.

    The entries are checked like those of the configuration. `config`: the configuration in force.
    The region of an entry may be "". Raises ConfigError with all problems.
    """
    problems = Problems()
    entries = parse_list(_decoded(raw, "", problems), "replicas", problems)
    problems.raise_if_any()
    found = _replicas(entries, config, problems)
    problems.raise_if_any()
    return found


def _replicas(entries: list[Any], config: Config, problems: Problems) -> tuple[Replica, ...]:
    """Decodes and checks entries of `replicas`. The result is invalid if problems were added."""
    found = decode(Config, _expanded({"replicas": entries}), problems).replicas
    check_replicas(msgspec.structs.replace(config, replicas=found), problems, serves=False)
    return found if problems.lines else tuple(map(_named, found))


def read_text(path: str | PathLike[str], problems: Problems) -> str:
    """Return the text of a configuration file, or add an error if the file cannot be read."""
    try:
        raw = read_file(path, MAX_BYTES + 1)
    except (OSError, ValueError) as err:  # ValueError if the path has a NUL byte
        why = err.strerror if isinstance(err, OSError) and err.strerror else str(err)
        problems.add(str(path), f"cannot be read: {why}")
        return ""
    if len(raw) > MAX_BYTES:
        problems.add(str(path), f"is larger than {MAX_BYTES} bytes")
        return ""
    if not raw.strip():
        # A full disk or a program that is writing the file leaves an empty file. All defaults would
        # be a valid configuration, without the keys that clients need.
        problems.add(str(path), "is empty; a file without settings must have a comment")
        return ""
    return _decoded(raw, str(path), problems)


def _decoded(raw: bytes, path: str, problems: Problems) -> str:
    """Return the text of a file, or add an error if it is not UTF-8."""
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as err:
        problems.add(path, f"is not UTF-8 (byte {err.start})")
        return ""


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        if not isinstance(value, Mapping):
            merged[key] = value
        elif below is None or isinstance(below, Mapping):
            merged[key] = _merged(below or {}, value)
        # If the file has no mapping at this path, `decode` reports the error.
    return merged


def _expanded(data: dict[str, Any]) -> dict[str, Any]:
    """Replaces values that are written in a short form by mappings.

    A replica, a DNS name of `discovery`, or the admin port may be only its address. An address may
    be only a port, which YAML reads as a number. Several addresses of `listen` become one text. A
    name in `models` may be only the model that it stands for, and a target of a name only its
    model.
    """
    expanded = dict(data)
    if "replicas" in data:
        expanded["replicas"] = _each_at("url", data["replicas"])
    listen = data.get("listen")
    addresses = listen if isinstance(listen, list | tuple) else [listen]
    if addresses and all(type(each) in (int, str) for each in addresses):
        expanded["listen"] = ", ".join(map(str, addresses))
    admin = data.get("admin")
    if type(admin) in (int, str):
        expanded["admin"] = {"listen": str(admin)}
    if isinstance(models := data.get("models"), Mapping):
        expanded["models"] = {name: _route(value) for name, value in models.items()}
    discovery = data.get("discovery")
    if isinstance(discovery, Mapping) and "dns" in discovery:
        expanded["discovery"] = {**discovery, "dns": _each_at("url", discovery["dns"])}
    return expanded


def _route(value: Any) -> Any:
    """Return the value of one name in `models` in its long form."""
    if isinstance(value, str):
        return {"targets": [_at("model", value)]}
    if not isinstance(value, Mapping):
        return value
    return {**value, **{key: _each_at("model", value[key]) for key in _TARGETS if key in value}}


def _each_at(field: str, values: Any) -> Any:
    """Return a list whose texts became mappings with `field`. What is no list stays as it is."""
    return [_at(field, item) for item in values] if isinstance(values, list | tuple) else values


def _at(field: str, value: Any) -> Any:
    return {field: value} if isinstance(value, str) else value


def in_region(replica: Replica, config: Config) -> Replica:
    """Return the replica with the region of the router if it states none.

    A replica of another company has only the region that it states.
    """
    pool = config.pools.get(replica.pool)
    if replica.region or not config.region or (pool is not None and pool.external):
        return replica
    return msgspec.structs.replace(replica, region=config.region)


def _named(replica: Replica) -> Replica:
    if replica.id:
        return replica
    return msgspec.structs.replace(replica, id=parse_replica_url(replica.url).default_id)
