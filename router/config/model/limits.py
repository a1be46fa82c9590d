"""Declares the section `limits`: sizes, connections and memory."""

from __future__ import annotations

from router.config.model.setting_types import (
    Bytes,
    BytesOrNone,
    Count,
    CountOrNone,
    Frozen,
    KiB,
    MiB,
)


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
