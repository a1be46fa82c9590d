"""What became of a stream that broke after its first content. Closed: metric labels."""

from __future__ import annotations

from enum import StrEnum


class Outcome(StrEnum):
    __hash__ = str.__hash__  # see core.errors.Reason

    CONTINUED = "continued"  # another replica's content follows
    # It did not, because ...
    REQUEST = "request"  # its request asks for what a seam could break, or what we do not know
    STREAM = "stream"  # it said what a seam could break, or what we do not understand
    FINISHED = "finished"  # it had said everything but that it ends
    LENGTH = "length"  # nothing is left of the tokens that its request allows
    SIZE = "size"  # more text than is kept
    BUDGET = "budget"  # no retry is left for it, by count or by share
    NO_REPLICA = "no_replica"  # there is no other one that can
    FAILED = "failed"  # another replica was asked and did not go on
