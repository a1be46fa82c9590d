"""Reads the notices with which clouds announce that a spot machine is reclaimed. Pure.

The formats are described in the providers' documentation (read November 2026):

- AWS, "Spot Instance interruption notices": `/latest/meta-data/spot/instance-action` answers 404,
  or a JSON object with `action` and `time`, two minutes ahead. IMDSv2 needs a session token, which
  a PUT to `/latest/api/token` returns.
- Google Cloud, "Preemptible VM instances": `/computeMetadata/v1/instance/preempted` answers FALSE,
  or TRUE 30 seconds ahead.
- Azure, "Scheduled Events": `/metadata/scheduledevents` answers a list of events. An event
  `Preempt` with `NotBefore` is listed at least 30 seconds ahead. The list may contain events of
  other machines.

Another program can write a file with a notice. An empty file means all spot replicas. Otherwise the
file contains a JSON object with `seconds`, and with `replicas` or `node`. Without both, it means
all spot replicas, too. An empty list of `replicas` or an empty `node` is unreadable, because a
program that found no name must not drain all spot replicas.

Must never: do I/O, or read a clock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Annotated, Final, NamedTuple, TypeVar

import msgspec

from router.core.unreadable import NOT_JSON
from router.fleet.notice import UNSTATED, Notice

T = TypeVar("T")


class Unreadable(ValueError):
    """The answer or the file is not a notice. The text of the error states the reason."""


class Provider(NamedTuple):
    """How the metadata service of a cloud is queried.

    `read` gets the body, the wall clock in Unix seconds, and the name of the machine in the events
    ("": any machine). It raises Unreadable.
    """

    path: str
    headers: Mapping[str, str]
    read: Callable[[bytes, float, str], Notice | None]
    token_path: str = ""  # The path of the PUT for a session token; "": not needed.
    token_headers: Mapping[str, str] = {}
    token_field: str = ""  # The header field in which the token is sent.


class _Action(msgspec.Struct):
    action: str
    time: str


class _Event(msgspec.Struct, rename="pascal"):
    event_id: str
    event_type: str
    resources: list[str] = []
    not_before: str = ""


class _Events(msgspec.Struct, rename="pascal"):
    events: list[_Event] = []


class _File(msgspec.Struct, forbid_unknown_fields=True):
    replicas: tuple[str, ...] | None = None
    node: str | None = None
    seconds: Annotated[float, msgspec.Meta(ge=0, le=1e7)] | None = None


def read_file(raw: bytes) -> Notice:
    """Return the notice in a file. Raises Unreadable."""
    found = _decoded(raw, _File) if raw.strip() else _File()
    if found.replicas is not None and found.node is not None:
        raise Unreadable("the file has both replicas and node; give one of them")
    if found.replicas == () or found.node == "":
        raise Unreadable("replicas or node is empty; leave it out to name all spot replicas")
    seconds = UNSTATED if found.seconds is None else found.seconds
    return Notice(raw.decode("latin-1"), seconds, found.replicas or (), found.node or "")


def _aws(raw: bytes, now: float, machine: str) -> Notice | None:
    found = _decoded(raw, _Action)
    try:
        at = datetime.fromisoformat(found.time)
    except ValueError:
        raise Unreadable(f"the time {found.time!r} is not a date") from None
    return Notice(f"{found.action} {found.time}", _until(at, now))


def _gcp(raw: bytes, now: float, machine: str) -> Notice | None:
    text = raw.strip().upper()
    if text not in (b"TRUE", b"FALSE"):
        raise Unreadable("the answer is neither TRUE nor FALSE")
    return Notice("preempted") if text == b"TRUE" else None


def _azure(raw: bytes, now: float, machine: str) -> Notice | None:
    for event in _decoded(raw, _Events).events:
        is_ours = not machine or machine in event.resources
        if event.event_type == "Preempt" and is_ours:
            return Notice(event.event_id, _not_before(event.not_before, now))
    return None


def _not_before(text: str, now: float) -> float:
    if not text:  # The event has begun.
        return 0.0
    try:
        return _until(parsedate_to_datetime(text), now)
    except ValueError:
        raise Unreadable(f"NotBefore {text!r} is not a date") from None


def _until(at: datetime, now: float) -> float:
    """Seconds from `now` to `at`; 0 if `at` has passed. Without a time zone, `at` is in UTC."""
    at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    return max(0.0, at.timestamp() - now)


def _decoded(raw: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(raw, type=kind)
    except NOT_JSON as err:
        raise Unreadable(str(err)) from None


PROVIDERS: Final[Mapping[str, Provider]] = {
    "aws": Provider(
        "/latest/meta-data/spot/instance-action",
        {},
        _aws,
        "/latest/api/token",
        {"X-aws-ec2-metadata-token-ttl-seconds": "21600"},
        "X-aws-ec2-metadata-token",
    ),
    "gcp": Provider("/computeMetadata/v1/instance/preempted", {"Metadata-Flavor": "Google"}, _gcp),
    "azure": Provider(
        "/metadata/scheduledevents?api-version=2020-07-01", {"Metadata": "true"}, _azure
    ),
}
