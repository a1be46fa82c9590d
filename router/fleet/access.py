"""The credential and the header fields that the requests to one replica have of their own.

A replica, or its pool, may have a credential (`credential` in the configuration). Then the replica
gets this credential, and neither the client's nor the one of `upstream`. A provider of another
company (`pools.*.external`) gets only the header fields that describe the body, so it learns
nothing about the client. A replica that the admin API has added gets no credential unless the admin
port needs a secret, because any process of the machine could add a replica to get it.

Must never: show a credential in an error, a log or a report.
"""

from __future__ import annotations

from typing import Final

from router.config.model import Credential, Pool
from router.fleet.engines.common.descriptor import OPENAI_USAGE, UsageAsk
from router.fleet.secret import Secret, secret_of

# Header fields in which clients send credentials.
_CREDENTIALS: Final = frozenset(
    {
        *(b"authorization", b"proxy-authorization", b"x-api-key", b"api-key", b"x-goog-api-key"),
        b"cookie",
    }
)
# The header fields of a client's request that a provider of another company gets.
_PASSED: Final = frozenset(
    {
        *(b"content-type", b"content-encoding", b"content-length", b"accept", b"accept-encoding"),
        *(b"anthropic-version", b"anthropic-beta", b"openai-beta"),
    }
)


class Access:
    """What the requests to one replica have of their own. The object never changes."""

    __slots__ = (
        "_asks_usage",
        "_dropped",
        "_forwards_key",
        "fields",
        "gets_any",
        "gets_usual",
        "has_credential",
        "is_external",
        "secret",
    )

    def __init__(
        self, credential: Credential | None, token: str | None, pool: Pool, *, gets_any: bool = True
    ) -> None:
        """`token`: the secret of `credential`; `None`: there is none.

        `gets_any`: False: the replica gets no credential, neither of the router nor of a client.
        """
        self.is_external = pool.external
        self.gets_any = gets_any
        # Whether the replica gets the credential of `upstream` if it has none of its own.
        self.gets_usual = gets_any and not pool.external
        if not gets_any:
            credential = None
        # Whether streams are asked for token counts; `None`: as the engine's description says.
        asks = pool.include_usage
        self._asks_usage = True if asks is None and pool.external else asks
        # The header fields that are added to each request. The values are secret.
        own = pool.headers if gets_any else {}
        self.fields = {name.lower(): value for name, value in own.items()}
        self.has_credential = False
        self._forwards_key = credential is not None and credential.forward_client_key
        # The credential, which is hidden in answers; `None`: there is none to hide.
        self.secret: Secret | None = None
        if credential is not None and token is not None:
            self.has_credential = True
            name = credential.header.lower()
            self.fields[name] = f"Bearer {token}" if name == "authorization" else token
            self.secret = secret_of(token)
        gets_clients = self.gets_usual and not self.has_credential
        dropped = frozenset([name.encode() for name in self.fields])
        self._dropped = dropped if gets_clients else dropped | _CREDENTIALS

    def secret_in(self, usual: Secret | None) -> Secret | None:
        """Return what is hidden in the replica's answers. `usual`: the credential of `upstream`."""
        return usual if self.gets_usual and not self.has_credential else self.secret

    def lines(self, common: bytes, own: list[bytes | None]) -> bytes:
        """Return the header lines of a request to the replica, each with a CRLF before it.

        `common`: the lines that other replicas get. `own`: the client's lines with credentials.
        """
        kept = [line for line in common.split(b"\r\n") if line and self._passes(_name(line))]
        if self._forwards_key:
            taken = {name.encode() for name in self.fields}
            kept += [line for line in own if line is not None and _name(line) not in taken]
        kept += [f"{name}: {value}".encode() for name, value in self.fields.items()]
        return b"\r\n" + b"\r\n".join(kept)

    def usage_ask(self, usual: UsageAsk | None) -> UsageAsk | None:
        """Return how the token counts of streams are requested. `usual`: of the engine."""
        if self._asks_usage is None:
            return usual
        return (usual or OPENAI_USAGE) if self._asks_usage else None

    def _passes(self, name: bytes) -> bool:
        return name not in self._dropped and (not self.is_external or name in _PASSED)

    def own_fields(self, usual: dict[str, str]) -> dict[str, str]:
        """Return the header fields of a request of the router itself, such as a probe.

        `usual`: the fields that other replicas get. A provider does not learn the router's name.
        """
        dropped = self._dropped | {b"via"} if self.is_external else self._dropped
        kept = {name: usual[name] for name in usual if name.encode() not in dropped}
        return {**kept, **self.fields}


def _name(line: bytes) -> bytes:
    return line[: line.find(b":")].lower()
