"""Checks of a configuration that a type cannot express, such as a condition on two settings.

Every check adds the errors that it finds to `Problems`. No check raises an exception or changes the
configuration. A check is skipped if a setting that it compares is already known to be invalid.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib.util import find_spec
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import msgspec

from policies.contract import make_policy
from policies.hedging.contract import make_policy as make_hedging_policy
from policies.queueing.contract import make_order
from policies.registry import PolicyConfigError
from router.config.address import is_loopback, parse_host, split_host_port
from router.config.annotations import hints, unit_of
from router.config.discovery_checks import check_discovery
from router.config.file_checks import FIELD_NAME, try_files
from router.config.key_files import read_keys
from router.config.keys import KeysProblem
from router.config.model import Admin, Config, Hedging, PolicyChoice, Routing, Upstream
from router.config.model.setting_types import in_file
from router.config.pool_checks import check_models
from router.config.problems import Problems
from router.config.replica_checks import check_region, check_replicas, check_url
from router.config.tls import (
    admin_context,
    listening_context,
    replica_context,
    token_of,
)
from router.config.units import amount_text, duration_text

_WILDCARDS = frozenset({"0.0.0.0", "::"})
_EXACT_NEEDS = ("zmq", "tokenizers", "jinja2")
# A valid name of the router in `Via`: stricter than a pseudonym of RFC 9110 section 7.6.3.
_VIA = re.compile(r"[A-Za-z0-9._-]{1,64}\Z")
# Header fields that a setting cannot name: the router drops them or uses them for something else.
_NOT_SEEN = frozenset(
    [
        "host",
        "connection",
        "content-length",
        "transfer-encoding",
        "te",
        "expect",
        "via",
        "keep-alive",
        "upgrade",
        "trailer",
        "authorization",
        "proxy-authorization",
        "x-api-key",
        "x-forwarded-for",
        "x-forwarded-proto",
        "x-forwarded-host",
        "forwarded",
        "x-request-id",
        "x-router-model",
        "x-priority",
        "x-hedge",
        "x-slo-ttft-ms",
        "x-slo-tpot-ms",
        "x-ttft-estimate",
        "x-region",
        "x-served-region",
    ]
)
_VISIBLE = re.compile(r"/[!-~]*\Z")


def check(config: Config, problems: Problems, *, serves: bool = True) -> None:
    """Adds every error in `config` that the types of its fields do not exclude.

    `serves`: a router will run with this configuration, so replicas are required."""
    _check_listeners(config, problems)
    _check_admin(config, problems)
    check_replicas(config, problems, serves)
    check_discovery(config, problems)
    _check_regions(config, problems)
    check_models(config, problems)
    _check_routing(config, problems)
    _check_policy("hedging", config.hedging, problems, make_hedging_policy)
    _check_queue(config, problems)
    _check_classes(config, problems)
    _check_slos(config, problems)
    _check_exact(config, problems)
    _check_priority(config, problems)
    _check_keys(config, problems)
    _check_spot(config, problems)
    _check_order(config, problems)
    _check_files(config, problems)
    _check_texts(config, problems)


def _check_listeners(config: Config, problems: Problems) -> None:
    listeners = [("listen", config.listen), ("admin.listen", config.admin.listen)]
    if config.admin.probes_listen is not None:
        listeners.append(("admin.probes_listen", config.admin.probes_listen))
    found: list[tuple[str, str, str, int]] = []
    for path, text in listeners:
        if problems.is_spoiled(path):
            continue
        try:
            if path == "admin.listen" and text.isdigit():
                raise ValueError(
                    f"a port alone would listen on every interface; write 127.0.0.1:{text}"
                )
            host, port = split_host_port(text)
        except ValueError as err:
            problems.add(path, str(err))
            continue
        for other, other_text, other_host, other_port in found:
            is_shared = host == other_host or not _WILDCARDS.isdisjoint((host, other_host))
            if port and port == other_port and is_shared:
                problems.add(path, f"has the port of {other} ({other_text}); use another port")
        found.append((path, text, host, port))


def _check_admin(config: Config, problems: Problems) -> None:
    """Checks the files of the admin port, and that other machines need a token or a certificate."""
    admin = config.admin
    tls = admin.tls
    if tls is not None and not problems.is_spoiled("admin.tls", "admin.tls.cert", "admin.tls.key"):
        try_files("admin.tls", lambda: admin_context(tls), problems)
    _check_token("admin", admin, problems)
    if problems.is_spoiled("admin.listen", "admin.token", "admin.token_file", "admin.tls"):
        return
    host, _ = split_host_port(admin.listen)
    if not is_guarded(admin, host):
        problems.add(
            "admin.token",
            f"is missing: other machines can reach admin.listen ({admin.listen}). "
            "Set admin.token_file or admin.tls.client_ca, or listen on 127.0.0.1; "
            "admin.probes_listen needs no token",
        )


def is_guarded(admin: Admin, host: str) -> bool:
    """Whether an admin port at the address `host` is safe from other machines.

    Either other machines cannot reach the port, or they need a token or a certificate.
    """
    has_token = admin.token is not None or admin.token_file is not None
    has_ca = admin.tls is not None and admin.tls.client_ca is not None
    return has_token or has_ca or is_loopback(host)


def _check_regions(config: Config, problems: Problems) -> None:
    named = [("region", config.region)]
    regions = config.regions
    if not problems.is_spoiled("regions.networks"):
        for text, region in regions.networks.items():
            path = f"regions.networks.{text}"
            named.append((path, region or " "))
            try:
                ip_network(text)
            except ValueError as err:
                problems.add(path, str(err))
    for index, distance in enumerate(regions.distances):
        path = f"regions.distances[{index}]"
        if not problems.is_spoiled(path):
            named.append((f"{path}.start", distance.start or " "))
            named.append((f"{path}.end", distance.end or " "))
            if distance.start == distance.end:
                problems.add(path, "start and end must be two regions")
    for path, name in named:
        check_region(path, name, problems)
    if regions.return_at > regions.spill_at and not problems.is_spoiled(
        "regions.return_at", "regions.spill_at"
    ):
        problems.add(
            "regions.return_at", f"must be at most regions.spill_at ({regions.spill_at:g})"
        )


def _check_routing(config: Config, problems: Problems) -> None:
    if problems.is_spoiled("routing"):
        return
    _check_policy("routing", config.routing, problems)
    for model, choice in config.routing.models.items():
        _check_policy(f"routing.models.{model}", choice, problems)


def _check_policy(
    path: str,
    choice: Routing | PolicyChoice | Hedging,
    problems: Problems,
    make: Callable[[str, dict[str, Any]], object] = make_policy,
) -> None:
    if problems.is_spoiled(path, f"{path}.policy", f"{path}.options"):
        return
    try:
        make(choice.policy, choice.options)
    except PolicyConfigError as err:
        where = f"{path}.policy" if err.option is None else f"{path}.options.{err.option}"
        problems.add(where, str(err))


def _check_queue(config: Config, problems: Problems) -> None:
    queue = config.queue
    if problems.is_spoiled("queue"):
        return
    if not problems.is_spoiled("queue.policy", "queue.options"):
        try:
            make_order(queue.policy, queue.options)
        except PolicyConfigError as err:
            where = "policy" if err.option is None else f"options.{err.option}"
            problems.add(f"queue.{where}", str(err))


def _check_classes(config: Config, problems: Problems) -> None:
    are_shares_used = config.queue.reservations.enabled
    shares = 0.0
    for name, rules in config.classes.by_name.items():
        path = f"classes.{name}"
        if problems.is_spoiled(f"{path}.wait", f"{path}.starvation", f"{path}.share"):
            return
        shares += rules.share
        if 0.0 < rules.wait_s < rules.starvation_s:
            problems.add(
                f"{path}.starvation",
                f"must be at most wait ({duration_text(rules.wait_s)}): "
                "a request is promoted before it expires",
            )
        if are_shares_used and rules.share <= 0.0:
            problems.add(
                f"{path}.share", "must be above 0: a class without a share may never be served"
            )
    if are_shares_used and shares > 1.0 + 1e-9:
        problems.add("classes", f"the shares of all classes add up to {shares:.4g}; at most 1")


def _check_slos(config: Config, problems: Problems) -> None:
    """Checks that no class has a tighter SLO than a more urgent class.

    A client cannot set an SLO below the SLO of the next more urgent class."""
    for field in ("ttft_slo_s", "tpot_slo_s"):
        before, before_path = 0.0, ""
        for name, rules in config.classes.by_name.items():
            path = f"classes.{name}.{in_file(field)}"
            if problems.is_spoiled(path):
                continue
            slo_s: float = getattr(rules, field)
            if slo_s < before:
                problems.add(
                    path,
                    f"must be at least {before_path} ({duration_text(before)}), "
                    f"not {duration_text(slo_s)}: a more urgent class has the tighter SLO",
                )
            else:
                before, before_path = slo_s, path


def _check_exact(config: Config, problems: Problems) -> None:
    """If `prefix.exact` is on, checks that the optional packages for KV events are installed."""
    if config.prefix.exact and not problems.is_spoiled("prefix.exact"):
        missing = [name for name in _EXACT_NEEDS if find_spec(name) is None]
        if missing:
            problems.add("prefix.exact", f"needs {', '.join(missing)}: pip install '.[kv-events]'")
    for model, path in config.prefix.tokenizers.items():
        if not Path(path).exists():
            problems.add(f"prefix.tokenizers.{model}", f"there is no file or folder {path!r}")


def _check_priority(config: Config, problems: Problems) -> None:
    for index, rule in enumerate(config.priority.rules):
        path = f"priority.rules[{index}]"
        if problems.is_spoiled(path):
            continue
        if not (rule.header or rule.model or rule.network):
            problems.add(path, "has no header, model or network, so it matches every request")
        if rule.value and not rule.header:
            problems.add(f"{path}.value", "needs header: the name of the header field")
        if rule.header:
            _check_header(f"{path}.header", rule.header, problems)
        if rule.network:
            try:
                ip_network(rule.network)
            except ValueError as err:
                problems.add(f"{path}.network", str(err))


def _check_keys(config: Config, problems: Problems) -> None:
    keys = config.keys
    if problems.is_spoiled("keys"):
        return
    if not problems.is_spoiled("keys.user_header"):
        _check_header("keys.user_header", keys.user_header, problems)
    if keys.file is None and keys.folder is None:
        if keys.required:
            problems.add(
                "keys.required", "needs keys.file or keys.folder: without it no key is known"
            )
        return
    if problems.is_spoiled("keys.file", "keys.folder"):
        return
    field = "keys.folder" if keys.file is None else "keys.file"
    try:
        lines = read_keys(keys)
    except KeysProblem as err:
        problems.add(f"keys.{err.field}", str(err))
        return
    is_priced = bool(config.usage.prices) or problems.is_spoiled("usage", "usage.prices")
    for line in lines:
        if not is_priced and (line.cost_per_day or line.cost_per_month):
            problems.add(field, f"{line.name} has a budget of money, which needs usage.prices")
            break
    if not problems.is_spoiled("priority.tiers"):
        known = config.priority.tiers
        # One problem for each unknown tier, with the first name that has it.
        unknown = {line.tier: line.name for line in reversed(lines) if line.tier not in known}
        unknown.pop("", None)
        for tier, name in sorted(unknown.items()):
            problems.add(
                field,
                f"{name} has the tier {tier!r}, which is not among priority.tiers "
                f"(known: {', '.join(known)})",
            )


def _check_spot(config: Config, problems: Problems) -> None:
    for index, each in enumerate(config.spot.metadata):
        path = f"spot.metadata[{index}]"
        if problems.is_spoiled("spot", path):
            continue
        check_url(each.url, f"{path}.url", problems)
        if each.replica and each.node:
            problems.add(f"{path}.node", "give either replica or node, not both")


def _check_header(path: str, name: str, problems: Problems) -> None:
    if not FIELD_NAME.match(name):
        problems.add(path, "is not the name of a header field")
    elif name.lower() in _NOT_SEEN:
        problems.add(
            path, f"{name} cannot be used: the router drops this field or reads it in another way"
        )


def _check_order(config: Config, problems: Problems) -> None:
    """Checks pairs of settings in which one must not exceed the other."""
    for section, larger, smaller, is_strict in (
        ("limits", "write_high", "write_low", True),
        ("limits", "head", "request_line", False),
        ("limits", "bodies_total", "body", False),
        ("timeouts", "pool_age_s", "pool_idle_s", False),
        ("health", "eject_max_s", "eject_base_s", False),
        ("discovery", "ttl_max_s", "ttl_min_s", False),
        ("discovery", "retry_max_s", "ttl_min_s", False),
    ):
        paths = f"{section}.{in_file(larger)}", f"{section}.{in_file(smaller)}"
        if problems.is_spoiled(*paths):
            continue
        values: msgspec.Struct = getattr(config, section)
        high, low = getattr(values, larger), getattr(values, smaller)
        if high < low or (is_strict and high == low):
            words = "above" if is_strict else "at least"
            unit = unit_of(hints(type(values))[larger])
            low_text, high_text = amount_text(low, unit), amount_text(high, unit)
            problems.add(paths[0], f"must be {words} {paths[1]} ({low_text}), not {high_text}")


def _check_files(config: Config, problems: Problems) -> None:
    upstream = config.upstream
    _check_token("upstream", upstream, problems)
    if not problems.is_spoiled("upstream"):
        if upstream.ca_file is not None and not upstream.verify:
            problems.add("upstream.ca_file", "has no effect when upstream.verify is false")
        elif upstream.ca_file is not None:
            try_files("upstream", lambda: replica_context(upstream), problems)
    tls = config.tls
    if tls is not None and not problems.is_spoiled("tls", "tls.cert", "tls.key"):
        try_files("tls", lambda: listening_context(tls), problems)
    if config.batches.enabled and not problems.is_spoiled("batches", "batches.folder"):
        parent = Path(config.batches.folder).absolute().parent
        if not parent.is_dir():
            problems.add("batches.folder", f"there is no directory {str(parent)!r}")
    usage = config.usage.file
    if usage is not None and not problems.is_spoiled("usage", "usage.file"):
        if Path(usage).is_dir():
            problems.add("usage.file", f"{usage!r} is a directory")
        elif not Path(usage).absolute().parent.is_dir():
            problems.add("usage.file", f"there is no directory {str(Path(usage).parent)!r}")
    log = config.access_log.path
    if log not in ("", "-") and not problems.is_spoiled("access_log.path"):
        if Path(log).is_dir():
            problems.add("access_log.path", f"{log!r} is a directory")
        elif not Path(log).parent.is_dir():
            problems.add("access_log.path", f"there is no directory {str(Path(log).parent)!r}")


def _check_token(path: str, section: Upstream | Admin, problems: Problems) -> None:
    if problems.is_spoiled(path):
        return
    if section.token is not None and section.token_file is not None:
        problems.add(f"{path}.token_file", "give either token or token_file, not both")
    else:
        try_files(path, lambda: token_of(section), problems)


def _check_texts(config: Config, problems: Problems) -> None:
    if not _VIA.match(config.via) and not problems.is_spoiled("via"):
        problems.add("via", "must be 1 to 64 letters, digits and ._-")
    name = config.upstream.server_name
    if name is not None and not problems.is_spoiled("upstream.server_name"):
        try:
            parse_host(name)
        except ValueError as err:
            problems.add("upstream.server_name", str(err))
    if config.health.path is not None and not problems.is_spoiled("health.path"):
        _check_path("health.path", config.health.path, problems)
    for index, text in enumerate(config.allow_paths):
        path = f"allow_paths[{index}]"
        if not problems.is_spoiled(path):
            _check_path(path, text, problems)
            if "?" in text:
                problems.add(path, "must not have a query: paths are compared without it")
    for index, text in enumerate(config.trusted_proxies):
        path = f"trusted_proxies[{index}]"
        if problems.is_spoiled(path):
            continue
        try:
            ip_network(text)
        except ValueError as err:
            problems.add(path, str(err))


def _check_path(path: str, text: str, problems: Problems) -> None:
    if not text.startswith("/"):
        problems.add(path, f"must start with a slash: /{text}")
    elif not _VISIBLE.match(text):
        problems.add(path, "must be visible ASCII characters only")
