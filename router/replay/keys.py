"""The keys of the configuration, by the names that a log has for their tenants.

A log has salted hashes. They are those of the keys' names only under the same `access_log.salt`;
without one each start of the router draws another, and nobody can tell which tenant is which.
"""

from __future__ import annotations

from collections.abc import Collection

from router.config.keys import KeyLine, KeysProblem, read_keys
from router.config.model import Config
from router.core.errors import ConfigError
from router.intake.flow import key_tenant
from router.observe.log.salt import Salter


def keys_of(config: Config, tenants: Collection[str]) -> tuple[dict[str, KeyLine], str]:
    """The keys of those tenants of the log that have one, and what to say of it; "": there are no
    keys. Raises ConfigError for a file that cannot be used."""
    if config.keys.file is None:
        return {}, ""
    try:
        lines = read_keys(config.keys.file)
    except KeysProblem as err:
        raise ConfigError([f"keys.file: {err}"]) from None
    if not config.access_log.salt:
        return {}, (
            "not simulated: access_log.salt is not set, so that the log does not tell which tenant "
            "has which key; all tenants weigh the same"
        )
    salter = Salter(config.access_log.salt, 0)
    found = {}
    for line in lines:
        tenant = key_tenant(salter.name, line.name)
        if tenant in tenants:
            found[tenant] = line
    if not found:
        return {}, "none is in the log: was it written with another access_log.salt?"
    return found, f"weights and limits of {len(found):,} of {len(tenants):,} tenants with keys"
