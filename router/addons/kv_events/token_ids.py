"""Requests a prompt's token ids before a replica is chosen for it, if KV events are enabled.

The keys of the exact prefix index are token ids. A local tokenizer or a replica's /tokenize returns
the token ids (`fleet/prefix/tokens`). A request waits for its token ids for `prefix.tokens_wait` at
most. If the token ids come later, a replica is chosen by the approximate prefix index.

Must never: use token ids for a request whose prompt depends on fields that are not read here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import msgspec

from policies.allowed import Allowed
from router.addons.kv_events.chains import TokenChains
from router.addons.kv_events.tokens.facts import Facts
from router.addons.kv_events.tokens.provider import Question, TokenProvider
from router.addons.kv_events.tokens.remote import Target
from router.core.unreadable import NOT_JSON
from router.fleet.engines.common.models import adapters
from router.fleet.replica import Replica
from router.fleet.table.fleet import Fleet
from router.intake.fields import Fields
from router.intake.stretch import Stretch
from router.intake.values import bytes_of, is_given

# Members of a body that change its prompt, and that a `Question` (for token ids) does not contain.
_OTHERWISE: Final = re.compile(
    rb'"(?:chat_template|chat_template_kwargs|documents|continue_final_message'
    rb'|add_generation_prompt|add_special_tokens|truncate_prompt_tokens)"'
)


class TokenIds:
    """Gets the token ids of requests from a `TokenProvider`."""

    def __init__(self, provider: TokenProvider, fleet: Fleet) -> None:
        self._provider = provider
        self._fleet = fleet
        self._turn = 0  # Counter that rotates over the replicas that can tokenize the prompt.

    def ask(
        self,
        kind: str,
        fields: Fields,
        body: list[bytes],
        allowed: Allowed | None,
        done: Callable[[TokenChains | None], None],
    ) -> Question | None:
        """Ask for the token ids of a request's prompt.

        `allowed`: the regions to which the prompt may be sent; `None`: all regions. Returns `None`
        if the token ids cannot be determined. If the token ids are already known, the returned
        `Question` is done.
        """
        if kind not in ("chat", "completions") or any(map(_OTHERWISE.search, body)):
            return None
        salt = ""
        if is_given(fields.cache_salt):
            try:
                salt = msgspec.json.decode(fields.cache_salt, type=str)  # type: ignore[arg-type]
            except NOT_JSON:
                return None  # The engine decides whether this value of `cache_salt` is valid.
        facts = Facts(
            kind,
            fields.model,
            _bytes(fields.messages),
            _bytes(fields.prompt),
            _bytes(fields.tools),
        )
        return self._provider.ask(
            facts,
            done,
            lora=self._adapter(fields.model),
            salt=salt,
            target=self._target(fields.model, allowed),
        )

    def _adapter(self, model: str | None) -> str:
        """Return the name that separates a LoRA adapter's entries in the engine's prefix cache.

        Returns "" for a base model.
        """
        if model is not None:
            for replica in self._fleet.serving.ready:
                if model in replica.listed.objects:
                    return model if model in adapters(replica.listed.objects) else ""
        return ""

    def _target(self, model: str | None, allowed: Allowed | None) -> Target | None:
        """Return a fit replica of the allowed regions that serves the model and has /tokenize.

        `allowed`: `None` means all regions. The result is `None` if there is no such replica.

        Successive calls return different replicas, so that one failing replica does not affect all
        requests.
        """
        able = [r for r in self._fleet.serving.of(model, allowed) if _may_tokenize(r)]
        if not able:
            return None
        self._turn += 1
        replica = able[self._turn % len(able)]
        address = replica.pool.address
        name = address.server_name if replica.endpoint.address.is_tls else None
        url = replica.config.url.rstrip("/") + replica.descriptor.tokenize
        return Target(url, name, address.host, address.resolve, address.tls, replica.access)


def _may_tokenize(replica: Replica) -> bool:
    """Whether a replica may get a prompt only to tokenize it; a provider may not."""
    return bool(replica.descriptor.tokenize) and not replica.is_external


def _bytes(raw: msgspec.Raw | Stretch | None) -> bytes | None:
    return None if raw is None or not is_given(raw) else bytes_of(raw)
