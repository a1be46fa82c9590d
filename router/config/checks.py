"""Checks of a configuration that a type cannot express, such as a condition on two settings.

A check is skipped if a setting that it compares is already known to be invalid. `check` calls all
checks. Those of larger sections are in files of their own, such as `admin_checks`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import msgspec

from policies.contract import make_policy
from policies.hedging.contract import make_policy as make_hedging_policy
from policies.queueing.contract import make_order
from policies.registry import PolicyConfigError
from router.config.addons import check_addons
from router.config.address import check_store_url, parse_host, parse_replica_url
from router.config.admin_checks import check_admin, check_listeners
from router.config.annotations import hints, unit_of
from router.config.model import Batches, Config, Cors, Hedging, PolicyChoice, Queue, Routing
from router.config.model.setting_types import in_file
from router.config.problems import Problems
from router.config.replica_checks import check_discovery, check_models, check_region, check_replicas
from router.config.tenant_checks import check_keys, check_priority, check_usage
from router.config.tls import check_token, listening_context, replica_context, try_files
from router.config.units import amount_text, duration_text
from router.fleet.engines.common.registry import PRIVATE_MEMBERS

# A valid name of the router in `Via`: stricter than a pseudonym of RFC 9110 section 7.6.3.
_VIA = re.compile(r"[A-Za-z0-9._-]{1,64}\Z")
_VISIBLE = re.compile(r"/[!-~]*\Z")
# An origin as browsers send it: scheme, host and port; pages without a host have the origin `null`.
_ORIGIN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[A-Za-z0-9._~:\[\]-]+\Z|\*\Z|null\Z")
_DEFAULT_PORT = re.compile(r"(?i)(http://.*(?=:0*80\Z)|https://.*(?=:0*443\Z))")
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+\Z")


def check(config: Config, problems: Problems, *, serves: bool = True) -> None:
    """Adds every error in `config` that the types of its fields do not exclude.

    `serves`: a router will run with this configuration, so replicas are required."""
    check_listeners(config, problems)
    check_admin(config, problems)
    check_replicas(config, problems, serves)
    check_discovery(config, problems)
    _check_regions(config, problems)
    check_models(config, problems)
    check_usage(config, problems)
    _check_policies(config, problems)
    _check_classes(config, problems)
    _check_slos(config, problems)
    _check_tokenizers(config, problems)
    if config.workers > 1 and problems.reads_files and sys.platform != "linux":
        problems.add("workers", "more than one needs Linux")
    if config.share.url:
        problems.parsed("share.url", check_store_url, config.share.url)
    check_addons(config, problems)
    check_priority(config, problems)
    check_keys(config, problems)
    _check_spot(config, problems)
    _check_order(config, problems)
    _check_files(config, problems)
    _check_texts(config, problems)


def _check_regions(config: Config, problems: Problems) -> None:
    regions = config.regions
    check_region("region", config.region, problems)
    if not problems.is_spoiled("regions.networks"):
        for text, region in regions.networks.items():
            path = f"regions.networks.{text}"
            problems.parsed(path, ip_network, text)
            check_region(path, region or " ", problems)
    for path, distance in problems.each("regions.distances", regions.distances):
        problems.require(distance.start != distance.end, path, "start and end must be two regions")
        check_region(f"{path}.start", distance.start or " ", problems)
        check_region(f"{path}.end", distance.end or " ", problems)
    if not problems.is_spoiled("regions.spill_at"):
        text = f"must be at most regions.spill_at ({regions.spill_at:g})"
        problems.require(regions.return_at <= regions.spill_at, "regions.return_at", text)


def _check_policies(config: Config, problems: Problems) -> None:
    _check_policy("routing", config.routing, problems)
    if not problems.is_spoiled("routing"):
        for model, choice in config.routing.models.items():
            _check_policy(f"routing.models.{model}", choice, problems)
    _check_policy("hedging", config.hedging, problems, make_hedging_policy)
    if not problems.is_spoiled("hedging.delay", "hedging.classes"):
        for name in config.hedging.delay:
            if name not in config.hedging.classes:
                problems.add(f"hedging.delay.{name}", f"{name} is not one of hedging.classes")
    _check_policy("queue", config.queue, problems, make_order)


def _check_policy(
    path: str,
    choice: Routing | PolicyChoice | Hedging | Queue,
    problems: Problems,
    make: Callable[[str, dict[str, Any]], object] = make_policy,
) -> None:
    if problems.is_spoiled(f"{path}.policy", f"{path}.options"):
        return
    try:
        make(choice.policy, choice.options)
    except PolicyConfigError as err:
        where = "policy" if err.option is None else f"options.{err.option}"
        problems.add(f"{path}.{where}", str(err))


def _check_classes(config: Config, problems: Problems) -> None:
    """Checks the times of each class, and that the reserved shares add up to at most 1."""
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


def _check_tokenizers(config: Config, problems: Problems) -> None:
    for model, path in config.prefix.tokenizers.items() if problems.reads_files else ():
        if not Path(path).exists():
            problems.add(f"prefix.tokenizers.{model}", f"there is no file or folder {path!r}")


def _check_spot(config: Config, problems: Problems) -> None:
    for path, each in problems.each("spot.metadata", config.spot.metadata):
        problems.parsed(f"{path}.url", parse_replica_url, each.url)
        if each.replica and each.node:
            problems.add(f"{path}.node", "give either replica or node, not both")


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
    check_token("upstream", upstream, problems)
    if not problems.is_spoiled("upstream"):
        if upstream.ca_file is not None and not upstream.verify:
            problems.add("upstream.ca_file", "has no effect when upstream.verify is false")
        elif upstream.ca_file is not None:
            try_files("upstream", lambda: replica_context(upstream), problems)
    batches = config.batches
    is_off = not batches.enabled and not problems.is_spoiled("batches", "batches.folder")
    if is_off and batches.folder != Batches().folder:
        problems.add("batches.folder", "has no effect without batches.enabled: true")
    tls = config.tls
    if tls is not None and not problems.is_spoiled("tls", "tls.cert", "tls.key"):
        try_files("tls", lambda: listening_context(tls), problems)
    if problems.reads_files:
        _check_folders(config, problems)


def _check_folders(config: Config, problems: Problems) -> None:
    """Checks that the folders exist in which the router writes files."""
    if config.batches.enabled and not problems.is_spoiled("batches", "batches.folder"):
        parent = Path(config.batches.folder).absolute().parent
        if not parent.is_dir():
            problems.add("batches.folder", f"there is no directory {str(parent)!r}")
    log = config.access_log.path
    for path, file in (
        ("usage.file", config.usage.file),
        ("access_log.path", None if log in ("", "-") else log),
    ):
        if file is None or problems.is_spoiled(path):
            continue
        if Path(file).is_dir():
            problems.add(path, f"{file!r} is a directory")
        elif not Path(file).parent.is_dir():
            problems.add(path, f"there is no directory {str(Path(file).parent)!r}")


def _check_cors(cors: Cors, problems: Problems) -> None:
    for name, texts, pattern, words in (
        ("origins", cors.origins, _ORIGIN, "an origin (https://HOST, without a path) or *"),
        ("headers", cors.headers, _TOKEN, "the name of a header field or *"),
        ("methods", cors.methods, _TOKEN, "a method"),
        ("exposed", cors.exposed, _TOKEN, "the name of a header field or *"),
    ):
        for path, text in problems.each(f"cors.{name}", texts):
            if not pattern.match(text):
                problems.add(path, f"{text!r} is not {words}")
            elif name == "origins" and (port := _DEFAULT_PORT.match(text)):
                # An Origin never has it (https://html.spec.whatwg.org/#ascii-serialisation-of-an-origin).
                problems.add(path, f"browsers leave out a default port: use {port.group(1)!r}")


def _check_texts(config: Config, problems: Problems) -> None:
    problems.require(_VIA.match(config.via), "via", "must be 1 to 64 letters, digits and ._-")
    _check_cors(config.cors, problems)
    if config.upstream.server_name is not None:
        problems.parsed("upstream.server_name", parse_host, config.upstream.server_name)
    if config.health.path is not None and not problems.is_spoiled("health.path"):
        _check_path("health.path", config.health.path, problems)
    for path, text in problems.each("allow_paths", config.allow_paths):
        _check_path(path, text, problems)
        if "?" in text:
            problems.add(path, "must not have a query: paths are compared without it")
    known = ", ".join(sorted(PRIVATE_MEMBERS))
    for path, name in problems.each("bodies.allow", config.bodies.allow):
        if name not in PRIVATE_MEMBERS:
            problems.add(path, f"{name!r} is never refused; use one of {known}")
    for path, text in problems.each("trusted_proxies", config.trusted_proxies):
        problems.parsed(path, ip_network, text)


def _check_path(path: str, text: str, problems: Problems) -> None:
    if not text.startswith("/"):
        problems.add(path, f"must start with a slash: /{text}")
    elif not _VISIBLE.match(text):
        problems.add(path, "must be visible ASCII characters only")
