"""The shipped configuration with shorter intervals; the factor is defined only here.

Everything that is on as shipped stays on. Only the intervals of the control plane change: probes,
polls, expiry, suspicion, ejection. Limits on one answer (`timeout_s`) stay as shipped, because a
busy test machine is not faster. In virtual time, the intervals are the shipped ones.
"""

from typing import Any, TypeVar

import msgspec

from router.config.model import Classes, Health, Polling
from router.config.model.setting_types import in_file
from tests.harness.virtual_time import is_virtual

FASTER = 10.0  # factor on the shipped intervals: a probe every 0.5 s, a poll every 0.1 s
NEVER_S = 3600.0

Section = TypeVar("Section", Health, Polling)


def health(**changed: Any) -> Health:
    """The health rules, with these fields changed."""
    return msgspec.structs.replace(_faster(Health()), **changed)


def polling(**changed: Any) -> Polling:
    """The polling rules, with these fields changed."""
    return msgspec.structs.replace(_faster(Polling()), **changed)


def classes(given: Classes | None = None) -> Classes:
    """These class settings, or the shipped ones. `absent_s`, the wait for an absent fleet, is
    shorter unless the test sets it.
    """
    shipped = Classes().by_name
    changed: dict[str, Any] = {}
    for name, own in (Classes() if given is None else given).by_name.items():
        if own.absent_s == shipped[name].absent_s:
            own = msgspec.structs.replace(own, absent_s=own.absent_s / _factor())
        changed[name] = own
    return Classes(**changed)


def _factor() -> float:
    """The factor on the shipped intervals: virtual time needs no shorter ones."""
    return 1.0 if is_virtual() else FASTER


def _faster(shipped: Section) -> Section:
    """A section with shorter times; counts, shares and bounds are unchanged."""
    return msgspec.structs.replace(
        shipped,
        **{
            name: getattr(shipped, name) / _factor()
            for name in shipped.__struct_fields__
            if name.endswith("_s") and name != "timeout_s"
        },
    )


# No probes after those of the start, and no polls: for tests with `quiet_control_plane`.
QUIET_HEALTH = {"interval_s": NEVER_S, "models_interval_s": NEVER_S}
QUIET_POLLING = {"interval_s": 0.0}


def as_yaml() -> str:
    """The sections with shorter intervals, in the format of a configuration file."""
    sections = {"health": _faster(Health()), "polling": _faster(Polling())}
    lines = []
    for name, section in sections.items():
        times = {
            field: getattr(section, field)
            for field in section.__struct_fields__
            if field.endswith("_s") and field != "timeout_s"
        }
        fields = ", ".join(f"{in_file(k)}: {v:g}" for k, v in times.items())
        lines.append(f"{name}: {{{fields}}}\n")
    return "".join(lines)
