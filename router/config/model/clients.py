"""Declares what clients may send, from where, and how long it may take."""

from __future__ import annotations

from typing import Annotated

import msgspec

from router.config.model.setting_types import (
    Bytes,
    BytesOrNone,
    Count,
    CountOrNone,
    Frozen,
    KiB,
    MiB,
    Seconds,
    SecondsOrOff,
)


class Tls(Frozen, frozen=True):
    """HTTPS on the data port. Turning it on or off needs a restart."""

    cert: str  # The PEM file with the certificate chain.
    key: str  # The PEM file with the private key.


class Cors(Frozen, frozen=True):
    """The web pages of other origins that may use the data port (CORS).

    With `origins`, the router answers the preflight requests of browsers itself, without a key, and
    adds CORS header fields to every response. These replace the CORS header fields of engines.
    """

    # The origins of these web pages, such as `https://chat.example.com`, or "*" for every page.
    # Empty: the router sends no CORS header fields, and forwards those of engines.
    origins: tuple[str, ...] = ()
    # The header fields that pages may send. "*": every field.
    headers: tuple[str, ...] = ("*",)
    # The methods that pages may use.
    methods: tuple[str, ...] = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
    # The header fields of responses that pages may read. "*": every field.
    exposed: tuple[str, ...] = ("*",)
    max_age_s: Seconds = 7200.0  # How long browsers may remember a preflight; Chromium's maximum.


class Limits(Frozen, frozen=True):
    """Limits on the size of requests and responses, on connections, and on the router's memory.

    The defaults follow RFC 9112, nginx, Envoy and HAProxy.
    """

    request_line: Bytes = 8 * KiB  # A request with a longer request line returns 414.
    head: Bytes = 64 * KiB  # A larger request head returns 431.
    header_count: Count = 100  # A request with more header lines returns 431.
    body: Bytes = 64 * MiB  # A larger request body returns 413.
    # Maximum size of all request bodies in memory, with unfinished heads and early data. A request
    # that would exceed it returns 503.
    bodies_total: Bytes = 512 * MiB
    response_head: Bytes = 64 * KiB  # A larger response head is an error of the replica.
    # More header lines in a response are an error of the replica.
    response_header_count: Count = 200
    # Maximum bytes of a stream that are buffered while the router waits for generated content.
    response_hold: Bytes = 256 * KiB
    # Maximum bytes that are buffered of requests that a client sends before its current response
    # has ended. With more bytes, the connection is closed.
    early_data: BytesOrNone = 64 * KiB
    # Maximum number of client connections, 45 % of the open-file limit at most. 0: that share.
    connections: CountOrNone = 0
    # With this many unsent bytes for a client, the router stops reading from its replica.
    write_high: Bytes = 64 * KiB
    # With this many unsent bytes for a client, the router reads from its replica again.
    write_low: BytesOrNone = 32 * KiB
    pool_idle: CountOrNone = 64  # Maximum number of idle connections to each replica.
    connecting: Count = 64  # Maximum number of connections to one replica being opened at once.
    retry_body: BytesOrNone = 1 * MiB  # A request with a larger body is not sent a second time.


class Bodies(Frozen, frozen=True):
    """What the bodies of requests may contain."""

    # Members that clients may send although they choose where an engine reads or writes, such as
    # `kv_transfer_params`. A request with any other such member returns 400.
    allow: tuple[str, ...] = ()
    # How long a body is refused that was in flight at the deaths of two engine processes, unless a
    # replica answers it in between. The first death is remembered for the same time.
    suspect_s: SecondsOrOff = 300.0


class Timeouts(Frozen, frozen=True):
    """How long each step of a request may take."""

    head_s: Seconds = 10.0  # From a request's first byte to the end of its head.
    body_idle_s: Seconds = 30.0  # Maximum time between two pieces of a request body.
    # Minimum rate of a request body in bytes per second. A slower request is refused. 0: no
    # minimum.
    body_rate: Annotated[float, msgspec.Meta(ge=0)] = 1024.0
    body_rate_over_s: Seconds = 30.0  # The time over which `body_rate` is measured.
    # How long the rest of a refused request is read and discarded, so that the client can read the
    # error response. This ends a sixth of the time after the last bytes.
    refused_body_s: Seconds = 30.0
    keep_alive_s: Seconds = 75.0  # An idle client connection is closed after this time.
    connect_s: Seconds = 2.0  # Maximum time to open a connection to a replica.
    # Maximum time from sending a request to a replica until the first content of its stream.
    first_token_s: Seconds = 300.0
    # Maximum time from sending a request to a replica until the end of its response, if the
    # response is not a stream.
    whole_s: Seconds = 1800.0
    # Maximum time between two pieces of a response. It counts from the replica's last sign of work,
    # and a working replica may be silent for as long as `whole`.
    token_gap_s: Seconds = 60.0
    # Maximum time of a request from its arrival to the end of its response. 0: no limit.
    total_s: SecondsOrOff = 0.0
    write_stall_s: Seconds = 60.0  # A client that reads nothing for this time is disconnected.
    # An idle connection to a replica is closed after this time. It must be below the keep-alive
    # timeout of the replica (uvicorn: 5 s).
    pool_idle_s: Seconds = 3.0
    pool_age_s: Seconds = 600.0  # Maximum age of a connection to a replica, with 20 % jitter.
    # After this time without content, the router sends status 200 and then comments to the client
    # of a stream, so that the client does not give up. A stream that is silent for this time later
    # gets comments, too. 0: never.
    commit_after_s: SecondsOrOff = 10.0
