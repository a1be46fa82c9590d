"""Whose a request is, how urgent it is, and whether its tenant may have one more.

Four questions in this order: `identify` (which key?), `flow` (whose share?), `judge` (how urgent?)
before anything is made of a request, and `enter` once its prompt is measured. What `enter` gives is
handed back by `leave`, once, whatever ended the request.

A tenant's limits outlive a reload: accounts are kept by the key's name, and take the new limits.

The batch door is told who its clients are (`introduce`), by names that are no secrets, and what it
asks for them later it asks by these names: `x-router-owner`, which it alone may use, because it
alone knows this process's token. No such field ever leaves the router.

Must never: answer a client, or keep anything of a request that is over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256
from hmac import compare_digest
from math import ceil
from secrets import token_hex
from typing import Final

from router.admission.concurrency import Concurrency
from router.admission.limits import Account, Grant, Verdict
from router.config.keys import KeyLine
from router.config.model import Config
from router.core.errors import Reason, RouterError
from router.core.urgency import CRITICAL, Urgency
from router.dispatch.usage import Usage
from router.fleet.dialects import NONE
from router.intake.authority import check_adapters, check_no_priority
from router.intake.fields import Fields, Unread
from router.intake.flow import Flow, Flows, Pending, header_of, user_of
from router.intake.keys import Key, Keyring
from router.intake.urgency import Judge
from router.intake.values import output_tokens_of
from router.wire.heads import RequestHead
from router.wire.origins import INSIDE

_NAMED: Final = b"key:"  # begins the name of an owner whose key is in the file; others are hashes
_REASONS = {
    Verdict.CONCURRENCY: Reason.KEY_CONCURRENCY,
    Verdict.REQUESTS: Reason.KEY_REQUESTS,
    Verdict.TOKENS: Reason.KEY_TOKENS,
}
_WORDS = {
    Verdict.CONCURRENCY: "this key has as many requests at replicas as it may",
    Verdict.REQUESTS: "this key has sent as many requests a minute as it may",
    Verdict.TOKENS: "this key has used as many tokens a minute as it may",
}


class Entry:
    """What one request holds of its tenant's: a place among its flow's, and of its limits."""

    __slots__ = ("_flow", "_grant", "_pending", "concurrency", "steps")

    def __init__(
        self,
        flow: Flow,
        pending: Pending | None,
        grant: Grant | None,
        concurrency: Concurrency | None,
    ) -> None:
        self.steps = 0  # requests of its flow that were pending before it
        # Counts it while it is at a replica; None: it has no limit, or was counted when it came.
        self.concurrency = concurrency
        self._flow = flow
        self._pending = pending  # that counts it; None: none does
        self._grant = grant

    def leave(self, usage: Usage, worked: bool, now: float) -> None:
        """The request is over, and took that many tokens: none, unless an engine worked for it.

        Only the first call counts.
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
            grant.settle(used, output, now)


class Tenants:
    """The keys of one router, and what their tenants have now."""

    __slots__ = (
        "_accounts",
        "_header",
        "_keys",
        "_names_users",
        "flows",
        "forwards",
        "judge",
        "pending",
        "requires_keys",
        "token",
    )

    def __init__(
        self,
        config: Config,
        lines: Sequence[KeyLine],
        hashed: Callable[[bytes], str],
        now: float,
    ) -> None:
        """`hashed`: the access log's salted hash."""
        self._accounts: dict[str, Account] = {}
        self.flows = Flows(hashed, config.trusted_proxies)
        self.token = token_hex(16)  # the batch door's
        self.pending = Pending()
        self.judge = Judge(config.priority)
        self.adopt(config, lines, hashed, now)

    def adopt(
        self,
        config: Config,
        lines: Sequence[KeyLine],
        hashed: Callable[[bytes], str],
        now: float,
    ) -> None:
        """Another configuration, and the keys as its file has them now."""
        self.flows.adopt(hashed, config.trusted_proxies)
        rules = config.keys
        self._keys = Keyring(lines)
        self.requires_keys = rules.required
        self._names_users = rules.names_users
        self._header = b"\r\n%b:" % rules.user_header.lower().encode("ascii")
        self.forwards = rules.forward or not len(self._keys)  # the client's key goes on
        self.judge.adopt(config.priority, {key.tier for key in self._keys.by_name.values()})
        accounts: dict[str, Account] = {}
        for name, key in self._keys.by_name.items():
            limits = (key.concurrency, key.requests_per_minute, key.tokens_per_minute)
            account = self._accounts.get(name)
            if account is not None:
                account.adopt(*limits, now)
                accounts[name] = account
            elif key.is_limited:
                accounts[name] = Account(*limits, now)
        self._accounts = accounts

    @property
    def has_keys(self) -> bool:
        return len(self._keys) > 0

    @property
    def under_way(self) -> int:
        """Requests that hold something of their tenants' limits."""
        return sum(account.under_way for account in self._accounts.values())

    @property
    def at_replicas(self) -> int:
        """Requests at replicas that limits of keys count, and rows in which others wait."""
        limits = [account.concurrency for account in self._accounts.values()]
        return sum(limit.own + limit.batch + len(limit.rows) for limit in limits)

    def known(self, head: RequestHead) -> Key | None:
        """The key in the file that a request has, whether or not one is required."""
        return self._keys.find(head.authorization, head.api_key)

    def identify(self, head: RequestHead) -> Key | None:
        """The key of a request. Raises RouterError (KEY_REQUIRED)."""
        key = self._keys.find(head.authorization, head.api_key)
        if key is None:
            if head.owner is not None:
                key = self._named(head, head.owner)
            if key is None and self.requires_keys:
                raise RouterError(
                    Reason.KEY_REQUIRED,
                    "a known API key is needed: Authorization: Bearer KEY, or x-api-key: KEY",
                )
        return key

    def _named(self, head: RequestHead, said: bytes) -> Key | None:
        """The key that the batch door asks by; None: it asks for somebody who has none.

        Raises RouterError (KEY_REQUIRED): it was taken back meanwhile.
        """
        token, _, owner = said.partition(b" ")
        if not compare_digest(token, self.token.encode()):
            head.owner = None  # whoever it is, it is not the door
            return None
        if not owner.startswith(_NAMED):
            return None
        key = self._keys.by_name.get(owner[len(_NAMED) :].decode("ascii", "replace"))
        if key is None:
            raise RouterError(Reason.KEY_REQUIRED, "the API key that asked for this is gone")
        return key

    def introduce(self, head: RequestHead, is_replaced: bool) -> bytes:
        """Lines that tell the batch door who asks, each with its CRLF before it: a name, and the
        client's own credentials where replicas are to get them.

        `is_replaced`: they get an Authorization of ours. Raises RouterError (KEY_REQUIRED).
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
        """How urgent an inference request is; `pool`: the dialect of the engines for its model.

        Raises RouterError (BAD_PRIORITY).
        """
        header = head.routing.priority
        return self.judge.urgency(fields, header, head.door, head.joined, peer, key, pool)

    def flow(
        self, key: Key | None, head: RequestHead, peer: str, fields: Fields | None = None
    ) -> Flow:
        """The flow of a request that was identified."""
        user = b""
        if fields is not None and (self._names_users if key is None else key.names_users):
            user = user_of(header_of(head.joined, self._header), fields.user)
        authorization = head.authorization
        if authorization is None and peer == INSIDE:
            authorization = head.owner  # a line of a batch, whose owner sent a credential once
        return self.flows.of(key, authorization, head.api_key, peer, head.forwarded_for, user)

    def check_read(
        self, key: Key | None, fields: Unread, *, is_inference: bool, is_known: bool
    ) -> None:
        """Raises RouterError (UNREAD_BODY) where the model or the priority that the body may name
        is limited, or the tokens that it may cost: what is forwarded must be what was judged.

        `is_known`: what the members of the route's bodies mean is known.
        """
        limits_it = is_inference and is_known and self.has_keys
        if not limits_it and key is not None:
            counts_tokens = is_inference and key.tokens_per_minute is not None
            limits_it = counts_tokens or key.models is not None
        if limits_it:
            raise _unread("keys demand", fields.why)

    def check_unreadable(self, key: Key | None, fields: Unread, pool: str) -> None:
        """Raises RouterError (UNREAD_BODY) where a ceiling applies to a body that was not read and
        cannot be edited: the engine could read a priority from it that the router cannot replace.

        `pool`: the dialect of the engines for its model.
        """
        if self.judge.ceiling_of(key) != CRITICAL and pool != NONE:
            raise _unread("the priority ceiling demands", fields.why)

    def check_unedited(
        self, key: Key | None, fields: Fields, content_type: bytes | None, pool: str
    ) -> None:
        """Raises RouterError (BAD_PRIORITY, UNREAD_BODY) where a body that the router cannot write
        anew (a form, or a body on a path that the router does not know) may state a priority to
        engines that have priorities, and a ceiling applies.

        `pool`: the dialect of these engines.
        """
        if self.judge.ceiling_of(key) == CRITICAL or pool == NONE:
            return
        if type(fields) is not Unread:
            check_no_priority(fields)
        elif self.has_keys and (content_type is None or b"json" in content_type.lower()):
            # Engines also read UTF-16, and numbers that are no JSON.
            raise _unread("keys demand", fields.why)

    def enter(
        self,
        key: Key | None,
        flow: Flow,
        fields: Fields,
        prompt_tokens: int,
        now: float,
        *,
        is_batch: bool,
        takes_steps: bool,
        waits: bool,
    ) -> Entry | None:
        """Let an inference request in. None: it holds nothing of a tenant's.

        `is_batch`: it gets what the other requests of its key leave. `takes_steps`: the
        flow's pending requests count (`Context.takes_steps`). `waits`: it goes to the queue, and
        waits there while its key has as many requests at replicas as it may.
        Raises RouterError (KEY_CONCURRENCY, KEY_REQUESTS, KEY_TOKENS).
        """
        grant: Grant | None = None
        concurrency: Concurrency | None = None
        if key is not None:
            account = self._accounts.get(key.name)
            if account is not None:
                most = output_tokens_of(fields)
                grant = _granted(account, prompt_tokens, most, is_batch, waits, now)
                if waits:
                    concurrency = account.concurrency
        if grant is None and not takes_steps:
            return None
        entry = Entry(flow, self.pending if takes_steps else None, grant, concurrency)
        if takes_steps:
            entry.steps = self.pending.come(flow)
        return entry


def _unread(limit: str, why: str) -> RouterError:
    return RouterError(Reason.UNREAD_BODY, f"the body cannot be judged, as {limit}: {why}")


def _granted(
    account: Account,
    prompt: int,
    most_output: int | None,
    is_batch: bool,
    waits: bool,
    now: float,
) -> Grant:
    """Raises RouterError."""
    tokens = account.expected(prompt, most_output)
    verdict = account.ask(tokens, now, is_batch=is_batch, waits=waits)
    if verdict != Verdict.YES:
        # Without a wait that can be known: a request under way may end at any moment.
        wait_s = max(1, ceil(account.wait_s))
        raise RouterError(_REASONS[verdict], _WORDS[verdict], retry_after_s=wait_s)
    return Grant(account, tokens, prompt, is_batch=is_batch, waits=waits)


def may_hedge(key: Key | None) -> bool:
    """Whether requests of the key may ask for a second copy."""
    return key is not None and key.may_hedge


def models_of(key: Key | None) -> frozenset[str] | None:
    """The models a request may know of; None: all."""
    return None if key is None else key.models


def owner_of(key: Key | None, head: RequestHead) -> bytes:
    """Who asks, as a name that is no secret and outlives this process: it is stored on disk."""
    if key is not None:
        return _NAMED + key.name.encode()
    line = head.authorization or head.api_key
    if line is None:
        return b""
    return sha256(line[line.find(b":") + 1 :].strip(b" \t")).hexdigest().encode()


def check_model(key: Key, model: str | None, fields: Fields) -> frozenset[str] | None:
    """The models that the key may ask for; `None`: any model.

    `model` is the body's own member: an engine serves its default model where there is none.
    Raises RouterError (MODEL_NOT_ALLOWED) where the key may not ask for the model.
    """
    models = key.models
    if models is None:
        return None
    if model is not None and model in models:
        check_adapters(fields, models)
        return models
    if model is None:
        words = "this key is for some models only: name one in the body's `model`"
    else:
        words = f"this key may not ask for the model `{model}`"
    raise RouterError(Reason.MODEL_NOT_ALLOWED, words, param="model")
