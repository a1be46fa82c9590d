"""A reload: what differs between the configuration in force and the new one, swapped in.

`prepare` does everything that can fail, on new objects; `commit` puts them in force, one swap after
the other, none of which can fail. Must never: leave half of each in force.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from policies.contract import PolicyConfigError
from policies.hedging.contract import make_policy
from policies.queueing.contract import make_order
from router.app.parts import Parts, Upstream, keys_of, open_log
from router.config.keys import KeyLine
from router.config.model import Config
from router.config.model import Replica as ReplicaConfig
from router.config.tls import Certificate, FileProblem, listening_context
from router.core.errors import ConfigError
from router.dispatch.chooser import Policies
from router.observe.access_log import AccessLog

_FIXED = ("listen", "admin", "emulate", "prefix", "batches")


class Prepared(NamedTuple):
    """A configuration that can be put in force, and what was made for it."""

    config: Config
    policies: Policies
    upstream: Upstream
    keys: Sequence[KeyLine]
    tls: ssl.SSLContext | None  # with the certificate, where the data port has one
    log: AccessLog


def prepare(parts: Parts, config: Config) -> Prepared:
    """Make what `config` needs. Raises ConfigError; nothing in force has changed then."""
    old = parts.config
    fixed = [name for name in _FIXED if getattr(config, name) != getattr(old, name)]
    if (config.tls is None) != (old.tls is None):
        fixed.append("tls")
    if config.queue.enabled != old.queue.enabled:
        fixed.append("queue.enabled")
    if fixed:
        raise ConfigError([f"{name}: cannot change without a restart" for name in fixed])
    policies = parts.policies
    try:
        if config.routing != old.routing:
            policies = Policies.of(config.routing)
        # Made again where they are adopted, from the same words.
        make_policy(config.hedging.policy, config.hedging.options)
        make_order(config.queue.policy, config.queue.options)
    except PolicyConfigError as err:
        raise ConfigError([str(err)]) from None
    upstream = Upstream(config)
    keys = keys_of(config)
    tls = None
    if config.tls is not None:
        try:
            tls = listening_context(config.tls)
        except FileProblem as err:
            raise ConfigError([f"tls.{err.field}: {err}"]) from None
    # The last, because it is the only one that would have to be closed again.
    log = parts.log if config.access_log == old.access_log else open_log(config)
    return Prepared(config, policies, upstream, keys, tls, log)


def commit(
    parts: Parts,
    prepared: Prepared,
    certificate: Certificate | None,
    emulated: Iterable[ReplicaConfig],
) -> None:
    """Put it in force. `certificate`: the data port's."""
    old, old_policies = parts.config, parts.policies
    config, policies, upstream, keys, tls, log = prepared
    if certificate is not None and tls is not None:
        certificate.in_force = tls
    parts.config = config
    parts.policies = policies
    parts.upstream = upstream
    if log is not parts.log:
        parts.old_logs.append(parts.log)
        parts.log.close(timeout_s=0)
        parts.log = parts.dispatcher.completion.log = log
    front = parts.front
    front.adopt(config.limits, config.timeouts)
    front.max_clients = parts.max_clients(config)
    front.allow_half_close = config.allow_half_close
    front.via = config.via.encode("ascii")
    parts.fleet.rules = config.health
    parts.fleet.stale_s = config.polling.stale_s
    parts.chooser.adopt(policies, config.routing.sample)
    parts.hedger.adopt(config.hedging)
    parts.dispatcher.adopt(config, upstream.authorization, keys)
    _diff_fleet(parts, old, config, emulated)
    if policies is not old_policies:
        parts.fleet_changed(frozenset(parts.fleet.replicas))


def _diff_fleet(
    parts: Parts, old: Config, config: Config, emulated: Iterable[ReplicaConfig]
) -> None:
    """Keep the replicas that stay, with all that is known of them."""
    fleet = parts.fleet
    wanted = {r.id: r for r in (*config.replicas, *emulated)}
    rebuilt = config.upstream != old.upstream
    for replica_id, replica in list(fleet.replicas.items()):
        new = wanted.get(replica_id)
        if new is None or new.url != replica.config.url or rebuilt:
            parts.unwatch(replica)
            successor = parts.make_replica(new) if new is not None else None
            if successor is not None and successor.config.url == replica.config.url:
                successor.continues(replica)
            fleet.remove(replica_id, successor)
            if successor is None:
                parts.metrics.forget_replica(replica_id)
            else:
                parts.watch(successor)
        else:
            replica.adopt(new, config.health)
            replica.pool.adopt(config.limits, config.timeouts)
    for replica_id, new in wanted.items():
        if replica_id not in fleet.replicas:
            replica = parts.make_replica(new)
            fleet.add(replica)
            parts.watch(replica)
    token, tls = parts.upstream.token, parts.upstream.tls
    parts.prober.adopt(config, token, tls)
    parts.poller.adopt(config, token, tls)
    parts.aborter.rules = config.aborts
    parts.aborter.asker.adopt(config, token, tls)
    if parts.kv_watcher is not None:
        parts.kv_watcher.adopt(config, token, tls)
    if parts.tokens is not None:
        parts.tokens.adopt(token, tls)
    if parts.dispatcher.token_ids is not None:
        parts.dispatcher.token_ids.adopt(parts.upstream.server_name)
    fleet.rebuild()
