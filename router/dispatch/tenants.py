"""Identifies the tenant of a request, and checks the tenant's key, priority and limits.

The steps are `identify` (the API key), `urgency` (the priority), `flow` (the flow by which the
fleet is shared), and `enter` (the limits). `enter` is called when the size of the prompt is known.
`TenantShare.leave` releases what `enter` returned; only the first call of `leave` has an effect.

On a reload, the used amounts of limits are kept: the account of a key is found by the key's name
and gets the new limits.

The batch server gets the name of each client (`introduce`); such a name is not secret. Later, the
batch server sends requests on behalf of the client, with that name in the `x-router-owner` header.
Only the batch server can use that header, because only it has this process's token. The header is
never sent to a replica.

Must never: answer a client, or keep data of a request that has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from hashlib import sha256
from hmac import compare_digest
from math import ceil, inf
from secrets import token_hex
from typing import Final

from policies.allowed import Allowed
from router.admission.concurrency import Concurrency
from router.admission.limits import Account, Grant, LimitCheck
from router.config.model import Config
from router.core.clock import time
from router.core.errors import Reason, RouterError
from router.core.owners import KEYED
from router.core.urgency import CRITICAL, Urgency
from router.dispatch.usage.token_counts import Usage
from router.fleet.dialects import NONE
from router.intake.authority import check_adapters, check_no_priority
from router.intake.fields import Fields, Unread
from router.intake.flow import Flow, Flows, Pending, header_of, user_of
from router.intake.keys import Key, Keyring
from router.intake.regions import NetworkRegions
from router.intake.urgency import Judge
from router.wire.http1.heads import RequestHead
from router.wire.origins import INSIDE

# The ID of an owner whose key is not in the key file has no such prefix: it is a hash.
_NAMED: Final = KEYED.encode()
_REASONS = {
    LimitCheck.CONCURRENCY: Reason.KEY_CONCURRENCY,
    LimitCheck.REQUESTS: Reason.KEY_REQUESTS,
    LimitCheck.TOKENS: Reason.KEY_TOKENS,
}
KEY_LIMITS: Final = frozenset(_REASONS.values())  # The reasons for which `enter` refuses.
_WORDS = {
    LimitCheck.CONCURRENCY: "this key has reached its limit of concurrent requests",
    LimitCheck.REQUESTS: "this key has reached its limit of requests per minute",
    LimitCheck.TOKENS: "this key has reached its limit of tokens per minute",
}


class TenantShare:
    """The part of a tenant's limits that one request holds.

    A `TenantShare` also counts its request as pending in the request's flow.
    """

    __slots__ = ("_flow", "_grant", "_pending", "concurrency", "steps")

    def __init__(
        self,
        flow: Flow,
        pending: Pending | None,
        grant: Grant | None,
        concurrency: Concurrency | None,
    ) -> None:
        self.steps = 0  # Number of pending requests of the flow when this request arrived.
        # The limit that counts the request while it is at a replica; `None`: the key has no limit,
        # or the request was counted at its arrival.
        self.concurrency = concurrency
        self._flow = flow
        # The counter of pending requests of the flow; `None`: this request is not counted.
        self._pending = pending
        self._grant = grant

    def leave(self, usage: Usage, worked: bool, charge: int, now: float) -> None:
        """Release the limits of a request that is over, and charge the tokens it used.

        No tokens are charged if no engine worked for the request. `charge`: the tokens that it
        costs at least. Only the first call has an effect.
        """
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.go(self._flow)
        grant, self._grant = self._grant, None
        if grant is not None:
            prompt, output = usage.prompt_tokens, usage.output_tokens
            used = None
            if not worked:
                used = 0
            elif prompt is not None:
                used = prompt + (output or 0)
            elif output is not None:
                used = grant.taken_of_prompt + output
            if charge:
                used = max(charge, used or 0)
            grant.settle(used, output, now)


class Tenants:
    """The keys of one router, and the current usage of their tenants."""

    __slots__ = (
        "_accounts",
        "_header",
        "_keys",
        "_limits_regions",
        "_names_users",
        "_networks",
        "_parts",
        "flows",
        "forwards",
        "judge",
        "on_expired",
        "pending",
        "requires_keys",
        "token",
        "used",
    )

    def __init__(
        self,
        config: Config,
        keys: Keyring,
        hashed: Callable[[bytes], str],
        now: float,
    ) -> None:
        """`hashed`: the access log's salted hash."""
        # The accounts of limited keys that have sent requests. A reload does not make them, because
        # there may be many keys.
        self._accounts: dict[str, Account] = {}
        # The accounts of keys that have sent requests, until they are removed by `router/share`;
        # `None`: no other router is told of them.
        self.used: dict[str, Account] | None = None
        self._parts = 1  # Of each limit, one of so many equal parts is used.
        self.flows = Flows(hashed, config.trusted_proxies)
        self.token = token_hex(16)  # The secret by which the batch server is identified.
        self.pending = Pending()
        self.judge = Judge(config.priority)  # A reload replaces it.
        # Called when a key has expired.
        self.on_expired: Callable[[], None] = _nothing
        self.adopt(config, keys, hashed, now)

    def adopt(
        self,
        config: Config,
        keys: Keyring,
        hashed: Callable[[bytes], str],
        now: float,
    ) -> None:
        """Apply a new configuration, and the keys that are now in the key file."""
        self.flows.adopt(hashed, config.trusted_proxies)
        rules = config.keys
        self._keys = keys
        keys.expire(time())
        self.requires_keys = rules.required
        self._names_users = rules.names_users
        self._networks = NetworkRegions(config.regions.networks)
        by_name = keys.by_name
        self._limits_regions = keys.limits_regions
        self._header = b"\r\n%b:" % rules.user_header.lower().encode("ascii")
        # Whether the client's key is forwarded to replicas.
        self.forwards = rules.forward or not len(keys)
        self.judge = Judge(config.priority, keys.tiers, self.judge)
        accounts: dict[str, Account] = {}
        for name, account in self._accounts.items():
            key = by_name.get(name)
            if key is not None:
                limits = (key.concurrency, key.requests_per_minute, key.tokens_per_minute)
                account.adopt(*limits, now)
                accounts[name] = account
        self._accounts = accounts

    @property
    def keyring(self) -> Keyring:
        return self._keys

    @property
    def has_keys(self) -> bool:
        return len(self._keys) > 0

    @property
    def limits_regions(self) -> bool:
        """Whether any key is limited to some regions."""
        return self._limits_regions

    def allowed_of(self, owner: str) -> Allowed | None:
        """Return the regions that the batches of an owner may use; `None`: all regions."""
        key = self._keys.by_name.get(owner.removeprefix(KEYED))
        return None if key is None else key.allowed_regions

    def allowed_now(self, key: Key) -> Allowed | None:
        """Return the regions that requests of a key may use now; `None`: all regions.

        A reload may have changed them. A key that was removed keeps its last regions.
        """
        return self._keys.by_name.get(key.name, key).allowed_regions

    @property
    def under_way(self) -> int:
        """The number of requests that hold a part of their tenants' limits."""
        return sum(account.under_way for account in self._accounts.values())

    @property
    def at_replicas(self) -> int:
        """The number of requests at replicas that count in a key's limit.

        The number of queues that hold requests of keys with a limit is added. If the sum is 0, all
        limits were released.
        """
        limits = [account.concurrency for account in self._accounts.values()]
        return sum(limit.own + limit.batch + len(limit.key_queues) for limit in limits)

    @property
    def keys_expire(self) -> bool:
        """Whether any of the keys will expire."""
        return self._keys.expires_at < inf

    def expire_keys(self) -> None:
        """Remove the keys that have expired, and refuse their waiting requests."""
        if self._keys.expire(time()):
            self.on_expired()

    def known(self, head: RequestHead) -> Key | None:
        """Return the request's key if it is in the key file, whether or not a key is required."""
        keys = self._keys
        if keys.expires_at < inf:
            self.expire_keys()
        return keys.find(head.authorization, head.api_key)

    def is_removed(self, key: Key, head: RequestHead) -> bool:
        """Whether the key of a request is not among the keys any more."""
        if not self.has_keys and not self.requires_keys:
            return False  # Keys are not used any more.
        if self._keys.find(head.authorization, head.api_key) is not None:
            return False
        # A line of a batch file has the name of its owner in place of a key.
        return head.owner is None or key.name not in self._keys.by_name

    def identify(self, head: RequestHead) -> Key | None:
        """Return the key of a request. Raises RouterError (KEY_REQUIRED)."""
        key = self.known(head)
        if key is None:
            if head.owner is not None:
                key = self._named(head, head.owner)
            if key is None and self.requires_keys:
                raise RouterError(
                    Reason.KEY_REQUIRED,
                    "a valid API key is required: Authorization: Bearer KEY, or x-api-key: KEY",
                )
        return key

    def _named(self, head: RequestHead, said: bytes) -> Key | None:
        """Return the key of the client on whose behalf the batch server sends a request.

        Returns `None` if the client has no key. Raises RouterError (KEY_REQUIRED) if the key was
        removed in the meantime.
        """
        token, _, owner = said.partition(b" ")
        if not compare_digest(token, self.token.encode()):
            # The token in the header is wrong, so the request does not come from the batch server.
            head.owner = None
            return None
        if not owner.startswith(_NAMED):
            return None
        key = self._keys.by_name.get(owner[len(_NAMED) :].decode("ascii", "replace"))
        if key is None:
            raise RouterError(Reason.KEY_REQUIRED, "the API key of this batch was removed")
        return key

    def introduce(self, head: RequestHead, is_replaced: bool) -> bytes:
        """Return header lines that name the client to the batch server, each with a CRLF before it.

        The lines include the client's own credentials if these are forwarded to replicas.
        `is_replaced`: the router replaces the client's Authorization header, so that header is left
        out. Raises RouterError (KEY_REQUIRED).
        """
        lines = b"\r\nx-router-owner: " + owner_of(self.identify(head), head)
        if self.forwards:
            if head.authorization is not None and not is_replaced:
                lines += b"\r\n" + head.authorization
            if head.api_key is not None:
                lines += b"\r\n" + head.api_key
        return lines

    def urgency(
        self, fields: Fields, head: RequestHead, peer: str, key: Key | None, pool: str
    ) -> Urgency:
        """Return the urgency of an inference request.

        `pool`: the priority dialect of the engines that serve the request's model. Raises
        RouterError (BAD_PRIORITY).
        """
        judge, header, client = self.judge, head.routing.priority, peer
        if judge.uses_networks:
            client = self.flows.addresses.of(peer, head.proxies.forwarded_for)
        return judge.urgency(fields, header, head.path_class, head.joined, client, key, pool)

    def flow(
        self, key: Key | None, head: RequestHead, peer: str, fields: Fields | None = None
    ) -> Flow:
        """Return the flow of an identified request."""
        user = b""
        if fields is not None and (self._names_users if key is None else key.names_users):
            user = user_of(header_of(head.joined, self._header), fields.other("user"))
        authorization = head.authorization
        if authorization is None and peer == INSIDE:
            # The request is a line of a batch file. The name of the batch's owner is used in place
            # of a credential.
            authorization = head.owner
        return self.flows.of(
            key, authorization, head.api_key, peer, head.proxies.forwarded_for, user
        )

    def region(self, key: Key | None, head: RequestHead, peer: str, known: Collection[str]) -> str:
        """Return the region that a client prefers; "": the region of the router.

        The header decides, then the key, then the client's network. `known`: the regions of the
        fleet; another region in the header is ignored.
        """
        named = head.routing.region
        if named is not None:
            region = named.decode("ascii", "replace")
            if region in known:
                return region
        if key is not None and key.region:
            return key.region
        if not self._networks.is_used:
            return ""
        return self._networks.of(self.flows.addresses.of(peer, head.proxies.forwarded_for))

    def check_read(
        self, key: Key | None, fields: Unread, *, is_inference: bool, is_known: bool
    ) -> None:
        """Reject a body that was not parsed, if a limit depends on its contents.

        The limit may be on the model, the priority or the tokens; such a limit cannot be checked
        without the contents. `is_known`: the router knows the members of the route's bodies. Raises
        RouterError (UNREAD_BODY).
        """
        limits_it = is_inference and is_known and self.has_keys
        if not limits_it and key is not None:
            counts_tokens = is_inference and key.tokens_per_minute is not None
            limits_it = counts_tokens or key.models is not None
        if limits_it:
            raise _unread("API keys are used", fields.why)

    def check_unedited(
        self, key: Key | None, fields: Fields, content_type: bytes | None, pool: str
    ) -> None:
        """Reject a priority in a body that the router cannot rewrite, if a ceiling applies.

        The router cannot rewrite a form, or the body of an unknown path. The priority matters only
        if the engines support priorities. `pool`: the priority dialect of the engines that serve
        the request's model. Raises RouterError (BAD_PRIORITY, UNREAD_BODY).
        """
        if self.judge.ceiling_of(key) == CRITICAL or pool == NONE:
            return
        if type(fields) is not Unread:
            check_no_priority(fields)
        elif self.has_keys and (content_type is None or b"json" in content_type.lower()):
            # A body that was not parsed is rejected, because engines also accept UTF-16, and
            # numbers that are not valid JSON.
            raise _unread("API keys are used", fields.why)

    def account_of(self, name: str, now: float) -> Account | None:
        """Return the account of a key, by the key's name; `None`: the key has no limits."""
        account = self._accounts.get(name)
        if account is None:
            key = self._keys.by_name.get(name)
            if key is not None and key.is_limited:
                account = self._begin(key, now)
        return account

    def _begin(self, key: Key, now: float) -> Account:
        limits = (key.concurrency, key.requests_per_minute, key.tokens_per_minute)
        account = self._accounts[key.name] = Account(*limits, now)
        if self._parts > 1:
            account.divide(self._parts, now)
        return account

    def divide(self, parts: int, now: float) -> None:
        """Use one of `parts` equal parts of each key's limits; 1: the whole limits."""
        self._parts = parts
        for account in self._accounts.values():
            account.divide(parts, now)

    def limit_lines(self, key: Key, now: float) -> bytes:
        """Return header lines with what is left of a key's limits; see `Account.header_lines`."""
        account = self._accounts.get(key.name)
        return b"" if account is None else account.header_lines(now)

    def enter(
        self,
        key: Key | None,
        flow: Flow,
        prompt_tokens: int,
        most_output: int,
        answers: int,
        now: float,
        *,
        is_batch: bool,
        takes_steps: bool,
        waits: bool,
    ) -> TenantShare | None:
        """Check the limits of an inference request, and count the request.

        Returns `None` if the request holds no part of a tenant's limits.

        `most_output`, `answers`: see `ExpectedOutput.of`. `is_batch`: the request may use only what
        the other requests of its key leave free.
        `takes_steps`: the flow's pending requests are counted (`Context.takes_steps`). `waits`: the
        request goes to the queue, and waits there while its key has reached its limit of requests
        at replicas.

        Raises RouterError (KEY_CONCURRENCY, KEY_REQUESTS, KEY_TOKENS).
        """
        grant: Grant | None = None
        concurrency: Concurrency | None = None
        if key is not None:
            account = self._accounts.get(key.name)
            if account is None and key.is_limited:
                account = self._begin(key, now)
            if account is not None:
                tokens = account.reserved(prompt_tokens, most_output, answers)
                grant = _granted(account, tokens, prompt_tokens, is_batch, waits, now)
                if waits:
                    concurrency = account.concurrency
                if self.used is not None:
                    self.used[key.name] = account
        if grant is None and not takes_steps:
            return None
        entry = TenantShare(flow, self.pending if takes_steps else None, grant, concurrency)
        if takes_steps:
            entry.steps = self.pending.come(flow)
        return entry


def _nothing() -> None:
    pass


def _unread(limit: str, why: str) -> RouterError:
    message = f"the body must be checked because {limit}, but it cannot be read: {why}"
    return RouterError(Reason.UNREAD_BODY, message)


def _granted(
    account: Account, tokens: int, prompt: int, is_batch: bool, waits: bool, now: float
) -> Grant:
    """Count the request against the account's limits. Raises RouterError if it exceeds one."""
    verdict = account.ask(tokens, now, is_batch=is_batch, waits=waits)
    if verdict != LimitCheck.WITHIN:
        # The time to wait is unknown, because any running request may end at any moment.
        wait_s = max(1, ceil(account.wait_s))
        raise RouterError(_REASONS[verdict], _WORDS[verdict], retry_after_s=wait_s)
    return Grant(account, tokens, prompt, is_batch=is_batch, waits=waits)


def may_hedge(key: Key | None) -> bool:
    """Whether requests of the key may ask for a second copy."""
    return key is not None and key.may_hedge


def models_of(key: Key | None) -> frozenset[str] | None:
    """Return the models that the key may see; `None`: all models."""
    return None if key is None else key.models


def owner_of(key: Key | None, head: RequestHead) -> bytes:
    """Return a name of the client that is not secret and does not change when the router restarts.

    The batch server stores this name on disk.
    """
    if key is not None:
        return _NAMED + key.name.encode()
    line = head.authorization or head.api_key
    if line is None:
        return b""
    return sha256(line[line.find(b":") + 1 :].strip(b" \t")).hexdigest().encode()


def check_model(key: Key, model: str | None, fields: Fields) -> frozenset[str] | None:
    """Return the models that the key may use; `None`: any model.

    `model`: the member `model` of the body; without it, an engine serves its default model. Raises
    RouterError (MODEL_NOT_ALLOWED) if the key may not use the model.
    """
    models = key.models
    if models is None:
        return None
    if model is not None and model in models:
        check_adapters(fields, models)
        return models
    if model is None:
        words = "this key may use some models only: name one of them in the body's `model`"
    else:
        words = f"this key may not use the model `{model}`"
    raise RouterError(Reason.MODEL_NOT_ALLOWED, words, param="model")
