"""What a client has asked for: the facts of one request, read once when it is whole.

Must never: change after its dispatcher has filled it in, or know an attempt or an answer.
"""

from __future__ import annotations

from time import time
from typing import Final

from router.dispatch.abort import Aborter, is_nameable, unnamed_parameters
from router.intake.body import SCAN_ABOVE
from router.intake.fields import Fields, Unread
from router.intake.flow import Flow
from router.intake.keys import Key
from router.intake.routes import JSON, Route
from router.intake.values import is_given, output_tokens_of
from router.wire.heads import RequestHead

_CHOICES: Final = 1024  # of one request, as far as they are believed
_OUTPUT: Final = 256  # tokens of each of several choices, where the client sets no limit


class ClientRequest:
    """One request of one client, without its body."""

    __slots__ = (
        "aborter",
        "arrived_wall",
        "body_bytes",
        "common",
        "fields",
        "flow",
        "forwards_key",
        "has_priority",
        "has_rid",
        "head",
        "key",
        "model",
        "name",
        "names_response",
        "parameters",
        "path",
        "route",
        "stream_options",
        "streamed",
    )

    def __init__(
        self,
        head: RequestHead,
        body_bytes: int,
        route: Route,
        path: bytes,
        fields: Fields,
        name: bytes,
        key: Key | None,
        flow: Flow,
        aborter: Aborter | None,
    ) -> None:
        self.head = head
        self.body_bytes = body_bytes
        self.route = route
        self.path = path
        self.fields = fields
        # Each read of `fields` looks an attribute up; these two are read often.
        self.model = fields.model  # from the body or `x-router-model`; None: not named
        self.streamed = bool(fields.stream)
        self.name = name  # as engines know it
        self.key = key  # its API key; None: none that the router knows
        self.flow = flow  # whose share of the fleet it uses
        self.arrived_wall = time()  # seconds since 1970
        self.common = b""  # the header lines that every replica is sent
        self.forwards_key = False  # its own credentials are among them, unless ours replace them
        # The body contains `priority`, or may contain it in a place that the scan of a large body
        # did not read; it must be rewritten, or the engine obeys the client's value.
        is_unread = body_bytes > SCAN_ABOVE and type(fields) is Unread
        self.has_priority = route.inference and (
            fields.priority is not None or (is_unread and route.is_known)
        )
        # Names its attempts, so that their engines can be told to stop; None: it cannot be named.
        self.aborter: Aborter | None = None
        if aborter is not None and body_bytes <= SCAN_ABOVE:
            self.aborter = aborter if is_nameable(path, fields) else None
        # The body has a name of its client's, or may have one: no engine may be told that.
        self.has_rid = is_given(fields.rid) or is_unread
        # The body's `parameters` as a member without such a name; `None`: they have none.
        self.parameters: bytes | None = None
        if fields.parameters is not None:
            self.parameters = unnamed_parameters(fields.parameters)
        # The body names the response that it makes, so it could name another party's.
        self.names_response = route.kind == "responses" and is_given(fields.request_id)
        options = fields.stream_options if self.streamed else None
        # A copy: the field is a view that keeps the whole body alive.
        self.stream_options = None if options is None else bytes(options)

    def expected_output(self) -> int:
        """The output tokens of several choices together; -1: there is one, or nobody knows."""
        choices = self.fields.n
        if choices is None or choices <= 1:
            return -1
        return min(choices, _CHOICES) * (output_tokens_of(self.fields) or _OUTPUT)

    def most_output(self) -> int:
        """The limit of output tokens that the client has set; -1: none."""
        most: int | None = output_tokens_of(self.fields)
        return -1 if most is None else most

    def prompt_tokens(self, measured: int) -> int:
        """The estimated size of the prompt. A JSON body whose prompt was not measured, because the
        body is too large to be decoded or prefixes are off, is estimated from its bytes."""
        if not measured and self.route.body == JSON:
            return self.body_bytes // 4
        return measured
