"""Which settings need an addon of `router/addons`, and which optional packages the addon needs.

A row names an addon; it does not import it. If the folder of the addon is missing, a configuration
that needs it is invalid.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Final, NamedTuple

from router.config.keys import KeyLine
from router.config.model import Config
from router.config.problems import Problems
from router.core.addons import is_installed


class Need(NamedTuple):
    setting: str
    is_set: Callable[[Config], bool]
    modules: tuple[str, ...] = ()  # What it imports of its optional packages.
    extra: str = ""  # The name of these packages for pip.


NEEDS: Final[Mapping[str, Need]] = {
    "batches": Need("batches.enabled", lambda config: config.batches.enabled),
    "continuation": Need("continuation.enabled", lambda config: config.continuation.enabled),
    "kubernetes": Need(
        "discovery.kubernetes",
        lambda config: bool(config.discovery.kubernetes),
        ("kubernetes",),
        "kubernetes",
    ),
    "preemption": Need("queue.preemption.enabled", lambda config: config.queue.preemption.enabled),
    "reservations": Need(
        "queue.reservations.enabled", lambda config: config.queue.reservations.enabled
    ),
    "kv_events": Need(
        "prefix.exact",
        lambda config: config.prefix.exact,
        ("zmq", "tokenizers", "jinja2"),
        "kv-events",
    ),
    "share": Need("share.url", lambda config: bool(config.share.url), ("redis",), "share"),
    "spot_notices": Need(
        "spot", lambda config: bool(config.spot.metadata) or config.spot.notice_file is not None
    ),
    "usage": Need("usage.file", lambda config: config.usage.file is not None),  # Or a budget.
}


def wanted(config: Config, keys: Sequence[KeyLine] = ()) -> dict[str, str]:
    """Return the addons that a configuration needs, each with the setting that needs it.

    Keys without a budget use the addon `usage` if it is installed. So a budget that a reload adds
    counts what its tenant used before.
    """
    found = {name: need.setting for name, need in NEEDS.items() if need.is_set(config)}
    if config.workers > 1:  # They tell each other without a server.
        found.setdefault("share", "workers")
    if keys and (any(line.has_budget for line in keys) or is_installed("usage")):
        found.setdefault("usage", "a budget in keys.file or keys.folder")
    return found


def check_addons(config: Config, problems: Problems) -> None:
    """Adds a problem for each addon, or optional package, that is needed and not installed."""
    if not problems.reads_files:
        return  # The machine of the configuration may have other packages.
    for name, setting in wanted(config).items():
        need = NEEDS[name]
        if problems.is_spoiled(setting):
            continue
        if not is_installed(name):
            problems.add(setting, f"needs the addon {name}, which is not installed")
        elif setting == need.setting:
            check_packages(setting, need.modules, need.extra, problems)


def check_packages(setting: str, modules: tuple[str, ...], extra: str, problems: Problems) -> None:
    missing = [name for name in modules if find_spec(name) is None]
    if missing:
        text = f"needs {', '.join(missing)}: pip install '.[{extra}]'"
        problems.add(setting, text)
