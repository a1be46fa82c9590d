"""Reloads the configuration: finds the changed settings, and applies them.

`prepare` does everything that can fail, and changes only new objects: it reads files, and creates
policies and replicas. `commit` replaces the old objects by the new objects. No step of `commit` can
fail.

Must never: leave a configuration half applied, or create anything in `commit`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from policies.contract import PolicyConfigError
from policies.hedging.contract import HedgingPolicy, make_policy
from policies.queueing.contract import OrderPolicy
from router.app.member_changes import change_members, make_replicas
from router.app.parts import Origins, Parts, admin_names, admin_token, keys_in, open_log
from router.app.servers import Servers
from router.app.upstream import Upstream
from router.config.annotations import fixed_changes
from router.config.keys import KeyLine
from router.config.model import Config, Replica as ReplicaConfig
from router.config.shown import changes, key_changes
from router.config.tls import PortTls
from router.core.clock import monotonic
from router.core.errors import ConfigError
from router.dispatch.addon import Addon
from router.dispatch.charges import ChargeRules
from router.dispatch.chooser import Policies
from router.dispatch.resumption import Resumption, resumption_of
from router.dispatch.rules import ArrivalRules, Rules
from router.fleet.discovery.roster import Member
from router.fleet.discovery.watcher import sources_of
from router.fleet.membership import kept
from router.fleet.names import Names
from router.fleet.replica import Replica
from router.intake.keys import Keyring
from router.observe.log.access_log import AccessLog
from router.observe.prices import Prices, prices_of


@dataclass(frozen=True, slots=True)
class Files:
    """What was read from the files of the configuration and of the API keys."""

    config: Config
    keys: Sequence[KeyLine]
    keyring: Keyring
    changed_keys: list[str]  # Texts for the log.


def read(read_again: Callable[[], Config], before: Sequence[KeyLine]) -> Files:
    """Reads the files. Called in a thread: tens of thousands of keys or replicas take a second.

    `before`: the keys in force. Raises ConfigError.
    """
    config = read_again()
    keys = keys_in(config)
    return Files(config, keys, Keyring(keys), key_changes(before, keys))


@dataclass(frozen=True, slots=True)
class Prepared:
    """A valid configuration, and the objects that were created for it."""

    files: Files
    upstream: Upstream
    rules: Rules
    arrival: ArrivalRules
    charges: ChargeRules
    prices: Prices
    policies: Policies
    hedging: HedgingPolicy
    orders: Sequence[OrderPolicy]  # One ordering policy for each queue.
    resumption: Resumption | None  # The addon for broken streams.
    tls: PortTls
    log: AccessLog
    wanted: Mapping[str, ReplicaConfig]  # All replicas of the fleet after the reload, by ID.
    made: Mapping[str, Replica]  # The replicas that are not in the fleet yet.
    names: Names  # What the names that clients write stand for.
    origins: Origins
    admin_token: str | None  # The token of the admin port; None: none is needed.
    addons: dict[str, Addon]  # The addons that were not needed before, by name.


def prepare(parts: Parts, files: Files, emulated: Iterable[ReplicaConfig]) -> Prepared:
    """Creates the objects that the configuration needs. Changes nothing that is in use.

    `emulated`: more replicas, which are not in the configuration. Raises ConfigError.
    """
    old, config = parts.config, files.config
    fixed = [*fixed_changes(old, config)]
    if (config.tls is None) != (old.tls is None):
        fixed.append("tls")
    if (config.admin.tls is None) != (old.admin.tls is None):
        fixed.append("admin.tls")
    if fixed:
        raise ConfigError([f"{name}: cannot change without a restart" for name in fixed])
    policies = parts.context.chooser.policies
    try:
        if config.routing != old.routing:
            policies = Policies.of(config.routing)
        hedging = make_policy(config.hedging.policy, config.hedging.options)
        orders = () if parts.queue is None else parts.queue.pools.orders(config)
    except PolicyConfigError as err:
        raise ConfigError([str(err)]) from None
    resumption = parts.context.resumption or resumption_of(config, parts.metrics)
    added = kept(parts.origins.added.values(), config.replicas)
    most = config.discovery.replicas_max
    roster = parts.origins.roster.adopted(sources_of(config.discovery), most)
    others = (*config.replicas, *emulated, *added)
    upstream = Upstream(config, parts.own, added)
    discovered = _learned(parts, config, upstream, roster.members(others, config))
    token = admin_token(config)
    tls = PortTls(config.tls, config.admin.tls)
    of_sources = [member.replica for member in discovered.values()]
    wanted = {replica.id: replica for replica in (*others, *of_sources)}
    made = make_replicas(parts, config, upstream, wanted.values())
    addons = parts.new_addons(config, files.keys)
    # The access log is opened last, because it is the only object that would have to be closed if
    # a later step failed.
    log = parts.log if config.access_log == old.access_log else open_log(config)
    return Prepared(
        files,
        upstream,
        Rules(config, upstream.token, resumption),
        ArrivalRules(config, upstream.authorization),
        ChargeRules(config.usage.charges),
        prices_of(config),
        policies,
        hedging,
        orders,
        resumption,
        tls,
        log,
        wanted,
        made,
        Names(config),
        Origins({replica.id: replica for replica in added}, roster, discovered),
        token,
        addons,
    )


def _learned(
    parts: Parts, config: Config, upstream: Upstream, members: Mapping[str, Member]
) -> dict[str, Member]:
    """Return the members whose credentials can be read. Raises ConfigError.

    A replica that is not in the fleet yet is left out if its credential cannot be read.
    """
    learned: dict[str, Member] = {}
    for name, member in members.items():
        try:
            upstream.learn(member.replica, config)
        except ConfigError:
            if name in parts.fleet.replicas:
                raise
        else:
            learned[name] = member
    return learned


def differences(parts: Parts, prepared: Prepared) -> list[str]:
    """Return what `commit` will change, as texts for the log: settings, API keys, the token."""
    found = changes(parts.config, prepared.files.config) + prepared.files.changed_keys
    if prepared.upstream.token != parts.upstream.token:
        found.append("the token for replicas changed")
    return found


def commit(parts: Parts, prepared: Prepared, servers: Servers) -> None:
    """Puts the configuration in force."""
    before, config = parts.config, prepared.files.config
    parts.in_force.config, parts.in_force.token = config, prepared.upstream.token
    servers.tls = prepared.tls
    servers.authority.adopt(prepared.admin_token, admin_names(config))
    parts.upstream, parts.keys = prepared.upstream, prepared.files.keys
    parts.origins = prepared.origins
    _commit_requests(parts, prepared)
    change_members(parts, parts.fleet.members, prepared.wanted, prepared.made)
    parts.add_addons(prepared.addons)
    parts.poller.reloaded(before)
    parts.aborter.rules = config.aborts
    for addon in parts.addons.values():
        addon.adopt(config)
    parts.reclaims.rules = config.spot
    parts.discovery.reloaded(before)
    parts.use_names(prepared.names)
    if config.routing != before.routing:
        parts.fleet_changed(frozenset(parts.fleet.replicas))


def _commit_requests(parts: Parts, prepared: Prepared) -> None:
    """Replaces what requests read. Requests in progress keep the `Rules` they began with."""
    config, context, dispatcher = parts.config, parts.context, parts.dispatcher
    if prepared.log is not parts.log:
        parts.log.close(timeout_s=0)
        parts.replaced_logs.add(parts.log)
        dispatcher.completion.log = prepared.log
    front = parts.front
    front.adopt(config.limits, config.timeouts, config.cors)
    parts.limit_clients(config)
    front.allow_half_close = config.allow_half_close
    front.via = prepared.arrival.via
    parts.fleet.rules = config.health
    parts.fleet.polls.stale_s = config.polling.stale_s
    parts.fleet.nearest.adopt(config)
    parts.fleet.suspects.adopt(config.bodies.suspect_s)
    context.chooser.policies = prepared.policies
    context.hedger.adopt(config.hedging, prepared.hedging)
    context.rules, context.resumption = prepared.rules, prepared.resumption
    context.budget.rules = config.retry
    if prepared.resumption is not None:
        prepared.resumption.adopt(config)
    dispatcher.arrival, dispatcher.charges = prepared.arrival, prepared.charges
    parts.metrics.usage.prices = prepared.prices
    dispatcher.tenants.adopt(config, prepared.files.keyring, parts.log.salter.name, monotonic())
    if context.queue is not None:
        context.queue.adopt(config, prepared.orders)
        context.queue.wake()  # The limits of keys may have changed.
    dispatcher.apply_keys()
