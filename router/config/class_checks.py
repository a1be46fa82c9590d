"""Checks of `classes`: times, shares, and SLOs that are in the order of the classes.

Every check adds the errors that it finds to `Problems`. No check raises an exception or changes the
configuration.
"""

from __future__ import annotations

from router.config.model import Config
from router.config.model.setting_types import in_file
from router.config.problems import Problems
from router.config.units import duration_text


def check_classes(config: Config, problems: Problems) -> None:
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


def check_slos(config: Config, problems: Problems) -> None:
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
