"""Derives the flow of a request: the party whose fair share of the fleet the request uses.

A flow has two names. Its account shares the fleet with all other accounts. Its member shares what
its account gets with the other members of that account. Both names are derived only here, for the
queue, the pending requests, the access log, the isolation of prefixes, and the replay of a log.

| request | account | member |
|---|---|---|
| with a key of the keys file | the key's name | the user, if the key names users |
| with a confirmed credential | the credential | |
| with another credential | the client address | the credential |
| without a credential | the client address | |

A client can invent credentials. So the account of an unconfirmed credential is its client address.
A credential is confirmed when an engine that is known to check keys has accepted it. Only a bearer
token and an x-api-key can be confirmed, because in other authentication schemes one secret can be
written in several ways.

Credentials, addresses and users are stored as salted hashes of 48 bits, as in the access log. Every
table has a maximum size.

Must never: keep the name of a user, or hash a header line again for a client that repeats it.
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
_LINE_BYTES: Final = 2048  # maximum bytes of a header line that is cached
_MEMO: Final = 4096  # maximum entries of each cache; a full cache is cleared
CONFIRMED: Final = 16384  # maximum number of confirmed credentials; the oldest is dropped first


class Flow(FlowIdentity):
    """The party that sent a request. Requests of one party may share one immutable object."""

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
        """All texts are names without secrets; "" means none.

        `tenant`: the hash of the key or credential. `within`: the hash of the client address if it
        is the account. `is_known`: the key is in the keys file, with this `name` and `weight`.
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
        # The party whose requests are counted together. An unconfirmed credential is not part of
        # it, because a client may invent credentials.
        self.counted = (account, member if is_member_counted else "")

    @property
    def party(self) -> str:
        """The owner of what the request leaves at an engine, such as a stored response.

        "" if the party is not identified.
        """
        return self.account if self.is_known else self.tenant

    @property
    def isolation(self) -> bytes:
        """Bytes that differ for parties that must not share cached prefixes."""
        return (self.tenant or self.within).encode("ascii", "replace")


NO_FLOW: Final = Flow("", "", "")  # The flow of a request that was not identified.


class _Credential:
    """One credential of a client that is not a key of the keys file."""

    __slots__ = ("can_be_confirmed", "confirmed", "name", "within")

    def __init__(self, name: str, *, can_be_confirmed: bool) -> None:
        self.name = name
        self.can_be_confirmed = can_be_confirmed
        self.confirmed: Flow | None = None
        self.within: dict[str, Flow] = {}  # the credential's flows, by client address


class Flows:
    """Derives the flows of requests, and caches them."""

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
        # The confirmed credentials, in the order of their confirmation.
        self._confirmed: dict[str, None] = {}
        self._hash = hashed
        self._clear()

    def adopt(self, hashed: Callable[[bytes], str], trusted: Sequence[str]) -> None:
        """Uses another hash and other trusted proxies. A new hash clears confirmed credentials."""
        self.addresses = Addresses(trusted)
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
        self._held = 0  # number of cached flows of unconfirmed credentials

    def of(
        self,
        key: Key | None,
        authorization: bytes | None,
        api_key: bytes | None,
        peer: str,
        forwarded_for: bytes | None,
        user: bytes,
    ) -> Flow:
        """Return the flow of a request.

        `authorization` and `api_key`: whole header lines. `user`: b"" if the request names no user.
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
        """Called when an engine that checks keys has accepted the credential of this flow."""
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
    """Return the tenant of the key `name` of the keys file: a hash of its name."""
    return hashed(b"key\n" + name.encode())


def user_of(header: bytes | None, field: msgspec.Raw | None) -> bytes:
    """Return the user that a request names in `header`, else in the body's `field`; b"": none."""
    user = b""
    if header:
        user = header
    elif field is not None and len(field) <= _USER_BYTES:
        value = value_of(field)
        if isinstance(value, str):
            user = value.encode("utf-8", "replace")
    return user if len(user) <= _USER_BYTES else b""


def header_of(lines: bytes, begins: bytes) -> bytes | None:
    """Return the value of a header field; None if `lines` do not contain the field.

    `lines`: header lines, each with a CRLF before it. `begins`: CRLF, the field's name in lower
    case, and a colon.
    """
    at = lines.lower().find(begins)
    if at < 0:
        return None
    start = at + len(begins)
    end = lines.find(b"\r", start)
    return (lines[start:end] if end >= 0 else lines[start:]).strip(b" \t")


class Pending:
    """Counts the pending (queued or sent) requests of each party, by `Flow.counted`."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], int] = {}

    def __len__(self) -> int:
        return len(self._counts)

    def come(self, flow: Flow) -> int:
        """Counts a request. Returns the number of requests of its party that were pending before.

        Exactly one call of `go` must follow. Requests of an unidentified party are not counted.
        """
        if flow.counted == NO_FLOW.counted:
            return 0
        before = self._counts.get(flow.counted, 0)
        self._counts[flow.counted] = before + 1
        return before

    def go(self, flow: Flow) -> None:
        """Called when a request that `come` counted has ended."""
        if flow.counted == NO_FLOW.counted:
            return
        left = self._counts[flow.counted] - 1
        if left:
            self._counts[flow.counted] = left
        else:
            del self._counts[flow.counted]


def with_steps(urgency: Urgency, steps: int) -> Urgency:
    """Return `urgency`, lowered for a request whose party has `steps` other pending requests."""
    if steps <= 0:
        return urgency
    number = stepped(urgency.number, steps)
    return Urgency(number, urgency.source, urgency.unstepped)
