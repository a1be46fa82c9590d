"""Checks of replicas and of the names for them: `replicas`, `pools`, `models` and `discovery`.

An entry of the admin API and of a source of discovery is checked like an entry of `replicas`.

Must never: read a file of replicas, or look up a name. A source that does not answer yet is no
mistake in the configuration.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from router.config.addons import check_packages
from router.config.address import (
    ReplicaUrl,
    is_address,
    parse_host,
    parse_replica_url,
    split_name_server,
)
from router.config.keys import REGION, REGION_RULE
from router.config.model import (
    Config,
    Credential,
    KubernetesReplicas,
    Pool,
    Replica,
    ReplicaSettings,
)
from router.config.problems import Problems
from router.config.tls import FIELD_NAME, check_token, pool_context, try_files

# A valid replica ID. It appears in log lines, metric labels, the header X-Router-Replica and the
# paths of the admin API.
_ID: Final = re.compile(r"[A-Za-z0-9._:/\[\]~@+-]{1,200}\Z")
# The IDs of further data-parallel ranks end in this way (`fleet/data_parallel.py`).
_RANK: Final = re.compile(r".*@\d+\Z")
_DOTS: Final = frozenset({".", ".."})
_TCP: Final = re.compile(r"tcp://[^\s:/]+:\d{1,5}\Z|tcp://\[[0-9a-fA-F:]+\]:\d{1,5}\Z")
# Header fields that describe the message or the connection.
_FRAMING: Final = frozenset(
    [
        *("host", "connection", "content-length", "transfer-encoding", "te", "expect", "via"),
        *("keep-alive", "upgrade", "trailer", "content-type", "content-encoding", "x-request-id"),
    ]
)
_FIELD_VALUE: Final = re.compile(r"[!-~](?:[ -~]*[!-~])?\Z")
_POOL_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,64}\Z")
_MODEL_NAME: Final = 256  # maximum characters of a model's name (`intake/body.py`)
# A name of a namespace, a Service or a port in Kubernetes: an RFC 1123 label.
_LABEL: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\Z")
_LABEL_RULE: Final = "must be 1 to 63 lower case letters, digits and -"
_SELECTOR: Final = re.compile(r"[!-~](?:[ -~]{0,198}[!-~])?\Z")


# -- replicas -------------------------------------------------------------------------------------


def check_replicas(config: Config, problems: Problems, serves: bool) -> None:
    """Adds every problem of `replicas`, which the admin API and discovery can extend."""
    _check_entries(config, problems, serves)
    for path, replica in problems.each("replicas", config.replicas):
        check_region(f"{path}.region", replica.region, problems)
    for index, replica in enumerate(config.replicas):
        _check_pool_of(f"replicas[{index}]", replica, config, problems)
    for path, replica in problems.each("replicas", config.replicas):
        events = replica.kv_events
        if events is None or problems.is_spoiled(f"{path}.kv_events"):
            continue
        for field in ("endpoint", "replay"):
            address = getattr(events, field)
            if address is not None and not _TCP.match(address):
                problems.add(f"{path}.kv_events.{field}", "must be tcp://host:port")


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
    engines: dict[tuple[str, int, str], str] = {}  # The path of each engine's first entry.
    ids: dict[str, str] = {}  # The path of each ID's first entry.
    for path, replica in problems.each("replicas", config.replicas):
        address = problems.parsed(f"{path}.url", parse_replica_url, replica.url)
        if address is not None:
            first = engines.setdefault(address.engine, path)
            if first != path:
                problems.add(f"{path}.url", f"is the same engine as {first}; list it only once")
                continue
        if not problems.is_spoiled(f"{path}.id"):
            _check_id(replica, address, path, ids, problems)
            _check_model_names(path, replica.models, problems)


def _check_id(
    replica: Replica, address: ReplicaUrl | None, path: str, ids: dict[str, str], problems: Problems
) -> None:
    """Checks the ID of a replica, and adds it to `ids` with the replica's path."""
    name = replica.id or (address.default_id if address else "")
    if not name:
        return
    if why := id_rule(name):
        source = "" if replica.id else f"{name[:200]!r} is derived from url and cannot be used; "
        problems.add(f"{path}.id", f"{source}{why}")
    elif (first := ids.setdefault(name, path)) != path:
        problems.add(f"{path}.id", f"{name!r} is already the id of {first}")


def id_rule(name: str) -> str:
    """Return the rule that an ID of a replica breaks; "" if the ID is valid."""
    if not _ID.match(name):
        return "must be visible ASCII: 1 to 200 letters, digits and ._:/[]~@+-"
    if _RANK.match(name):
        return "must not end with @ and digits, which name a data-parallel rank"
    if _DOTS & {*name.split("/")}:
        return "must have no segment . or .., which clients remove from a path"
    return ""


def _check_model_names(path: str, models: tuple[str, ...] | None, problems: Problems) -> None:
    """Adds the problems of the models of an entry. `path`: the path of the entry."""
    text = 'is empty; name models, or "*" for any, or remove it to read them from the replica'
    problems.require(models != (), f"{path}.models", text)
    for here, model in problems.each(f"{path}.models", models or ()):
        problems.require(model, here, "a model's name cannot be empty")


def check_region(path: str, name: str, problems: Problems) -> None:
    """Adds a problem if `name` is not a valid name of a region. "": no region is stated."""
    problems.require(not name or REGION.match(name), path, REGION_RULE)


# -- pools, and the models that clients ask for ---------------------------------------------------


def check_models(config: Config, problems: Problems) -> None:
    """Adds the problems of `models` and `pools`."""
    for name, pool in config.pools.items():
        if not _POOL_NAME.match(name):
            problems.add(f"pools.{name}", "must be 1 to 64 letters, digits and ._-")
        if not problems.is_spoiled(f"pools.{name}"):
            _check_access(f"pools.{name}", pool, problems)
    for name in config.models:
        path = f"models.{name}"
        if not 0 < len(name) <= _MODEL_NAME:
            problems.add(path, f"a model's name has 1 to {_MODEL_NAME} characters")
        if not problems.is_spoiled(path, f"{path}.targets"):
            _check_route(path, name, config, problems)


def _check_route(path: str, name: str, config: Config, problems: Problems) -> None:
    """Checks the targets and the fallbacks of one name in `models`."""
    route = config.models[name]
    seen: set[tuple[str, str]] = set()
    count = 0
    for here, target in problems.each(f"{path}.targets", route.targets):
        count += 1
        _check_pool(f"{here}.pool", target.pool, config, problems)
        if (target.model or name, target.pool) in seen:
            problems.add(here, "has the model and the pool of an earlier target")
        seen.add((target.model or name, target.pool))
    for here, fallback in problems.each(f"{path}.fallbacks", route.fallbacks):
        _check_pool(f"{here}.pool", fallback.pool, config, problems)
    # An invalid item is not a target.
    if count == len(route.targets) > 0 and not any(each.weight for each in route.targets):
        problems.add(f"{path}.targets", "one weight must be above 0")


def _check_pool_of(path: str, replica: ReplicaSettings, config: Config, problems: Problems) -> None:
    """Adds the problems of the pool and the credential of an entry. `path`: the path of the entry.

    `replica`: an entry of `replicas`, of the admin API or of discovery.
    """
    if not problems.is_spoiled(f"{path}.pool"):
        _check_pool(f"{path}.pool", replica.pool, config, problems)
        pool = config.pools.get(replica.pool)
        if pool is not None and pool.external and not replica.models:
            problems.add(f"{path}.models", "is needed in an external pool")
    _check_credential(f"{path}.credential", replica.credential, problems)


def _check_pool(path: str, name: str, config: Config, problems: Problems) -> None:
    if not problems.is_spoiled("pools"):
        is_known = not name or name in config.pools
        problems.require(is_known, path, f"there is no pool {name!r} in pools")


def _check_access(path: str, pool: Pool, problems: Problems) -> None:
    """Checks how the replicas of a pool are reached."""
    _check_credential(f"{path}.credential", pool.credential, problems)
    if not problems.is_spoiled(f"{path}.headers"):
        for name, value in pool.headers.items():
            if not FIELD_NAME.match(name) or name.lower() in _FRAMING:
                problems.add(f"{path}.headers.{name}", "is not a header field that can be set")
            elif not _FIELD_VALUE.match(value):
                problems.add(f"{path}.headers.{name}", "must be one line of visible ASCII")
    if pool.ca_file is not None and not problems.is_spoiled(f"{path}.ca_file"):
        try_files(path, lambda: pool_context(pool), problems)
    if pool.server_name is not None:
        problems.parsed(f"{path}.server_name", parse_host, pool.server_name)


def _check_credential(path: str, credential: Credential | None, problems: Problems) -> None:
    if credential is None or problems.is_spoiled(path):
        return
    check_token(path, credential, problems, is_needed=True)
    if not FIELD_NAME.match(credential.header) or credential.header.lower() in _FRAMING:
        problems.add(f"{path}.header", "is not a header field that can hold a token")


# -- discovery ------------------------------------------------------------------------------------


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
    for path, server in problems.each("discovery.nameservers", discovery.nameservers):
        problems.parsed(path, split_name_server, server)
    # The machine of the configuration may have other packages.
    if problems.reads_files and discovery.dns:
        check_packages("discovery.dns", ("dns",), "dns", problems)


def _check_found(path: str, source: ReplicaSettings, config: Config, problems: Problems) -> None:
    """Checks what all replicas of a source have in common."""
    _check_model_names(path, source.models, problems)
    _check_pool_of(path, source, config, problems)
    check_region(f"{path}.region", source.region, problems)


def _check_names(config: Config, problems: Problems) -> None:
    seen: dict[tuple[ReplicaUrl, str], str] = {}
    for path, name in problems.each("discovery.dns", config.discovery.dns):
        url = problems.parsed(f"{path}.url", parse_replica_url, name.url)
        _check_found(path, name, config, problems)
        if url is None:
            continue
        if why := id_rule(url.default_id):
            problems.add(f"{path}.url", f"the IDs of its replicas cannot be used: an ID {why}")
        first = seen.setdefault((url, name.records), path)
        if first != path:
            problems.add(f"{path}.url", f"is the same name as {first}")
        elif is_address(url.host):
            problems.add(f"{path}.url", "has an address instead of a name; list it in `replicas`")
        elif name.records == "srv" and not url.has_default_port:
            problems.add(f"{path}.url", "must have no port: SRV records have the ports")


def _check_kubernetes(config: Config, problems: Problems) -> None:
    seen: dict[str, str] = {}
    for path, source in problems.each("discovery.kubernetes", config.discovery.kubernetes):
        _check_found(path, source, config, problems)
        if bool(source.service) == bool(source.pods):
            problems.add(path, "needs either service or pods")
        for field, problem in _kubernetes_problems(source):
            if not problems.is_spoiled(f"{path}.{field}"):
                problems.add(f"{path}.{field}", problem)
        if (first := seen.setdefault(source.name, path)) != path:
            problems.add(path, f"is the same source as {first}")


def _kubernetes_problems(source: KubernetesReplicas) -> Iterator[tuple[str, str]]:
    """Yields each field of a source that has an invalid value, with the problem."""
    for field in ("service", "namespace"):
        value = getattr(source, field)
        if value and not _LABEL.match(value):
            yield field, _LABEL_RULE
    if source.pods and not _SELECTOR.match(source.pods):
        yield "pods", "must be a label selector of 1 to 200 visible ASCII characters"
    for field, why in (("port", _port_rule(str(source.port))), ("path", _path_rule(source.path))):
        if why:
            yield field, why
    if source.kubeconfig == "":
        yield "kubeconfig", "is empty; it must be the path of a file"
    if source.context and source.kubeconfig is None:
        yield "context", "needs kubeconfig"


def _port_rule(port: str) -> str:
    """Return the rule that the port of a source breaks; "" if it is valid."""
    if port.isdecimal() and not 0 < int(port) < 65536:
        return "must be 1 to 65535, or the name of a port"
    return f"{_LABEL_RULE}, or a number" if port and not _LABEL.match(port) else ""


def _path_rule(path: str) -> str:
    """Return the rule that a base path of the replicas of a source breaks; "" if it is valid."""
    try:
        base_path = parse_replica_url(f"http://pod{path}").base_path
    except ValueError as err:
        return str(err)
    if path and not path.startswith("/"):
        return "must begin with /"
    why = id_rule(f"pod{base_path}")
    return f"the IDs of its replicas cannot be used: an ID {why}" if why else ""
