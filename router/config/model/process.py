"""Declares the admin port, the files that are written, and the start and end of the process."""

from __future__ import annotations

from typing import Annotated

import msgspec

from router.config.model.clients import Tls
from router.config.model.setting_types import (
    IS_DURATION,
    Bytes,
    BytesOrNone,
    Count,
    Frozen,
    GiB,
    MiB,
    Restart,
    Seconds,
    SecondsOrOff,
    Secret,
    Share,
    TokenSource,
)


class AdminTls(Tls, frozen=True):
    """HTTPS on the admin port. Turning it on or off needs a restart."""

    # A file with the PEM certificates of the authorities that sign the certificates of clients.
    # Unset: clients need no certificate.
    client_ca: str | None = None


class Admin(TokenSource, frozen=True):
    """The admin port: metrics, health, the fleet, reload and drain. Clients must not reach it.

    `admin` may also be only the address. If a token is set, all requests need it, except `/` and
    the probes `/livez`, `/readyz`, `/healthz` and `/health`. Admin requests send it as
    `Authorization: Bearer`. Replicas that the admin API adds get no credential of `upstream` or of
    a pool unless a token or `tls.client_ca` is set.
    """

    # The address. If other machines can reach it, a token or `tls.client_ca` must be set.
    listen: Annotated[str, Restart] = "127.0.0.1:9901"
    # A second address for probes and scrapers. It has only `/livez`, `/readyz`, `/metrics`,
    # `/healthz` and `/health`, and needs no token. The metrics name tenants. Unset: there is no
    # second address.
    probes_listen: Annotated[str, Restart] | None = None
    # More names in the field `Host` under which both ports answer requests without the token, such
    # as gpu-1.example.com or *.example.com. Addresses, names without a dot, names of Kubernetes
    # (.svc, .svc.cluster.local), .internal and the name of the machine need no entry. Any other
    # name returns 421, because a web page may have made it resolve to this port (DNS rebinding).
    hosts: tuple[str, ...] = ()
    tls: AdminTls | None = None


class AccessLog(Frozen, frozen=True):
    """The access log, which has one line of JSON for each request."""

    path: str = "-"  # The file to which the log is written. "-": standard output. "": no log.
    flush_s: Seconds = 0.5  # Maximum time until a line is written.
    queue: Bytes = 4 * MiB  # If more bytes than this wait for a slow disk, lines are dropped.
    # Add the member `time`, the value of `ts` as text: 2026-11-28T13:05:00.125000Z.
    iso_time: bool = False
    # How many pairs of blocks at the beginning of a prompt are logged as hashes. `hedgerow replay`
    # needs the hashes.
    blocks: Annotated[int, msgspec.Meta(ge=0, le=4096)] = 64
    # Salt of the hashes in the log, and of the prompts' hashes: several routers with the policy
    # `chwbl` need the same salt. "": a new random salt at each start.
    salt: Secret = ""


class Batches(Frozen, frozen=True):
    """OpenAI's /v1/files and /v1/batches, served by the router itself."""

    # Turn the batch API on. Files and batches belong to the credential of a request. So without
    # `keys.required`, all clients without a credential share their files and batches, and so do all
    # clients that send the same one, such as `Bearer EMPTY`.
    enabled: bool = False
    # The folder for files and batches. No other router may use it. Its parent folder must exist.
    folder: str = "batches"
    file: Bytes = 512 * MiB  # Maximum size of an uploaded file.
    # Maximum number of lines in the file of one batch. Each line is one request.
    lines: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 50_000
    line: Bytes = 16 * MiB  # Maximum size of one line of a batch file.
    result: Bytes = 16 * MiB  # Maximum size of the response to one line of a batch file.
    # Maximum number of files of one owner (API key), including result files.
    files: Count = 1000
    files_total: Count = 100_000  # Maximum number of files of all owners.
    bytes: Bytes = 16 * GiB  # Maximum size of all files of one owner.
    bytes_total: Bytes = 256 * GiB  # Maximum size of all files.
    unfinished: Count = 100  # Maximum number of unfinished batches of one owner.
    unfinished_total: Count = 1000  # Maximum number of unfinished batches of all owners.
    # The share of each total (`files_total`, `bytes_total`, `unfinished_total`) that all owners
    # without a known API key may use together. Each invented credential is an owner, so the limits
    # of one owner do not limit such clients. If no API keys are configured when the process starts,
    # there is no such limit.
    keyless_share: Share = 0.1
    # Maximum number of batch lines whose requests are in progress. The router sends fewer requests
    # while enough of them wait in the queue.
    concurrency: Count = 1024
    # How often the request of a batch line is sent if it fails. A refusal because the fleet is busy
    # does not count.
    attempts: Count = 5
    retention_s: Seconds = 30 * 86400.0  # Files and finished batches are deleted after this time.
    # Space that is left free on the disk. While less is free, uploads are refused and results wait.
    disk_free: BytesOrNone = 1024 * MiB


class Sharing(Frozen, frozen=True):
    """What the routers of one fleet tell each other: their loads, which prompts went where, and
    what they have granted to which keys."""

    # A server of Redis or Valkey: redis://, rediss:// for TLS, or unix://, with the name and the
    # password that it asks for. "": the router tells nothing. All routers need the same text, or
    # the same `access_log.salt`, because the hashes of prompts depend on it.
    url: Secret = ""
    # The name of the fleet at the server. Routers of other fleets are ignored.
    fleet: Annotated[str, msgspec.Meta(min_length=1, max_length=128)] = "hedgerow"
    # Time between two messages of this router. A message is sent only if something has changed.
    interval_s: Annotated[float, msgspec.Meta(ge=0.01, le=1.0), IS_DURATION] = 0.02


class Drain(Frozen, frozen=True):
    """What happens between the signal SIGTERM or SIGUSR2 and the end of the process."""

    # During this time after SIGTERM, /readyz returns 503, but requests are still accepted, and
    # each response closes its connection. After SIGUSR2 a new process serves instead, at once.
    lame_duck_s: SecondsOrOff = 5.0
    # Then the process accepts no new connection. Requests in progress may finish within this time.
    grace_s: SecondsOrOff = 600.0


class Emulator(Frozen, frozen=True):
    """The fleet of the flag `--emulate N`: emulated engines in a separate process."""

    count: Annotated[int, msgspec.Meta(ge=0, le=64)] = 0  # Number of emulated engines.
    model: str = "emulated"  # The model that the emulated engines serve.
