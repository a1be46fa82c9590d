"""Every error that can end a request, and which party caused it.

A `RouterError` has a `Reason`, an HTTP status, the `Source` that caused it, and how long the client
should wait before it tries again. The value of a `Reason` is used as a field of the access log, as
a label of metrics and as the `code` in the body of an error response.

Must never: depend on sockets, HTTP bytes or engines.
"""

from __future__ import annotations

from enum import StrEnum


class Source(StrEnum):
    """The party that caused the end of a request."""

    CLIENT = "client"
    REPLICA = "replica"
    ROUTER = "router"


class Reason(StrEnum):
    """Why a request ended. The values appear in the access log, in metrics and in error bodies."""

    # `Enum.__hash__` is slow Python code, and counters look up a reason for each request.
    __hash__ = str.__hash__

    OK = "ok"

    # Reasons caused by the client: the content of the request.
    BAD_REQUEST = "bad_request"  # The framing or the head of the request is invalid.
    BAD_TARGET = "bad_target"  # The request target is invalid, so no route can match it.
    BAD_HOST = "bad_host"
    BAD_HEADER = "bad_header"
    BAD_TRANSFER_ENCODING = "bad_transfer_encoding"
    BAD_JSON = "bad_json"
    BAD_MULTIPART = "bad_multipart"
    BAD_MODEL = "bad_model"  # The model's name is not a string, is empty or is too long.
    # The router cannot read the body, but a limit of the client depends on the body's content.
    UNREAD_BODY = "unread_body"
    BAD_ENCODING = "bad_encoding"  # The body is not valid data of its Content-Encoding.
    UNSUPPORTED_ENCODING = "unsupported_encoding"  # The Content-Encoding is not supported.
    BAD_PRIORITY = "bad_priority"  # The priority is neither a known name nor a number.
    # The client asks for a response that is generated after the answer to the request.
    BACKGROUND_NOT_SERVED = "background_not_served"
    # The body has a member that only a router may set, since it chooses where an engine reads or
    # writes.
    PRIVATE_MEMBER = "private_member"
    # The same body was in flight when two engine processes died. If an attempt has this reason, the
    # body became suspect before the attempt was sent.
    SUSPECT_REQUEST = "suspect_request"
    KEY_REQUIRED = "key_required"  # The request has no API key, or an unknown one.
    MODEL_NOT_ALLOWED = "model_not_allowed"  # The API key may not use the model.
    # No replica serves the model in the regions to which the API key is limited. If an attempt has
    # this reason, a reload had changed the regions before the attempt was sent.
    REGION_NOT_ALLOWED = "region_not_allowed"
    KEY_CONCURRENCY = "key_concurrency"  # The API key has reached its limit of concurrent requests.
    KEY_REQUESTS = "key_requests"  # The API key has reached its limit of requests per minute.
    KEY_TOKENS = "key_tokens"  # The API key has reached its limit of tokens per minute.
    # The API key has used up its budget of tokens or money for the day or the month. The value is
    # OpenAI's code.
    INSUFFICIENT_QUOTA = "insufficient_quota"
    # The running requests of the API key hold the rest of its budget.
    KEY_BUDGET_HELD = "key_budget_held"
    MODEL_REQUIRED = "model_required"
    MODEL_NOT_FOUND = "model_not_found"
    NOT_FOUND = "not_found"  # The path is not served from this port.
    METHOD_NOT_ALLOWED = "method_not_allowed"
    METHOD_UNKNOWN = "method_unknown"
    UPGRADE_NOT_SERVED = "upgrade_not_served"
    EXPECTATION_FAILED = "expectation_failed"
    VERSION_NOT_SUPPORTED = "version_not_supported"
    # The client sent HTTP/2 without negotiation ("prior knowledge").
    HTTP2_NOT_SERVED = "http2_not_served"
    TARGET_TOO_LONG = "target_too_long"
    HEAD_TOO_LARGE = "head_too_large"
    BODY_TOO_LARGE = "body_too_large"
    # The request's Via header names this router: the request was forwarded back to the router.
    LOOP = "loop"

    # Reasons caused by the client's timing or disconnection.
    HEAD_TIMEOUT = "head_timeout"
    BODY_TIMEOUT = "body_timeout"
    WRITE_TIMEOUT = "write_timeout"  # The client stopped reading.
    CLIENT_GONE = "client_gone"
    # The client's own deadline passed before the response had content.
    DEADLINE_PASSED = "deadline_passed"
    # Before the response ended, the client sent more bytes than the router buffers.
    EARLY_DATA = "early_data"

    # Reasons caused by the replica.
    CONNECT_FAILED = "connect_failed"
    CONNECT_TIMEOUT = "connect_timeout"
    REPLICA_RESET = "replica_reset"  # The connection was reset, or ended too early.
    BAD_RESPONSE = "bad_response"  # The bytes are not an HTTP response that the router may forward.
    TTFT_TIMEOUT = "ttft_timeout"
    TOKEN_GAP_TIMEOUT = "token_gap_timeout"
    TOTAL_TIMEOUT = "total_timeout"
    # The replica was ejected or went down, and showed no work since the attempt was sent. The
    # request was sent to another replica.
    REPLICA_STALLED = "replica_stalled"
    EMPTY_STREAM = "empty_stream"
    STREAM_ERROR = "stream_error"  # The engine reported an error inside its stream.
    SERVER_ERROR = "server_error"  # The replica answered with a 5xx status other than 503.
    # The replica answered with a 4xx status other than 429. The response is forwarded.
    REPLICA_REFUSED = "replica_refused"
    MODEL_REFUSED = "model_refused"  # The replica answered 404 for a model that it lists.
    REPLICA_BUSY = "replica_busy"  # The replica answered 429 or 503.
    # The replica does not accept the credential that the configuration has for it.
    CREDENTIAL_REFUSED = "credential_refused"
    STATE_LOST = "state_lost"  # The replica that held a stored response is gone.

    # Reasons caused by the router.
    HEDGE_LOST = "hedge_lost"  # The attempt was cancelled, because another copy answered first.
    # The attempt was cancelled, to serve a more urgent request or because the replica's machine is
    # reclaimed. Its request was queued again, or is continued at another replica.
    PREEMPTED = "preempted"
    NO_REPLICA = "no_replica"  # No replica is up.
    # The model is known, but no replica serves it at the moment.
    MODEL_RESTARTING = "model_restarting"
    FLEET_FULL = "fleet_full"  # Every replica has reached its limit of concurrent attempts.
    QUEUE_FULL = "queue_full"  # The limit of waiting requests of the request's class is reached.
    # The limit of waiting requests of the request's flow (an account, or a user within an account)
    # is reached.
    QUEUE_FLOW_FULL = "queue_flow_full"
    # The bodies of all waiting requests together have reached the limit of bytes.
    QUEUE_BYTES_FULL = "queue_bytes_full"
    # The request was removed from a full queue, because its flow had the most requests in it.
    QUEUE_EVICTED = "queue_evicted"
    QUEUE_TOO_LONG = "queue_too_long"  # The request could not be served before its deadline.
    # The estimated time to first token exceeds the request's time limit. The configuration of the
    # request's class refuses such requests.
    TTFT_UNREACHABLE = "ttft_unreachable"
    QUEUE_TIMEOUT = "queue_timeout"  # The request waited as long as its class allows.
    WHOLE_TIMEOUT = "whole_timeout"  # A response that is not streamed took longer than allowed.
    NO_FILES = "no_files"  # The process has no free file descriptor.
    NO_PORTS = "no_ports"  # The host has no free ephemeral port.
    MEMORY_LIMIT = "memory_limit"  # All request bodies in memory have reached the limit of bytes.
    DRAINING = "draining"
    INTERNAL = "internal"


STATUS: dict[Reason, int] = {
    Reason.OK: 200,
    Reason.BAD_REQUEST: 400,
    Reason.BAD_TARGET: 400,
    Reason.BAD_HOST: 400,
    Reason.BAD_HEADER: 400,
    Reason.BAD_TRANSFER_ENCODING: 501,
    Reason.BAD_JSON: 400,
    Reason.BAD_MULTIPART: 400,
    Reason.BAD_MODEL: 400,
    Reason.UNREAD_BODY: 415,
    Reason.BAD_ENCODING: 400,
    Reason.UNSUPPORTED_ENCODING: 415,
    Reason.BAD_PRIORITY: 400,
    Reason.BACKGROUND_NOT_SERVED: 400,
    Reason.PRIVATE_MEMBER: 400,
    Reason.SUSPECT_REQUEST: 400,
    Reason.KEY_REQUIRED: 401,
    Reason.MODEL_NOT_ALLOWED: 403,
    Reason.REGION_NOT_ALLOWED: 403,
    Reason.KEY_CONCURRENCY: 429,
    Reason.KEY_REQUESTS: 429,
    Reason.KEY_TOKENS: 429,
    Reason.INSUFFICIENT_QUOTA: 429,
    Reason.KEY_BUDGET_HELD: 429,
    Reason.MODEL_REQUIRED: 400,
    Reason.MODEL_NOT_FOUND: 404,
    Reason.NOT_FOUND: 404,
    Reason.METHOD_NOT_ALLOWED: 405,
    Reason.METHOD_UNKNOWN: 501,
    Reason.UPGRADE_NOT_SERVED: 426,
    Reason.EXPECTATION_FAILED: 417,
    Reason.VERSION_NOT_SUPPORTED: 505,
    Reason.HTTP2_NOT_SERVED: 505,
    Reason.TARGET_TOO_LONG: 414,
    Reason.HEAD_TOO_LARGE: 431,
    Reason.BODY_TOO_LARGE: 413,
    Reason.LOOP: 508,
    Reason.HEAD_TIMEOUT: 408,
    Reason.BODY_TIMEOUT: 408,
    Reason.WRITE_TIMEOUT: 408,
    Reason.CLIENT_GONE: 499,
    Reason.DEADLINE_PASSED: 408,
    Reason.EARLY_DATA: 400,
    Reason.CONNECT_FAILED: 503,
    Reason.CONNECT_TIMEOUT: 503,
    Reason.REPLICA_RESET: 502,
    Reason.BAD_RESPONSE: 502,
    Reason.TTFT_TIMEOUT: 504,
    Reason.TOKEN_GAP_TIMEOUT: 504,
    Reason.TOTAL_TIMEOUT: 504,
    Reason.REPLICA_STALLED: 504,
    Reason.EMPTY_STREAM: 502,
    Reason.STREAM_ERROR: 502,
    Reason.SERVER_ERROR: 502,
    Reason.REPLICA_REFUSED: 400,
    Reason.MODEL_REFUSED: 503,
    Reason.REPLICA_BUSY: 503,
    Reason.CREDENTIAL_REFUSED: 502,
    Reason.STATE_LOST: 404,
    Reason.HEDGE_LOST: 503,
    Reason.PREEMPTED: 503,
    Reason.NO_REPLICA: 503,
    Reason.MODEL_RESTARTING: 503,
    Reason.FLEET_FULL: 503,
    Reason.QUEUE_FULL: 429,
    Reason.QUEUE_FLOW_FULL: 429,
    Reason.QUEUE_BYTES_FULL: 429,
    Reason.QUEUE_EVICTED: 429,
    Reason.QUEUE_TOO_LONG: 429,
    Reason.TTFT_UNREACHABLE: 429,
    Reason.QUEUE_TIMEOUT: 503,
    Reason.WHOLE_TIMEOUT: 504,
    Reason.NO_FILES: 503,
    Reason.NO_PORTS: 503,
    Reason.MEMORY_LIMIT: 503,
    Reason.DRAINING: 503,
    Reason.INTERNAL: 500,
}

# Refusals because an API key has reached one of its limits. No replica was involved.
KEY_LIMITS = frozenset(
    {
        Reason.KEY_CONCURRENCY,
        Reason.KEY_REQUESTS,
        Reason.KEY_TOKENS,
        Reason.INSUFFICIENT_QUOTA,
        Reason.KEY_BUDGET_HELD,
    }
)
# The client disconnected, or the router disconnected it because of the client's behaviour.
DISCONNECTED = frozenset({Reason.CLIENT_GONE, Reason.WRITE_TIMEOUT, Reason.EARLY_DATA})

_REPLICA = frozenset(
    {
        Reason.CONNECT_FAILED,
        Reason.CONNECT_TIMEOUT,
        Reason.REPLICA_RESET,
        Reason.BAD_RESPONSE,
        Reason.TTFT_TIMEOUT,
        Reason.WHOLE_TIMEOUT,
        Reason.TOKEN_GAP_TIMEOUT,
        Reason.TOTAL_TIMEOUT,
        Reason.REPLICA_STALLED,
        Reason.EMPTY_STREAM,
        Reason.STREAM_ERROR,
        Reason.SERVER_ERROR,
        Reason.REPLICA_REFUSED,
        Reason.MODEL_REFUSED,
        Reason.REPLICA_BUSY,
        Reason.CREDENTIAL_REFUSED,
        Reason.STATE_LOST,
    }
)
_ROUTER = frozenset(
    {
        Reason.HEDGE_LOST,
        Reason.PREEMPTED,
        Reason.NO_REPLICA,
        Reason.MODEL_RESTARTING,
        Reason.FLEET_FULL,
        Reason.QUEUE_FULL,
        Reason.QUEUE_BYTES_FULL,
        Reason.QUEUE_TOO_LONG,
        Reason.TTFT_UNREACHABLE,
        Reason.QUEUE_TIMEOUT,
        Reason.NO_FILES,
        Reason.NO_PORTS,
        Reason.MEMORY_LIMIT,
        Reason.DRAINING,
        Reason.INTERNAL,
    }
)


def source_of(reason: Reason) -> Source:
    """Return the party that caused the end of a request that ended for this reason."""
    if reason in _REPLICA:
        return Source.REPLICA
    return Source.ROUTER if reason in _ROUTER else Source.CLIENT


class RouterError(Exception):
    """An error for which the router writes the response itself.

    `retry_after_s` becomes a Retry-After header; `None`: the response has no such header.
    `is_final`: the request must end and not go to a fallback, because its connection and its memory
    are needed.
    """

    def __init__(
        self,
        reason: Reason,
        message: str,
        *,
        status: int | None = None,
        retry_after_s: int | None = None,
        param: str | None = None,
        is_final: bool = False,
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.status = STATUS[reason] if status is None else status
        self.retry_after_s = retry_after_s
        self.param = param
        self.is_final = is_final

    @property
    def source(self) -> Source:
        return source_of(self.reason)


class ConfigError(Exception):
    """An invalid configuration. Each line of `problems` has the form `path: what is wrong`."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems
