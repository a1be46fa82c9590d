"""Finds the API keys of the configuration that belong to the tenants of a log.

A log has salted hashes of the tenants. A hash in the log equals the hash of a key's name only if
both are made with the same `access_log.salt`. Without this setting, the router draws a new salt at
each start, and the tenants cannot be matched.
"""

from __future__ import annotations

from collections.abc import Collection

from router.config.key_files import read_keys
from router.config.keys import KeyLine, KeysProblem
from router.config.model import Config
from router.core.errors import ConfigError
from router.intake.flow import key_tenant
from router.observe.log.salt import Salter


def keys_of(config: Config, tenants: Collection[str]) -> tuple[dict[str, KeyLine], str]:
    """Return the keys by tenant of the log, and a text for the report.

    The text is "" if no keys are configured. Raises ConfigError for an invalid keys file.
    """
    if config.keys.file is None and config.keys.folder is None:
        return {}, ""
    try:
        lines = read_keys(config.keys)
    except KeysProblem as err:
        raise ConfigError([f"keys.{err.field}: {err}"]) from None
    if not config.access_log.salt:
        return {}, (
            "not simulated: access_log.salt is not set, so tenants of the log cannot be matched to "
            "keys; all tenants have the same weight"
        )
    salter = Salter(config.access_log.salt, 0)
    found = {}
    for line in lines:
        tenant = key_tenant(salter.name, line.name)
        if tenant in tenants:
            found[tenant] = line
    if not found:
        return {}, "no tenant of the log has a key: was it written with another access_log.salt?"
    return found, f"weights and limits of {len(found):,} of {len(tenants):,} tenants with keys"
