"""The generated crowds of tests/abuse get behind the router's readers: an early refusal attacks
nothing. The draws are the same in every run.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings, strategies as st

from router.config.model import Limits
from router.core.errors import RouterError
from router.intake import routes
from router.intake.body import read_fields
from router.intake.fields import Unread
from router.wire.http1.heads import RequestHead
from router.wire.http1.request_reader import COMPLETE, RequestReader
from router.wire.http1.response_reader import BadResponse, ResponseReader
from tests.abuse.clients import CLIENT, USUAL, objects
from tests.abuse.dense import NAMES, dense
from tests.abuse.drawing import LARGE
from tests.abuse.hostile import Answer, Client
from tests.abuse.replies import ANSWER
from tests.wire.http1.heads import feed

CLIENTS, ANSWERS, BODIES = 300, 250, 25


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


def is_read(method: bytes, target: bytes, body: bytes, kind: bytes | None) -> bool:
    """Whether the router reads the fields of this body."""
    try:
        route, _ = routes.classify(method, target, frozenset())
        if not route.inference:
            return False
        return not isinstance(read_fields(route, [body], len(body), kind, None), Unread)
    except RouterError:
        return False


def told(client: Client) -> set[str]:
    """How far the requests of a client get, and whether one has a part that costs work."""
    found: set[str] = set()
    reader = RequestReader(Limits(), b"hedgerow")
    data = client.data

    def taken(head: RequestHead) -> None:
        found.add("a head is taken")

    try:
        while data:
            feed(reader, data, taken)
            if reader.state != COMPLETE:
                break
            head, body = reader.head, b"".join(reader.take_body())
            found |= _parts(head, body)
            data, reader.early = reader.early, b""
            reader.reset()
    except RouterError:
        found.add("refused")
    reader.close()
    return found


def _parts(head: RequestHead, body: bytes) -> set[str]:
    kinds = {
        "a large body": len(body) > LARGE,
        "chunks": head.chunked,
        "a coding": head.content_encoding is not None,
        "a form": b"multipart" in (head.content_type or b""),
        "fields are read": is_read(head.method, head.target, body, head.content_type),
    }
    return {name for name, holds in kinds.items() if holds}


def test_many_clients_come_behind_the_head_and_to_the_fields() -> None:
    found: Counter[str] = Counter()
    draws(CLIENT, CLIENTS, lambda client: found.update(told(client)))
    assert found["a head is taken"] > 0.4 * CLIENTS, found
    assert found["fields are read"] > 0.15 * CLIENTS, found
    for kind in ("a large body", "chunks", "a coding", "a form", "refused"):
        assert found[kind] >= 3, found


def test_most_answers_are_read() -> None:
    found: Counter[str] = Counter()

    def look(answer: Answer) -> None:
        reader = ResponseReader(Limits())
        try:
            reader.feed(answer.data)
        except BadResponse:
            found["refused"] += 1
        head = reader.head
        if head is not None:
            kinds = {"sse": head.is_sse, "json": head.is_json, "chunks": head.chunked}
            found.update(["read", *(name for name, holds in kinds.items() if holds)])

    draws(ANSWER, ANSWERS, look)
    assert found["read"] > ANSWERS // 2, found
    assert min(found[kind] for kind in ("refused", "sse", "json", "chunks")) >= 5, found


@pytest.mark.parametrize("path", USUAL)
def test_bodies_of_each_path_are_read(path: str) -> None:
    found: Counter[bool] = Counter()

    def look(body: bytes) -> None:
        found[is_read(b"POST", path.encode(), body, b"application/json")] += 1

    draws(objects(path), BODIES, look)
    assert found[True] > 5, found


@pytest.mark.parametrize("name", NAMES)
def test_a_dense_content_has_its_size(name: str) -> None:
    for size in (1_000, 200_000):
        assert size * 0.9 <= len(dense(name, size)) <= size * 1.1 + 20
