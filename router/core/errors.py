"""Every error that can end a request, and which party caused it.

A `RouterError` has a `Reason`, an HTTP status, the `Source` that caused it, and how long the client
should wait before it tries again. The value of a `Reason` is used as a field of the access log, as
a label of metrics and as the `code` in the body of an error response.

Must never: depend on sockets, HTTP bytes or engines.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final


class Source(StrEnum):
    """The party that caused the end of a request."""

    CLIENT = "client"
    REPLICA = "replica"
    ROUTER = "router"


_CLIENT: Final = Source.CLIENT
_REPLICA: Final = Source.REPLICA
_ROUTER: Final = Source.ROUTER
# `Any`, because compiled code cannot check the type of a member before its class exists.
_new_text: Final[Any] = str.__new__


class Reason(StrEnum):
    """Why a request ended. The values appear in the access log, in metrics and in error bodies.

    A row is the value, the HTTP status, and the party that caused the end.
    """

    status: int
    source: Source

    def __new__(cls, value: str, status: int, source: Source) -> Any:
        member = _new_text(cls, value)
        member._value_ = value
        member.status = status
        member.source = source
        return member

    # `Enum.__hash__` is slow Python code, and counters look up a reason for each request.
    __hash__ = str.__hash__

    OK = "ok", 200, _CLIENT

    # Reasons caused by the client: the content of the request.
    BAD_REQUEST = "bad_request", 400, _CLIENT  # The framing or the head of the request is invalid.
    # The request target is invalid, so no route can match it.
    BAD_TARGET = "bad_target", 400, _CLIENT
    BAD_HOST = "bad_host", 400, _CLIENT
    BAD_HEADER = "bad_header", 400, _CLIENT
    BAD_TRANSFER_ENCODING = "bad_transfer_encoding", 501, _CLIENT
    BAD_JSON = "bad_json", 400, _CLIENT
    BAD_MULTIPART = "bad_multipart", 400, _CLIENT
    # The model's name is not a string, is empty or is too long.
    BAD_MODEL = "bad_model", 400, _CLIENT
    # The router cannot read the body, but a limit of the client depends on the body's content.
    UNREAD_BODY = "unread_body", 415, _CLIENT
    # The body is not valid data of its Content-Encoding.
    BAD_ENCODING = "bad_encoding", 400, _CLIENT
    # The Content-Encoding is not supported.
    UNSUPPORTED_ENCODING = "unsupported_encoding", 415, _CLIENT
    # The priority is neither a known name nor a number.
    BAD_PRIORITY = "bad_priority", 400, _CLIENT
    # The client asks for a response that is generated after the answer to the request.
    BACKGROUND_NOT_SERVED = "background_not_served", 400, _CLIENT
    # The body has a member that only a router may set, since it chooses where an engine reads or
    # writes.
    PRIVATE_MEMBER = "private_member", 400, _CLIENT
    # The same body was in flight when two engine processes died. If an attempt has this reason, the
    # body became suspect before the attempt was sent.
    SUSPECT_REQUEST = "suspect_request", 400, _CLIENT
    KEY_REQUIRED = "key_required", 401, _CLIENT  # The request has no API key, or an unknown one.
    MODEL_NOT_ALLOWED = "model_not_allowed", 403, _CLIENT  # The API key may not use the model.
    # No replica serves the model in the regions to which the API key is limited. If an attempt has
    # this reason, a reload had changed the regions before the attempt was sent.
    REGION_NOT_ALLOWED = "region_not_allowed", 403, _CLIENT
    # The API key has reached its limit of concurrent requests.
    KEY_CONCURRENCY = "key_concurrency", 429, _CLIENT
    # The API key has reached its limit of requests per minute.
    KEY_REQUESTS = "key_requests", 429, _CLIENT
    # The API key has reached its limit of tokens per minute.
    KEY_TOKENS = "key_tokens", 429, _CLIENT
    # The API key has used up its budget of tokens or money for the day or the month. The value is
    # OpenAI's code.
    INSUFFICIENT_QUOTA = "insufficient_quota", 429, _CLIENT
    # The running requests of the API key hold the rest of its budget.
    KEY_BUDGET_HELD = "key_budget_held", 429, _CLIENT
    MODEL_REQUIRED = "model_required", 400, _CLIENT
    MODEL_NOT_FOUND = "model_not_found", 404, _CLIENT
    NOT_FOUND = "not_found", 404, _CLIENT  # The path is not served from this port.
    METHOD_NOT_ALLOWED = "method_not_allowed", 405, _CLIENT
    METHOD_UNKNOWN = "method_unknown", 501, _CLIENT
    UPGRADE_NOT_SERVED = "upgrade_not_served", 426, _CLIENT
    EXPECTATION_FAILED = "expectation_failed", 417, _CLIENT
    VERSION_NOT_SUPPORTED = "version_not_supported", 505, _CLIENT
    # The client sent HTTP/2 without negotiation ("prior knowledge").
    HTTP2_NOT_SERVED = "http2_not_served", 505, _CLIENT
    TARGET_TOO_LONG = "target_too_long", 414, _CLIENT
    HEAD_TOO_LARGE = "head_too_large", 431, _CLIENT
    BODY_TOO_LARGE = "body_too_large", 413, _CLIENT
    # The request's Via header names this router: the request was forwarded back to the router.
    LOOP = "loop", 508, _CLIENT

    # Reasons caused by the client's timing or disconnection.
    HEAD_TIMEOUT = "head_timeout", 408, _CLIENT
    BODY_TIMEOUT = "body_timeout", 408, _CLIENT
    WRITE_TIMEOUT = "write_timeout", 408, _CLIENT  # The client stopped reading.
    CLIENT_GONE = "client_gone", 499, _CLIENT
    # The client's own deadline passed before the response had content.
    DEADLINE_PASSED = "deadline_passed", 408, _CLIENT
    # Before the response ended, the client sent more bytes than the router buffers.
    EARLY_DATA = "early_data", 400, _CLIENT

    # Reasons caused by the replica.
    CONNECT_FAILED = "connect_failed", 503, _REPLICA
    CONNECT_TIMEOUT = "connect_timeout", 503, _REPLICA
    REPLICA_RESET = "replica_reset", 502, _REPLICA  # The connection was reset, or ended too early.
    # The bytes are not an HTTP response that the router may forward.
    BAD_RESPONSE = "bad_response", 502, _REPLICA
    TTFT_TIMEOUT = "ttft_timeout", 504, _REPLICA
    TOKEN_GAP_TIMEOUT = "token_gap_timeout", 504, _REPLICA
    TOTAL_TIMEOUT = "total_timeout", 504, _REPLICA
    # The replica was ejected or went down, and showed no work since the attempt was sent. The
    # request was sent to another replica.
    REPLICA_STALLED = "replica_stalled", 504, _REPLICA
    EMPTY_STREAM = "empty_stream", 502, _REPLICA
    STREAM_ERROR = "stream_error", 502, _REPLICA  # The engine reported an error inside its stream.
    # The replica answered with a 5xx status other than 503.
    SERVER_ERROR = "server_error", 502, _REPLICA
    # The replica answered with a 4xx status other than 429. The response is forwarded.
    REPLICA_REFUSED = "replica_refused", 400, _REPLICA
    # The replica answered 404 for a model that it lists.
    MODEL_REFUSED = "model_refused", 503, _REPLICA
    REPLICA_BUSY = "replica_busy", 503, _REPLICA  # The replica answered 429 or 503.
    # The replica does not accept the credential that the configuration has for it.
    CREDENTIAL_REFUSED = "credential_refused", 502, _REPLICA
    STATE_LOST = "state_lost", 404, _REPLICA  # The replica that held a stored response is gone.

    # Reasons caused by the router.
    # The attempt was cancelled, because another copy answered first.
    HEDGE_LOST = "hedge_lost", 503, _ROUTER
    # The attempt was cancelled, to serve a more urgent request or because the replica's machine is
    # reclaimed. Its request was queued again, or is continued at another replica.
    PREEMPTED = "preempted", 503, _ROUTER
    NO_REPLICA = "no_replica", 503, _ROUTER  # No replica is up.
    # The model is known, but no replica serves it at the moment.
    MODEL_RESTARTING = "model_restarting", 503, _ROUTER
    # Every replica has reached its limit of concurrent attempts.
    FLEET_FULL = "fleet_full", 503, _ROUTER
    # The limit of waiting requests of the request's class is reached.
    QUEUE_FULL = "queue_full", 429, _ROUTER
    # The limit of waiting requests of the request's flow (an account, or a user within an account)
    # is reached.
    QUEUE_FLOW_FULL = "queue_flow_full", 429, _CLIENT
    # The bodies of all waiting requests together have reached the limit of bytes.
    QUEUE_BYTES_FULL = "queue_bytes_full", 429, _ROUTER
    # The request was removed from a full queue, because its flow had the most requests in it.
    QUEUE_EVICTED = "queue_evicted", 429, _CLIENT
    # The request could not be served before its deadline.
    QUEUE_TOO_LONG = "queue_too_long", 429, _ROUTER
    # The estimated time to first token exceeds the request's time limit. The configuration of the
    # request's class refuses such requests.
    TTFT_UNREACHABLE = "ttft_unreachable", 429, _ROUTER
    QUEUE_TIMEOUT = "queue_timeout", 503, _ROUTER  # The request waited as long as its class allows.
    # A response that is not streamed took longer than allowed.
    WHOLE_TIMEOUT = "whole_timeout", 504, _REPLICA
    NO_FILES = "no_files", 503, _ROUTER  # The process has no free file descriptor.
    NO_PORTS = "no_ports", 503, _ROUTER  # The host has no free ephemeral port.
    # All request bodies in memory have reached the limit of bytes.
    MEMORY_LIMIT = "memory_limit", 503, _ROUTER
    DRAINING = "draining", 503, _ROUTER
    INTERNAL = "internal", 500, _ROUTER


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
        self.status = reason.status if status is None else status
        self.retry_after_s = retry_after_s
        self.param = param
        self.is_final = is_final

    @property
    def source(self) -> Source:
        return self.reason.source


class ConfigError(Exception):
    """An invalid configuration. Each line of `problems` has the form `path: what is wrong`."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems
