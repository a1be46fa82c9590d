"""The generated crowds of tests/abuse contain each kind of attack, and each kind gets far enough.

A kind counts only if the router's own readers accept it, unless it is meant to be refused at its
head: a request that is refused too early attacks nothing. The draws are the same in every run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from router.config.model import Limits
from router.core.errors import RouterError
from router.intake import routes
from router.intake.body import read_fields
from router.intake.fields import Fields, Unread
from router.wire.http1.heads import RequestHead, ResponseHead
from router.wire.http1.request_reader import COMPLETE, RequestReader
from router.wire.http1.response_reader import BadResponse, ResponseReader
from tests.abuse.clients import CLIENT, JSON_TARGETS, METHODS, USUAL, objects
from tests.abuse.dense import MIB, NAMES, dense
from tests.abuse.drawing import HUGE, LARGE, SIZES_OF_DENSE
from tests.abuse.hostile import Answer, Client
from tests.abuse.replies import ANSWER

CLIENTS, ANSWERS = 600, 500

BLANK = b"\r\n"


def draws(strategy: st.SearchStrategy[Any], count: int, look: Callable[[Any], None]) -> None:
    """Look at `count` values of a strategy, the same in every run; no value is kept.

    Ten values are drawn per seed, as in a round: of many values from one seed, most are similar.
    """

    @settings(
        max_examples=10,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    @given(strategy)
    def draw(value: Any) -> None:
        look(value)

    for number in range(count // 10):
        seed(number)(draw)()


# The bytes that identify dense contents.
STARTS = {dense(name, 3_000)[:500] for name in NAMES}


@dataclass
class Asked:
    """One request of a generated client, as far as the router reads it."""

    client: Client
    index: int  # index of the request on its connection
    head: RequestHead
    head_bytes: bytes  # as its client wrote them
    body: bytes  # the part of the body that was read
    is_whole: bool
    fields: Fields | None = None  # None: the body is incomplete or refused


def asked(client: Client) -> list[Asked]:
    """Each request of a client whose head is accepted, with its body and fields."""
    found: list[Asked] = []
    heads: list[RequestHead] = []
    reader = RequestReader(Limits(), b"hedgerow", heads.append)
    data = client.data
    try:
        while data:
            start = data[:100_000].lstrip(BLANK)
            try:
                reader.feed(data)
            finally:
                if len(heads) > len(found):
                    is_whole = reader.state == COMPLETE
                    body = b"".join(reader.take_body()) if is_whole else b""
                    head_bytes = start.partition(BLANK * 2)[0].lower()
                    found.append(Asked(client, len(found), heads[-1], head_bytes, body, is_whole))
            if reader.state != COMPLETE:
                break
            data, reader.early = reader.early, b""
            reader.reset()
    except RouterError:
        pass
    reader.close()
    for one in found:
        one.fields = judged(one) if one.is_whole else None
    return found


def judged(one: Asked) -> Fields | None:
    head = one.head
    return fields_of(head.method, head.target, one.body, head.content_type, head.content_encoding)


def fields_of(
    method: bytes, target: bytes, body: bytes, kind: bytes | None, encoding: bytes | None = None
) -> Fields | None:
    """The router's result for a body; None: it refuses the request, or does not read such a
    body.
    """
    try:
        route, _ = routes.classify(method, target, frozenset())
        if not route.inference:
            return None
        return read_fields(route, [body], len(body), kind, encoding)
    except RouterError:
        return None


def _is_read(one: Asked) -> bool:
    return one.fields is not None and not isinstance(one.fields, Unread)


def _type(one: Asked) -> bytes:
    return one.head.content_type or b""


CLIENT_KINDS: dict[str, Callable[[Asked], bool]] = {
    "blank lines before a request": lambda one: one.client.data.startswith(BLANK),
    "blank lines before a later request": lambda one: (
        one.index > 0 and BLANK * 2 + b"POST" in one.client.data
    ),
    **{
        f"{method} with a body": lambda one, method=method: (
            one.head.method == method.encode() and one.is_whole and len(one.body) > 0
        )
        for method in ("POST", "PUT")
    },
    "a form that is read": lambda one: _is_read(one) and b"multipart" in _type(one),
    "a dense body": lambda one: one.is_whole and any(start in one.body for start in STARTS),
    "a large dense body": lambda one: (
        one.is_whole and len(one.body) > LARGE and any(start in one.body for start in STARTS)
    ),
    "more than a MiB": lambda one: one.is_whole and len(one.body) > MIB,
    "a large body that is read": lambda one: _is_read(one) and len(one.body) > 250_000,
    "chunks with extensions": lambda one: (
        one.head.chunked and one.is_whole and b";a=b\r\n" in one.client.data
    ),
    "chunks of one byte": lambda one: (
        one.head.chunked and one.is_whole and one.client.data.count(b"\r\n1\r\n") > 20
    ),
    "one large chunk": lambda one: (
        one.head.chunked and one.is_whole and one.client.data.count(BLANK) < 30 < len(one.body)
    ),
    "chunks that are refused": lambda one: one.head.chunked and not one.is_whole,
    "data behind the last chunk": lambda one: (
        one.head.chunked
        and one.is_whole
        and b"0\r\n\r\n" in one.client.data[-10_000:]
        and not one.client.data.endswith(b"0\r\n\r\n")
    ),
    "single bytes": lambda one: one.client.sizes == (1,),
    "large pieces": lambda one: one.client.sizes[:1] in ((65_536,), (262_144,)),
    "odd Content-Encoding": lambda one: (
        one.is_whole and (one.head.content_encoding or b"gzip") not in (b"gzip", b"deflate")
    ),
    "a compressed body": lambda one: (
        one.is_whole and one.head.content_encoding == b"gzip" and one.body[:2] == b"\x1f\x8b"
    ),
    "many fields": lambda one: one.head_bytes.count(BLANK) > 60,
}

# Kinds of attack that the router refuses by their heads, or before it has read the heads.
REFUSED_KINDS: dict[str, Callable[[Client], bool]] = {
    "a flood of blank lines": lambda client: client.data.startswith(BLANK * 30_000),
    "a flood of line feeds": lambda client: client.data.startswith(b"\n" * 60_000),
    "an unknown method": lambda client: client.data.startswith(b"X /"),
    "two Content-Type fields": lambda client: first_head(client).count(b"\r\ncontent-type:") == 2,
    "a wrong length": lambda client: b"\r\ncontent-length: -1\r\n" in first_head(client),
    "two lengths": lambda client: (
        b"\r\ncontent-length:" in first_head(client)
        and b"\r\ntransfer-encoding:" in first_head(client)
    ),
}


def first_head(client: Client) -> bytes:
    return client.data[:100_000].lstrip(BLANK).partition(BLANK * 2)[0].lower() + BLANK


@dataclass
class Answered:
    """One generated answer, as far as the router reads it."""

    answer: Answer
    head: ResponseHead
    body: bytes
    is_whole: bool

    @property
    def is_read(self) -> bool:
        return self.head.status == 200 and self.is_whole

    @property
    def is_json(self) -> bool:
        return self.is_read and self.head.is_json

    @property
    def is_stream(self) -> bool:
        return self.head.status == 200 and self.head.is_sse


def answered(answer: Answer) -> list[Answered]:
    reader = ResponseReader(Limits(), False)
    try:
        reader.feed(answer.data)
    except BadResponse:
        return []
    if reader.head is None:
        return []
    return [Answered(answer, reader.head, b"".join(reader.parts), reader.eof())]


ANSWER_KINDS: dict[str, Callable[[Answered], bool]] = {
    "dense JSON": lambda one: one.is_json and any(start in one.body for start in STARTS),
    "dense events": lambda one: one.is_stream and any(start in one.body for start in STARTS),
    "an event of several MiB": lambda one: (
        one.is_stream and len(max(one.body.split(b"\n"), key=len)) > 2_000_000
    ),
    "thousands of events without content": lambda one: (
        one.is_stream and max(one.body.count(b"\n\n"), one.body.count(b"\r\r")) > 2500
    ),
    "marks of usage": lambda one: one.is_stream and one.body.count(b'_tokens"') > 1000,
    "marks of errors": lambda one: one.is_stream and one.body.count(b"error") > 1000,
    "lines of JSON": lambda one: one.body.count(b"}\n") > 3 and not one.is_stream,
    "a negative count": lambda one: b'_tokens": -1' in one.body,
    "a huge count": lambda one: b"000" * 100 in one.body and one.is_whole,
    "a count that is a text": lambda one: b'_tokens": "' in one.body,
    "a count that is nested": lambda one: b'": [[[[{"completion_tokens"' in one.body,
    "a count in native words": lambda one: b'"eval_count": ' in one.body,
    "chunks of one byte": lambda one: (
        one.head.chunked and len(one.body) > 100 and one.answer.data.count(b"\r\n1\r\n") > 20
    ),
    "single bytes": lambda one: one.answer.sizes == (1,),
    "no end but the connection's": lambda one: (
        one.head.content_length is None and not one.head.chunked and len(one.body) > 100
    ),
}


@cache
def kinds_of_clients() -> Counter[str]:
    found: Counter[str] = Counter()

    def look(client: Client) -> None:
        seen = asked(client)
        found.update({name for name, holds in CLIENT_KINDS.items() if any(map(holds, seen))})
        found.update({name for name, holds in REFUSED_KINDS.items() if holds(client)})
        found["heads that are taken"] += bool(seen)
        found["fields that are read"] += any(map(_is_read, seen))

    draws(CLIENT, CLIENTS, look)
    return found


def test_each_kind_of_request_is_drawn_and_comes_to_its_reader() -> None:
    found = kinds_of_clients()
    missed = [name for name in (*CLIENT_KINDS, *REFUSED_KINDS) if not found[name]]
    assert not missed, missed


def test_many_clients_come_behind_the_head_and_to_the_fields() -> None:
    found = kinds_of_clients()
    assert found["heads that are taken"] > 0.4 * CLIENTS, found
    assert found["fields that are read"] > 0.15 * CLIENTS, found


def test_each_kind_of_answer_is_drawn_and_comes_to_its_reader() -> None:
    found: Counter[str] = Counter()

    def look(answer: Answer) -> None:
        for one in answered(answer):
            found.update({name for name, holds in ANSWER_KINDS.items() if holds(one)})
            found["answers that are read"] += 1

    draws(ANSWER, ANSWERS, look)
    missed = [name for name in ANSWER_KINDS if not found[name]]
    assert not missed, missed
    assert found["answers that are read"] > ANSWERS // 2


@pytest.mark.parametrize("path", USUAL)
def test_bodies_of_each_path_are_read(path: str) -> None:
    found: Counter[str] = Counter()

    def look(body: bytes) -> None:
        fields = fields_of(b"POST", path.encode(), body, b"application/json")
        found["read"] += fields is not None and not isinstance(fields, Unread)

    draws(objects(path), 25, look)
    assert found["read"] > 5, found


@pytest.mark.parametrize(
    ("strategy", "all_of"),
    [
        (JSON_TARGETS, USUAL),
        (METHODS, ("POST", "PUT", "PATCH", "DELETE", "X")),
        (SIZES_OF_DENSE, (MIB, HUGE)),
    ],
)
def test_each_value_is_drawn(strategy: st.SearchStrategy[Any], all_of: Iterable[Any]) -> None:
    found: Counter[Any] = Counter()
    # With a drawn number, values are distinct: otherwise each of the few values would be drawn only
    # once.
    numbered = st.tuples(st.integers(), strategy)
    draws(numbered, 400, lambda value: found.update([value[1]]))
    assert min(found[value] for value in all_of) >= 3, found


@pytest.mark.parametrize("size", [1_000, 200_000])
@pytest.mark.parametrize("name", NAMES)
def test_a_dense_content_has_its_size(name: str, size: int) -> None:
    assert size * 0.9 <= len(dense(name, size)) <= size * 1.1 + 20
