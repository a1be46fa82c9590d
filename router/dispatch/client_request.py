"""The data of one client request, read once when the request is complete.

An instance must never change after the dispatcher has filled it in, except by `forget`, or refer to
an attempt or an answer.
"""

from __future__ import annotations

from typing import Final

from router.core.clock import monotonic, time
from router.dispatch.attempts.abort import Aborter, is_nameable, unnamed_parameters
from router.fleet.names import NamedModel
from router.intake.body import SCAN_ABOVE
from router.intake.fields import Fields, Unread
from router.intake.flow import Flow
from router.intake.keys import Key
from router.intake.routes import JSON, Route
from router.intake.values import is_given, output_tokens_of
from router.wire.http1.heads import RequestHead

_CHOICES: Final = 1024  # Maximum number of choices (`n`) of one request that estimates use.
# Maximum tokens held for a prompt that was not measured: the context length of many models.
# A larger body consists mostly of images or sounds, and would block its key until it ends.
_MOST_HELD: Final = 131_072
_FORGOTTEN: Final = Fields()  # the value of `fields` after `forget`; must not be changed


class ClientRequest:
    """One request of one client, without its body."""

    __slots__ = (
        "_arrived_wall",
        "aborter",
        "body_bytes",
        "choices",
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
        "named",
        "names_response",
        "output_limit",
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
        named: NamedModel | None,
        model: str | None,
    ) -> None:
        """`model`: the name that the client wrote. `named`: its configured meaning; then
        `fields.model` is a name of a replica. `None`: the name means itself."""
        self.head = head
        self.body_bytes = body_bytes
        self.route = route
        self.path = path
        self.fields = fields
        self.model = model  # The one that the client named in the body or in `x-router-model`.
        self.named = named
        self.streamed = bool(fields.stream)
        limit = output_tokens_of(fields, route)
        # The client's limit of output tokens for each choice; -1: none, or unknown.
        self.output_limit = -1 if limit is None else limit
        choices = fields.n
        # The number of answers that the client wants, 1 to `_CHOICES`.
        self.choices = 1 if choices is None or choices <= 1 else min(choices, _CHOICES)
        self.name = name  # The name by which engines know the request.
        self.key = key  # The API key; `None`: the request has no key of the key file.
        self.flow = flow  # The flow whose share of the fleet the request uses.
        self._arrived_wall = -1.0  # -1: not asked for yet.
        self.common = b""  # The header lines that are sent to every replica.
        self.forwards_key = False  # Whether the client's own credentials are forwarded.
        # The body contains `priority`, or may contain it in a place that the scan of a large body
        # did not read; the member must be rewritten, or the engine obeys the client's value.
        is_unread = body_bytes > SCAN_ABOVE and type(fields) is Unread
        self.has_priority = route.inference and (
            fields.priority is not None or (is_unread and route.is_known)
        )
        # Names the attempts, so that engines can abort them; `None`: the request cannot be named.
        if aborter is None or body_bytes > SCAN_ABOVE or not is_nameable(path, fields):
            aborter = None
        self.aborter = aborter
        # The body has, or may have, a request name chosen by the client. No engine may use that
        # name.
        self.has_rid = is_given(fields.other("rid")) or is_unread
        # The body's `parameters` as a member without a name chosen by the client; `None`: the
        # `parameters` contain no name.
        parameters = fields.other("parameters")
        self.parameters = None if parameters is None else unnamed_parameters(parameters)
        # Whether the client's body chooses the id of the response that the request creates. The id
        # could be that of another client's response.
        self.names_response = route.kind == "responses" and is_given(fields.other("request_id"))
        options = fields.stream_options if self.streamed else None
        # A copy, because the decoded field is a view that would keep the whole body in memory.
        self.stream_options = None if options is None else bytes(options)

    def forget(self) -> None:
        """Drop what is needed only to send the request, because it will not be sent again."""
        self.fields = _FORGOTTEN
        self.common = b""

    def arrived_wall(self, arrived: float) -> float:
        """Return the time of arrival in seconds since 1970, always the same.

        `arrived`: the same time of the monotonic clock. Few requests need it, and each reading of
        the clock costs 420 instructions.
        """
        if self._arrived_wall < 0.0:
            self._arrived_wall = time() - (monotonic() - arrived)
        return self._arrived_wall

    def most_output_of_all(self) -> int | None:
        """Return the client's limit of output tokens for all choices together; None: no limit."""
        most = self.output_limit
        return None if most < 0 else self.choices * most

    def prompt_tokens(self, measured: int) -> int:
        """Return the estimated size of the prompt.

        The size is estimated from the bytes of a JSON body if the prompt was not measured, because
        the body is too large to be decoded or the prompt is in a member of an engine's own API.
        """
        route = self.route
        if measured or route.light or route.body != JSON:
            return measured
        return self.body_bytes // 4

    def held_tokens(self, measured: int) -> int:
        """Return the size of the prompt for the limits of the key, until the true size is known."""
        return measured or min(_MOST_HELD, self.prompt_tokens(measured))
