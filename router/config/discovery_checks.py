"""Checks of `discovery`.

Every check adds the errors that it finds to `Problems`, like the checks in `checks`. No check reads
a file of replicas or looks up a name: a source that does not answer yet is no mistake in the
configuration.
"""

from __future__ import annotations

from importlib.util import find_spec
from ipaddress import ip_address

from router.config.address import ReplicaUrl, split_name_server
from router.config.model import Config
from router.config.pool_checks import check_pool_of
from router.config.problems import Problems
from router.config.replica_checks import check_model_names, check_region, check_url, id_rule


def check_discovery(config: Config, problems: Problems) -> None:
    """Adds every problem of `discovery`."""
    discovery = config.discovery
    if problems.is_spoiled("discovery"):
        return
    if config.emulate.count > 0 and (discovery.files or discovery.dns):
        problems.add("emulate.count", "cannot be used with discovery: configure either of them")
    for index, name in enumerate(discovery.files):
        path = f"discovery.files[{index}]"
        if not name and not problems.is_spoiled(path):
            problems.add(path, "is empty; it must be the path of a file")
        elif name in discovery.files[:index]:
            problems.add(path, "is listed twice")
    _check_names(config, problems)
    for index, server in enumerate(discovery.nameservers):
        path = f"discovery.nameservers[{index}]"
        if not problems.is_spoiled(path):
            try:
                split_name_server(server)
            except ValueError as err:
                problems.add(path, str(err))
    if discovery.dns and find_spec("dns") is None:
        problems.add("discovery.dns", "needs dnspython: pip install '.[dns]'")


def _check_names(config: Config, problems: Problems) -> None:
    seen: dict[tuple[ReplicaUrl, str], int] = {}
    for index, name in enumerate(config.discovery.dns):
        path = f"discovery.dns[{index}]"
        if problems.is_spoiled("discovery.dns", path):
            continue
        url = check_url(name.url, f"{path}.url", problems)
        check_model_names(path, name.models, problems)
        check_pool_of(path, name, config, problems)
        check_region(f"{path}.region", name.region, problems)
        if url is None:
            continue
        if why := id_rule(url.default_id):
            problems.add(f"{path}.url", f"the IDs of its replicas cannot be used: an ID {why}")
        first = seen.setdefault((url, name.records), index)
        if first != index:
            problems.add(f"{path}.url", f"is the same name as discovery.dns[{first}]")
        elif _is_address(url.host):
            problems.add(f"{path}.url", "has an address instead of a name; list it in `replicas`")
        elif name.records == "srv" and not url.has_default_port:
            problems.add(f"{path}.url", "must have no port: SRV records have the ports")


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
