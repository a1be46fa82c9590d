"""The credentials and TLS settings for connections to replicas, read from their files.

Must never: give a replica the credential of another one.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from typing import Final

from router.app.listeners import OwnListeners
from router.config.address import parse_replica_url
from router.config.admin_checks import needs_secret
from router.config.model import Config, Pool as PoolConfig, Replica as ReplicaConfig
from router.config.model.setting_types import TokenSource
from router.config.tls import FileProblem, pool_context, replica_context, token_of
from router.core.errors import ConfigError
from router.fleet.access import Access
from router.fleet.replica import Replica

NO_POOL: Final = PoolConfig()


class Upstream:
    """The credentials and TLS settings for connections to replicas, read from their files."""

    def __init__(
        self, config: Config, own: OwnListeners, added: Iterable[ReplicaConfig] = ()
    ) -> None:
        """Reads the files that the configuration names.

        `added`: the replicas that the admin API has added. Raises ConfigError if a file cannot be
        used, or a replica is one of the router's own listeners.
        """
        self._own = own
        self.token = token_in(config.upstream, "upstream")
        self.tls: ssl.SSLContext | None = None
        self.server_name = config.upstream.server_name
        self.authorization = f"authorization: Bearer {self.token}".encode() if self.token else None
        # What the requests to single replicas have of their own, by replica ID.
        self.access: dict[str, Access] = {}
        # The TLS contexts of pools with settings of their own, by name.
        self._pool_tls: dict[str, ssl.SSLContext] = {}
        for replica in config.replicas:
            self.learn(replica, config)
        for replica in added:
            self.learn(replica, config, is_added=True)

    def learn(self, replica: ReplicaConfig, config: Config, *, is_added: bool = False) -> None:
        """Reads the certificates and the credential that a replica needs.

        `is_added`: the admin API has added the replica. Raises ConfigError, and then changes
        nothing.
        """
        self.check_not_own(replica)
        pool = _pool_of(replica, config)
        where, credential = f"pools.{replica.pool}", pool.credential
        if replica.credential is not None:
            where, credential = f"replica {replica.id}", replica.credential
        token = None if credential is None else token_in(credential, f"{where}.credential")
        if replica.url.lower().startswith("https"):
            self._trust(replica.pool, pool, config)
        # Any process of the machine may have added the replica, to get the credential.
        gets_any = not is_added or needs_secret(config.admin)
        is_special = pool.external or pool.include_usage is not None
        has_own = credential is not None or bool(pool.headers)
        if has_own or is_special or (not gets_any and self.token is not None):
            self.access[replica.id] = Access(credential, token, pool, gets_any=gets_any)
        else:
            self.forget(replica.id)

    def check_not_own(self, replica: ReplicaConfig) -> None:
        """Raises ConfigError if a replica is one of the router's own listeners."""
        url = parse_replica_url(replica.url)
        if listener := self._own.at(url.host, url.port):
            who = f"the replica {replica.id!r} is this router's own listener ({listener})"
            raise ConfigError([f"url: {who}"])

    def has_key_for(self, replica: Replica) -> bool:
        """Whether the router sends a key of its own to a replica."""
        access = replica.access
        if access is None:
            return self.token is not None
        return access.has_credential or (self.token is not None and access.gets_usual)

    def forget(self, replica_id: str) -> None:
        """Forgets the credential of a replica that has left, or that has none any more."""
        self.access.pop(replica_id, None)

    def _trust(self, name: str, pool: PoolConfig, config: Config) -> None:
        """Reads the certificates for the https replicas of a pool. Raises ConfigError."""
        where = "upstream"
        try:
            if has_own_tls(pool):
                where = f"pools.{name}"
                if name not in self._pool_tls:
                    self._pool_tls[name] = pool_context(pool)
            elif self.tls is None:
                self.tls = replica_context(config.upstream)
        except FileProblem as err:
            raise ConfigError([f"{where}.{err.field}: {err}"]) from None

    def tls_of(self, replica: ReplicaConfig) -> ssl.SSLContext | None:
        """Return the TLS context of an https replica that was learned."""
        return self._pool_tls.get(replica.pool, self.tls)


def token_in(section: TokenSource, path: str) -> str | None:
    """Return the token of a section. `path`: the path of the section. Raises ConfigError."""
    try:
        return token_of(section)
    except FileProblem as err:
        raise ConfigError([f"{path}.{err.field}: {err}"]) from None


def _pool_of(replica: ReplicaConfig, config: Config) -> PoolConfig:
    """Return the pool of a replica. Raises ConfigError if the replica cannot be in it.

    Without its pool, the replica would get the credentials of other replicas.
    """
    pool = config.pools.get(replica.pool, NO_POOL)
    why = ""
    if replica.pool and pool is NO_POOL:
        why = "is missing"
    elif pool.external and not replica.models:
        why = "is external, so its replicas need `models`"
    if why:
        who = f"the admin API or discovery has added the replica {replica.id!r} to it"
        raise ConfigError([f"pools.{replica.pool}: {why}; {who}"])
    return pool


def has_own_tls(pool: PoolConfig) -> bool:
    """Whether the replicas of a pool do not use the certificates of `upstream`."""
    return pool.external or pool.ca_file is not None
