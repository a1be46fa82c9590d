"""Checks of replicas: entries of `replicas`, of the admin API, and of discovery.

Every check adds the errors that it finds to `Problems`. No check raises an exception or changes the
configuration.
"""

from __future__ import annotations

import re
from typing import Final

from router.config.address import ReplicaUrl, parse_replica_url
from router.config.keys import REGION, REGION_RULE
from router.config.model import Config, Replica
from router.config.pool_checks import check_pool_of
from router.config.problems import Problems

# A valid replica ID. It appears in log lines, metric labels, the header X-Router-Replica and the
# paths of the admin API.
_ID: Final = re.compile(r"[A-Za-z0-9._:/\[\]~@+-]{1,200}\Z")
# The IDs of further data-parallel ranks end in this way (`fleet/data_parallel.py`).
_RANK: Final = re.compile(r".*@\d+\Z")
_DOTS: Final = frozenset({".", ".."})
_TCP: Final = re.compile(r"tcp://[^\s:/]+:\d{1,5}\Z|tcp://\[[0-9a-fA-F:]+\]:\d{1,5}\Z")


def check_replicas(config: Config, problems: Problems, serves: bool) -> None:
    """Adds every problem of `replicas`, which the admin API and discovery can extend."""
    _check_entries(config, problems, serves)
    _check_replica_regions(config, problems)
    for index, replica in enumerate(config.replicas):
        check_pool_of(f"replicas[{index}]", replica, config, problems)
    _check_kv_events(config, problems)


def _check_entries(config: Config, problems: Problems, serves: bool) -> None:
    if problems.is_spoiled("replicas"):
        return
    has_others = config.emulate.count > 0 or config.discovery.has_sources
    if serves and not config.replicas and not has_others:
        text = (
            "at least one is needed (--config FILE, --replica URL, --emulate N, "
            "or a source of `discovery`)"
        )
        problems.add("replicas", text)
    if serves and config.replicas and config.emulate.count > 0:
        # An emulated engine must never serve real requests by accident. The admin API may add
        # replicas to emulated ones.
        problems.add(
            "emulate.count", "cannot be used with replicas: configure either of them, not both"
        )
    engines: dict[tuple[str, int, str], int] = {}
    ids: dict[str, int] = {}
    for index, replica in enumerate(config.replicas):
        path = f"replicas[{index}]"
        if problems.is_spoiled(path):
            continue
        address = problems.parsed(f"{path}.url", parse_replica_url, replica.url)
        if address is not None:
            first = engines.setdefault(address.engine, index)
            if first != index:
                problems.add(
                    f"{path}.url", f"is the same engine as replicas[{first}]; list it only once"
                )
                continue
        if problems.is_spoiled(f"{path}.id"):
            continue
        _check_id(replica, address, path, index, ids, problems)
        check_model_names(path, replica.models, problems)


def _check_id(
    replica: Replica,
    address: ReplicaUrl | None,
    path: str,
    index: int,
    ids: dict[str, int],
    problems: Problems,
) -> None:
    """Checks the ID of a replica, and adds it to `ids` with the replica's index."""
    name = replica.id or (address.default_id if address else "")
    if not name:
        return
    if why := id_rule(name):
        source = "" if replica.id else f"{name[:200]!r} is derived from url and cannot be used; "
        problems.add(f"{path}.id", f"{source}{why}")
    elif (first := ids.setdefault(name, index)) != index:
        problems.add(f"{path}.id", f"{name!r} is already the id of replicas[{first}]")


def id_rule(name: str) -> str:
    """Return the rule that an ID of a replica breaks; "" if the ID is valid."""
    if not _ID.match(name):
        return "must be visible ASCII: 1 to 200 letters, digits and ._:/[]~@+-"
    if _RANK.match(name):
        return "must not end with @ and digits, which name a data-parallel rank"
    if _DOTS & {*name.split("/")}:
        return "must have no segment . or .., which clients remove from a path"
    return ""


def check_model_names(path: str, models: tuple[str, ...] | None, problems: Problems) -> None:
    """Adds the problems of the models of an entry. `path`: the path of the entry."""
    if models == () and not problems.is_spoiled(f"{path}.models"):
        problems.add(
            f"{path}.models",
            'is empty; name models, or "*" for any, or remove it to read them from the replica',
        )
    for index, model in enumerate(models or ()):
        if not model and not problems.is_spoiled(f"{path}.models[{index}]"):
            problems.add(f"{path}.models[{index}]", "a model's name cannot be empty")


def _check_replica_regions(config: Config, problems: Problems) -> None:
    for index, replica in enumerate(config.replicas):
        if not problems.is_spoiled(f"replicas[{index}]"):
            check_region(f"replicas[{index}].region", replica.region, problems)


def check_region(path: str, name: str, problems: Problems) -> None:
    """Adds a problem if `name` is not a valid name of a region. "": no region is stated."""
    if name and not problems.is_spoiled(path) and not REGION.match(name):
        problems.add(path, REGION_RULE)


def _check_kv_events(config: Config, problems: Problems) -> None:
    for index, replica in enumerate(config.replicas):
        events = replica.kv_events
        if events is None or problems.is_spoiled(f"replicas[{index}].kv_events"):
            continue
        for field in ("endpoint", "replay"):
            address = getattr(events, field)
            if address is not None and not _TCP.match(address):
                problems.add(f"replicas[{index}].kv_events.{field}", "must be tcp://host:port")
