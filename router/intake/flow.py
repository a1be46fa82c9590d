"""Derives the flow of a request: the party whose share of the fleet the request uses.

A flow has two levels. An account competes with all other accounts; a member competes only within
its account. Both are derived only here: for the queue, the pending steps, the access log, the
prefix isolation, and the replay of a log.

| request | account | member |
|---|---|---|
| with a known key | the key's name | its user, if the key names users |
| with a confirmed credential | the credential | |
| with another credential | the client address | the credential |
| without a credential | the client address | |

A client can invent credentials, so an unconfirmed credential competes only within its client
address. A success from an engine that is known to check keys confirms a credential. Only a bearer
token and an x-api-key can be confirmed, because every other scheme has several spellings of one
secret.

Credentials, addresses and users are stored as salted hashes of 48 bits, the same as in the access
log. Every table has a limit.

Must never: keep the name of a user, or hash a head line again for a client that repeats it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from policies.queueing.flow_identity import FlowIdentity
from router.core.urgency import Urgency, stepped
from router.intake.address import Addresses
from router.intake.keys import Key, token_of
from router.intake.values import value_of

_USER_BYTES: Final = 1024  # maximum bytes of a user's name; a longer name is ignored
_LINE_BYTES: Final = 2048  # maximum bytes of a head line that is cached
_MEMO: Final = 4096  # maximum entries of each cache; a full cache is cleared
CONFIRMED: Final = 16384  # maximum number of confirmed credentials; the oldest is dropped first


class Flow(FlowIdentity):
    """The party that sent a request. All requests of a party share one immutable object."""

    __slots__ = ("counted", "tenant", "user", "within")

    def __init__(
        self,
        tenant: str,
        within: str,
        user: str,
        *,
        is_known: bool = False,
        name: str = "",
        weight: float = 1.0,
    ) -> None:
        """All arguments are names without secrets, "" for none. `tenant`: the key or credential.
        `within`: the client address whose share the request uses. `is_known`: the key is in the
        keys file, under this `name` and with this `weight`.
        """
        self.tenant = tenant
        self.within = within
        self.user = user
        account = name or within or tenant
        member = tenant if within else ""
        if user:
            member = f"{member}/{user}" if member else user
        is_member_counted = is_known or user != ""
        super().__init__(
            account,
            member,
            is_known=is_known,
            is_member_counted=is_member_counted,
            weight=weight,
        )
        # The party whose requests limits and steps count: not a credential that may be invented.
        self.counted = (account, member if is_member_counted else "")

    @property
    def party(self) -> str:
        """The owner name for state that the request leaves at an engine; "" if the party is not
        identified.
        """
        return self.account if self.is_known else self.tenant

    @property
    def isolation(self) -> bytes:
        """The bytes that separate the prefixes of parties that must not share them."""
        return (self.tenant or self.within).encode("ascii", "replace")


NO_FLOW: Final = Flow("", "", "")  # The flow of a request that was not identified.


class _Credential:
    """One credential that is not in the keys file."""

    __slots__ = ("can_be_confirmed", "confirmed", "name", "within")

    def __init__(self, name: str, *, can_be_confirmed: bool) -> None:
        self.name = name
        self.can_be_confirmed = can_be_confirmed
        self.confirmed: Flow | None = None
        self.within: dict[str, Flow] = {}  # the credential's flows, by client address


class Flows:
    """Derives the flows of one router's requests."""

    __slots__ = (
        "_bare",
        "_by_key",
        "_by_line",
        "_by_name",
        "_confirmed",
        "_hash",
        "_held",
        "addresses",
    )

    def __init__(self, hashed: Callable[[bytes], str], trusted: Sequence[str] = ()) -> None:
        """`hashed`: the access log's salted hash. `trusted`: networks of trusted proxies."""
        self.addresses = Addresses(trusted)
        # Confirmed credentials, the oldest confirmation first.
        self._confirmed: dict[str, None] = {}
        self._hash = hashed
        self._clear()

    def adopt(self, hashed: Callable[[bytes], str], trusted: Sequence[str]) -> None:
        """Use another hash and other proxies. With another salt, no credential is confirmed."""
        self.addresses.adopt(trusted)
        if hashed != self._hash:
            self._hash = hashed
            self._confirmed.clear()
        self._clear()

    def _clear(self) -> None:
        self._by_key: dict[str, Flow] = {}
        self._by_line: dict[bytes, _Credential] = {}
        self._by_name: dict[str, _Credential] = {}
        # Flows of requests without a credential, by client address.
        self._bare: dict[str, Flow] = {}
        self._held = 0  # flows of unconfirmed credentials

    def of(
        self,
        key: Key | None,
        authorization: bytes | None,
        api_key: bytes | None,
        peer: str,
        forwarded_for: bytes | None,
        user: bytes,
    ) -> Flow:
        """The flow of a request. `authorization` and `api_key` are whole head lines; `user` is
        b"" if the request names none.
        """
        if key is not None:
            flow = self._by_key.get(key.name)
            if flow is None:
                tenant = key_tenant(self._hash, key.name)
                flow = Flow(tenant, "", "", is_known=True, name=key.name, weight=key.weight)
                self._by_key[key.name] = flow
        else:
            address = self.addresses.of(peer, forwarded_for)
            line = api_key if authorization is None else authorization
            if line is None:
                flow = self._bare.get(address) or self._flow_at(address)
            else:
                credential = self._by_line.get(line)
                if credential is None:
                    credential = self._credential(line, is_bearer=authorization is not None)
                flow = credential.confirmed
                if flow is None:
                    flow = credential.within.get(address) or self._flow_within(credential, address)
        if not user:
            return flow
        name = self._hash(b"user\n" + user)
        known = flow.account if flow.is_known else ""
        return Flow(
            flow.tenant,
            flow.within,
            name,
            is_known=flow.is_known,
            name=known,
            weight=flow.weight,
        )

    def confirm(self, flow: Flow) -> None:
        """An engine that checks keys has accepted the credential of this flow."""
        credential = self._by_name.get(flow.tenant)
        if credential is None or not credential.can_be_confirmed:
            return
        confirmed = self._confirmed
        if len(confirmed) >= CONFIRMED:
            oldest = next(iter(confirmed))
            del confirmed[oldest]
            dropped = self._by_name.get(oldest)
            if dropped is not None:
                dropped.confirmed = None
        confirmed[flow.tenant] = None
        credential.confirmed = Flow(flow.tenant, "", "")

    def _flow_at(self, address: str) -> Flow:
        if len(self._bare) >= _MEMO:
            self._bare.clear()
        flow = self._bare[address] = Flow("", self._hashed_address(address), "")
        return flow

    def _credential(self, line: bytes, *, is_bearer: bool) -> _Credential:
        if len(self._by_line) >= _MEMO or len(self._by_name) >= _MEMO or self._held >= _MEMO:
            self._by_line.clear()
            self._by_name.clear()
            self._held = 0
        token = token_of(line, is_bearer=is_bearer)
        name = self._hash(b"scheme\n" + line if token is None else b"token\n" + token)
        credential = self._by_name.get(name)
        if credential is None:
            credential = _Credential(name, can_be_confirmed=token is not None)
            if name in self._confirmed:
                credential.confirmed = Flow(name, "", "")
            self._by_name[name] = credential
        if len(line) <= _LINE_BYTES:
            self._by_line[line] = credential
        return credential

    def _flow_within(self, credential: _Credential, address: str) -> Flow:
        if len(credential.within) >= _MEMO:
            credential.within.clear()
        self._held += 1
        flow = credential.within[address] = Flow(credential.name, self._hashed_address(address), "")
        return flow

    def _hashed_address(self, address: str) -> str:
        return self._hash(b"address\n" + address.encode())


def key_tenant(hashed: Callable[[bytes], str], name: str) -> str:
    """The tenant of a known key, by the key's name."""
    return hashed(b"key\n" + name.encode())


def user_of(header: bytes | None, field: msgspec.Raw | None) -> bytes:
    """The user that a request names in the header, else in the body; b"": no user is named."""
    user = b""
    if header:
        user = header
    elif field is not None and len(field) <= _USER_BYTES:
        value = value_of(field)
        if isinstance(value, str):
            user = value.encode("utf-8", "replace")
    return user if len(user) <= _USER_BYTES else b""


def header_of(lines: bytes, begins: bytes) -> bytes | None:
    """The value of a header field in a head's lines, each with a CRLF before it. `begins`: the
    begin of the field's line in lower case: CRLF, name and colon.
    """
    at = lines.lower().find(begins)
    if at < 0:
        return None
    start = at + len(begins)
    end = lines.find(b"\r", start)
    return (lines[start:end] if end >= 0 else lines[start:]).strip(b" \t")


class Pending:
    """Counts the pending requests of each flow, queued or sent, by `Flow.counted`."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], int] = {}

    def __len__(self) -> int:
        return len(self._counts)

    def come(self, flow: Flow) -> int:
        """Count a request; returns the number of pending requests of its flow before it. Exactly
        one `go` must follow. Requests of an unidentified party are not counted.
        """
        if flow.counted == NO_FLOW.counted:
            return 0
        before = self._counts.get(flow.counted, 0)
        self._counts[flow.counted] = before + 1
        return before

    def go(self, flow: Flow) -> None:
        """End a request that was counted by `come`."""
        if flow.counted == NO_FLOW.counted:
            return
        left = self._counts[flow.counted] - 1
        if left:
            self._counts[flow.counted] = left
        else:
            del self._counts[flow.counted]


def with_steps(urgency: Urgency, steps: int) -> Urgency:
    """Return the urgency of a request when `steps` requests of its own flow are pending before
    it.
    """
    if steps <= 0:
        return urgency
    number = stepped(urgency.number, steps)
    return Urgency(number, urgency.source, urgency.unstepped)
