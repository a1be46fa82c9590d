"""Checks of `models`, `pools` and the credentials of replicas.

Every check adds the errors that it finds to `Problems`. No check raises an exception or changes the
configuration.
"""

from __future__ import annotations

import re
from typing import Final

from router.config.address import parse_host
from router.config.file_checks import FIELD_NAME, check_token, try_files
from router.config.model import Config, Credential, Pool, ReplicaSettings
from router.config.problems import Problems
from router.config.tls import pool_context

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


def check_pool_of(path: str, replica: ReplicaSettings, config: Config, problems: Problems) -> None:
    """Adds the problems of the pool and the credential of an entry. `path`: the path of the entry.

    `replica`: an entry of `replicas`, of the admin API or of discovery.
    """
    if not problems.is_spoiled(path, f"{path}.pool"):
        _check_pool(f"{path}.pool", replica.pool, config, problems)
        pool = config.pools.get(replica.pool)
        if pool is not None and pool.external and not replica.models:
            problems.add(f"{path}.models", "is needed in an external pool")
    if not problems.is_spoiled(path):
        _check_credential(f"{path}.credential", replica.credential, problems)


def check_models(config: Config, problems: Problems) -> None:
    """Adds the problems of `models` and `pools`."""
    for name, pool in config.pools.items():
        if not _POOL_NAME.match(name):
            problems.add(f"pools.{name}", "must be 1 to 64 letters, digits and ._-")
        if not problems.is_spoiled(f"pools.{name}"):
            _check_access(f"pools.{name}", pool, problems)
    for name, route in config.models.items():
        path = f"models.{name}"
        if not 0 < len(name) <= _MODEL_NAME:
            problems.add(path, f"a model's name has 1 to {_MODEL_NAME} characters")
        if problems.is_spoiled(path, f"{path}.targets"):
            continue
        seen: set[tuple[str, str]] = set()
        has_problem = False
        for index, target in enumerate(route.targets):
            here = f"{path}.targets[{index}]"
            if problems.is_spoiled(here):
                has_problem = True  # An invalid item is not a target.
                continue
            _check_pool(f"{here}.pool", target.pool, config, problems)
            if (target.model or name, target.pool) in seen:
                problems.add(here, "has the model and the pool of an earlier target")
            seen.add((target.model or name, target.pool))
        for index, fallback in enumerate(route.fallbacks):
            here = f"{path}.fallbacks[{index}]"
            if not problems.is_spoiled(here):
                _check_pool(f"{here}.pool", fallback.pool, config, problems)
        if route.targets and not (has_problem or any(each.weight for each in route.targets)):
            problems.add(f"{path}.targets", "one weight must be above 0")


def _check_pool(path: str, name: str, config: Config, problems: Problems) -> None:
    if name and name not in config.pools and not problems.is_spoiled(path, "pools"):
        problems.add(path, f"there is no pool {name!r} in pools")


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
