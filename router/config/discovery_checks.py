"""Checks of `discovery`.

Every check adds the errors that it finds to `Problems`, like the checks in `checks`. No check reads
a file of replicas or looks up a name: a source that does not answer yet is no mistake in the
configuration.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from router.config.addons import check_packages
from router.config.address import (
    ReplicaUrl,
    is_address,
    parse_replica_url,
    split_name_server,
)
from router.config.model import Config, KubernetesReplicas
from router.config.pool_checks import check_pool_of
from router.config.problems import Problems
from router.config.replica_checks import check_model_names, check_region, id_rule

# A name of a namespace, a Service or a port in Kubernetes: an RFC 1123 label.
_LABEL: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\Z")
_LABEL_RULE: Final = "must be 1 to 63 lower case letters, digits and -"
_SELECTOR: Final = re.compile(r"[!-~](?:[ -~]{0,198}[!-~])?\Z")


def check_discovery(config: Config, problems: Problems) -> None:
    """Adds every problem of `discovery`."""
    discovery = config.discovery
    if problems.is_spoiled("discovery"):
        return
    if config.emulate.count > 0 and discovery.has_sources:
        problems.add("emulate.count", "cannot be used with discovery: configure either of them")
    for index, name in enumerate(discovery.files):
        path = f"discovery.files[{index}]"
        if not name and not problems.is_spoiled(path):
            problems.add(path, "is empty; it must be the path of a file")
        elif name in discovery.files[:index]:
            problems.add(path, "is listed twice")
    _check_names(config, problems)
    _check_kubernetes(config, problems)
    for index, server in enumerate(discovery.nameservers):
        problems.parsed(f"discovery.nameservers[{index}]", split_name_server, server)
    # The machine of the configuration may have other packages.
    if problems.reads_files and discovery.dns:
        check_packages("discovery.dns", ("dns",), "dns", problems)


def _check_names(config: Config, problems: Problems) -> None:
    seen: dict[tuple[ReplicaUrl, str], int] = {}
    for index, name in enumerate(config.discovery.dns):
        path = f"discovery.dns[{index}]"
        if problems.is_spoiled("discovery.dns", path):
            continue
        url = problems.parsed(f"{path}.url", parse_replica_url, name.url)
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
        elif is_address(url.host):
            problems.add(f"{path}.url", "has an address instead of a name; list it in `replicas`")
        elif name.records == "srv" and not url.has_default_port:
            problems.add(f"{path}.url", "must have no port: SRV records have the ports")


def _check_kubernetes(config: Config, problems: Problems) -> None:
    seen: dict[str, int] = {}
    for index, source in enumerate(config.discovery.kubernetes):
        path = f"discovery.kubernetes[{index}]"
        if problems.is_spoiled("discovery.kubernetes", path):
            continue
        check_model_names(path, source.models, problems)
        check_pool_of(path, source, config, problems)
        check_region(f"{path}.region", source.region, problems)
        if bool(source.service) == bool(source.pods):
            problems.add(path, "needs either service or pods")
        for field, problem in _kubernetes_problems(source):
            if not problems.is_spoiled(f"{path}.{field}"):
                problems.add(f"{path}.{field}", problem)
        if seen.setdefault(source.name, index) != index:
            problems.add(path, f"is the same source as discovery.kubernetes[{seen[source.name]}]")


def _kubernetes_problems(source: KubernetesReplicas) -> Iterator[tuple[str, str]]:
    """Yields each field of a source that has an invalid value, with the problem."""
    for field in ("service", "namespace"):
        value = getattr(source, field)
        if value and not _LABEL.match(value):
            yield field, _LABEL_RULE
    if source.pods and not _SELECTOR.match(source.pods):
        yield "pods", "must be a label selector of 1 to 200 visible ASCII characters"
    port = str(source.port)
    if port.isdecimal() and not 0 < int(port) < 65536:
        yield "port", "must be 1 to 65535, or the name of a port"
    elif port and not _LABEL.match(port):
        yield "port", f"{_LABEL_RULE}, or a number"
    try:
        base_path = parse_replica_url(f"http://pod{source.path}").base_path
    except ValueError as err:
        yield "path", str(err)
    else:
        if source.path and not source.path.startswith("/"):
            yield "path", "must begin with /"
        elif why := id_rule(f"pod{base_path}"):
            yield "path", f"the IDs of its replicas cannot be used: an ID {why}"
    if source.kubeconfig == "":
        yield "kubeconfig", "is empty; it must be the path of a file"
    if source.context and source.kubeconfig is None:
        yield "context", "needs kubeconfig"
