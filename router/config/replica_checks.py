"""Checks of replicas: entries of `replicas`, of the admin API, and of discovery.

Every check adds the errors that it finds to `Problems`, like the checks in `checks`.
"""

from __future__ import annotations

import re

from router.config.address import ReplicaUrl, parse_replica_url
from router.config.keys import REGION, REGION_RULE
from router.config.model import Config
from router.config.problems import Problems

# A valid replica ID. It appears in log lines, metric labels and the header X-Router-Replica.
_ID = re.compile(r"[A-Za-z0-9._:/\[\]~@+-]{1,200}\Z")
_TCP = re.compile(r"tcp://[^\s:/]+:\d{1,5}\Z|tcp://\[[0-9a-fA-F:]+\]:\d{1,5}\Z")


def check_replicas(config: Config, problems: Problems, serves: bool) -> None:
    """Adds every problem of `replicas`, which the admin API and discovery can extend."""
    _check_entries(config, problems, serves)
    _check_replica_regions(config, problems)
    _check_kv_events(config, problems)


def _check_entries(config: Config, problems: Problems, serves: bool) -> None:
    if problems.is_spoiled("replicas"):
        return
    discovery = config.discovery
    has_others = config.emulate.count > 0 or bool(discovery.files or discovery.dns)
    if serves and not config.replicas and not has_others:
        text = "at least one is needed (--replica URL, --emulate N, or a source of `discovery`)"
        problems.add("replicas", text)
    if config.replicas and config.emulate.count > 0:
        # An emulated engine must never serve real requests by accident.
        problems.add(
            "emulate.count", "cannot be used with replicas: configure either of them, not both"
        )
    engines: dict[tuple[str, int, str], int] = {}
    ids: dict[str, int] = {}
    for index, replica in enumerate(config.replicas):
        path = f"replicas[{index}]"
        if problems.is_spoiled(path):
            continue
        address = check_url(replica.url, f"{path}.url", problems)
        if address is not None:
            first = engines.setdefault(address.engine, index)
            if first != index:
                problems.add(
                    f"{path}.url", f"is the same engine as replicas[{first}]; list it only once"
                )
                continue
        if problems.is_spoiled(f"{path}.id"):
            continue
        name = replica.id or (address.default_id if address else "")
        if replica.id and not _ID.match(replica.id):
            problems.add(f"{path}.id", "must be visible ASCII: letters, digits and ._:/[]~@+-")
        elif name and (first := ids.setdefault(name, index)) != index:
            problems.add(f"{path}.id", f"{name!r} is already the id of replicas[{first}]")
        check_models(path, replica.models, problems)


def check_models(path: str, models: tuple[str, ...] | None, problems: Problems) -> None:
    """Adds the problems of the models of an entry. `path`: the path of the entry."""
    if models == () and not problems.is_spoiled(f"{path}.models"):
        problems.add(
            f"{path}.models",
            'is empty; name models, or "*" for any, or remove it to read them from the replica',
        )
    for index, model in enumerate(models or ()):
        if not model and not problems.is_spoiled(f"{path}.models[{index}]"):
            problems.add(f"{path}.models[{index}]", "a model's name cannot be empty")


def check_url(url: str, path: str, problems: Problems) -> ReplicaUrl | None:
    """Returns a parsed URL of a replica. For an invalid URL, adds a problem and returns `None`."""
    if problems.is_spoiled(path):
        return None
    try:
        return parse_replica_url(url)
    except ValueError as err:
        problems.add(path, str(err))
        return None


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
