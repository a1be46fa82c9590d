"""Error messages for clients when the router ends a request.

The messages contain no internal address.
"""

from __future__ import annotations

from router.core.errors import Reason

MESSAGES: dict[Reason, str] = {
    Reason.CONNECT_FAILED: "the router could not connect to any replica",
    Reason.CONNECT_TIMEOUT: "no replica accepted the connection in time",
    Reason.REPLICA_RESET: "the replica closed the connection before its response was complete",
    Reason.BAD_RESPONSE: "the replica sent an invalid response",
    Reason.DEADLINE_PASSED: "the deadline set by the client has passed",
    Reason.TTFT_TIMEOUT: "the replica did not begin to answer in time",
    Reason.TOKEN_GAP_TIMEOUT: "the replica stopped in the middle of its response",
    Reason.WHOLE_TIMEOUT: "the replica did not finish its answer in time",
    Reason.TOTAL_TIMEOUT: "the request exceeded the total timeout",
    Reason.REPLICA_STALLED: "the replica stopped working before it began to answer",
    Reason.EMPTY_STREAM: "the replica ended its stream without content",
    # An error answer of a replica is relayed. These messages are for error answers that were not
    # kept, because another attempt was made, which then failed as well.
    Reason.STREAM_ERROR: "the replica reported an error instead of content",
    Reason.SERVER_ERROR: "the replica answered with a server error",
    Reason.REPLICA_REFUSED: "the replica refused the request",
    Reason.MODEL_REFUSED: "the replica does not serve the model at the moment",
    Reason.REPLICA_BUSY: "every replica is busy",
    Reason.CREDENTIAL_REFUSED: "the replica does not accept the router's credential",
    Reason.NO_FILES: "the router is out of file descriptors",
    Reason.NO_PORTS: "the router is out of ports",
    Reason.REGION_NOT_ALLOWED: "no replica in the regions that this key may use takes the request",
    Reason.SUSPECT_REQUEST: "two engines died while they had the same request",
    Reason.DRAINING: "the router is shutting down",
    Reason.INTERNAL: "internal error of the router",
}
