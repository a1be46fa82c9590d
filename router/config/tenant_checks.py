"""Checks of `keys`, `priority` and `usage`: the file of keys, tiers, rules, prices and charges."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_network

from router.config.key_files import read_keys
from router.config.keys import KeyLine, KeysProblem, ModelBudgets
from router.config.model import Config
from router.config.model.tenants import ANY
from router.config.problems import Problems
from router.config.tls import FIELD_NAME
from router.core.addons import is_installed
from router.core.time_zone import TimeZone

# Header fields that a setting cannot name: the router drops them or uses them for something else.
_NOT_SEEN = frozenset(
    [
        *("host", "connection", "content-length", "transfer-encoding", "te", "expect", "via"),
        *("keep-alive", "upgrade", "trailer", "authorization", "proxy-authorization", "x-api-key"),
        *("api-key", "x-goog-api-key", "x-forwarded-for", "x-forwarded-proto", "x-forwarded-host"),
        *("forwarded", "x-request-id", "x-router-model", "x-priority", "x-hedge", "x-slo-ttft-ms"),
        *("x-slo-tpot-ms", "x-ttft-estimate", "x-region", "x-served-region"),
    ]
)


def check_priority(config: Config, problems: Problems) -> None:
    """Checks the conditions of the rules in `priority.rules`."""
    for path, rule in problems.each("priority.rules", config.priority.rules):
        if not (rule.header or rule.model or rule.network):
            problems.add(path, "has no header, model or network, so it matches every request")
        if rule.value and not rule.header:
            problems.add(f"{path}.value", "needs header: the name of the header field")
        if rule.header:
            _check_header(f"{path}.header", rule.header, problems)
        if rule.network:
            problems.parsed(f"{path}.network", ip_network, rule.network)


def check_usage(config: Config, problems: Problems) -> None:
    """Checks the time zone, and the paths of `usage.charges.paths`."""
    if problems.is_spoiled("usage"):
        return
    name = config.usage.time_zone
    try:
        TimeZone(name)
    except (KeyError, ValueError, OSError):
        text = f"{name!r} is not a time zone of this machine, such as Europe/Berlin or UTC"
        problems.add("usage.time_zone", text)
    for path in config.usage.charges.paths:
        if not path.startswith("/") or path.endswith("/") or "?" in path:
            here = f"usage.charges.paths.{path}"
            problems.add(here, "is not a path such as /v1/images/generations")


def check_keys(config: Config, problems: Problems) -> None:
    """Checks the user header and the files of keys: their lines, their tiers, and their budgets."""
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
    elif problems.reads_files and not problems.is_spoiled("keys.file", "keys.folder"):
        try:
            lines = read_keys(keys)
        except KeysProblem as err:
            problems.add(f"keys.{err.field}", str(err))
        else:
            field = "keys.folder" if keys.file is None else "keys.file"
            _check_budgets(field, lines, config, problems)
            _check_tiers(field, lines, config, problems)


def _check_budgets(
    field: str, lines: Sequence[KeyLine], config: Config, problems: Problems
) -> None:
    """Checks that budgets can be counted: the addon, and the prices. `field`: of the lines."""
    with_budget = next((line.name for line in lines if line.has_budget), None)
    if with_budget is not None and not is_installed("usage"):
        problems.add(
            field, f"{with_budget} has a budget: needs the addon usage, which is not installed"
        )
    if not problems.is_spoiled("usage", "usage.prices", "models"):
        for line in lines:
            unpriced = _unpriced(line, config)
            if unpriced:
                problems.add(field, f"{line.name} has a budget of money, which needs {unpriced}")
                break


def _check_tiers(field: str, lines: Sequence[KeyLine], config: Config, problems: Problems) -> None:
    """Adds one problem for each unknown tier, with the first name that has it."""
    if problems.is_spoiled("priority.tiers"):
        return
    known = config.priority.tiers
    unknown = {line.tier: line.name for line in reversed(lines) if line.tier not in known}
    unknown.pop("", None)
    for tier, name in sorted(unknown.items()):
        problems.add(
            field,
            f"{name} has the tier {tier!r}, which is not among priority.tiers "
            f"(known: {', '.join(known)})",
        )


def _limits_cost(line: KeyLine | ModelBudgets) -> bool:
    return any((line.cost_per_day, line.cost_per_week, line.cost_per_month))


def _unpriced(line: KeyLine, config: Config) -> str:
    """Return the prices that are missing for a key with a budget of money; "": none."""
    prices = config.usage.prices
    if ANY in prices:
        return ""
    models = [model for model, budgets in line.model_budgets.items() if _limits_cost(budgets)]
    limits_all = _limits_cost(line)
    if limits_all and prices:
        models += [model for name in line.models or () for model in _served_for(name, config)]
    missing = next((model for model in models if model not in prices), None)
    if missing is not None:
        return f'the price of {missing}, or of "{ANY}", in usage.prices'
    if limits_all and not prices:
        return "usage.prices"
    if limits_all and line.models is None:
        return (
            f'a price for every model: the price of "{ANY}" in usage.prices, or models of the key'
        )
    return ""


def _served_for(name: str, config: Config) -> list[str]:
    """Return the models that replicas are asked for if a client asks for `name`."""
    route = config.models.get(name)
    targets = () if route is None else (*route.targets, *route.fallbacks)
    return [target.model or name for target in targets] or [name]


def _check_header(path: str, name: str, problems: Problems) -> None:
    if not FIELD_NAME.match(name):
        problems.add(path, "is not the name of a header field")
    elif name.lower() in _NOT_SEEN:
        problems.add(
            path, f"{name} cannot be used: the router drops this field or reads it in another way"
        )
