"""Forwarding fields and request IDs from an untrusted client are overwritten."""

import re

import pytest

from router.config.model import Priority, PriorityRule
from tests.harness.behaviours import echo, json_ok
from tests.harness.messages import chat, request
from tests.harness.running import Router, routed, running, scenario


@routed(echo)
async def test_an_untrusted_peer_is_overwritten(router: Router) -> None:
    asked = request(
        "/plain",
        "X-Forwarded-For: 192.0.2.9",
        "X-Forwarded-Proto: https",
        "X-Forwarded-Host: evil.test",
        "X-Router-Replica: evil",
    )
    assert (await router.ask(asked)).status == 200
    (seen,) = router.replica.requests
    assert seen.header("x-forwarded-for") == "127.0.0.1"
    assert not [value for _, value in seen.headers if "evil" in value]
    assert not [name for name, _ in seen.headers if name.startswith("x-router-")]


@routed(echo, trusted_proxies=("127.0.0.0/8",))
async def test_a_trusted_peer_is_appended_to(router: Router) -> None:
    asked = request("/plain", "X-Forwarded-For: 192.0.2.9", "X-Forwarded-Proto: https")
    assert (await router.ask(asked)).status == 200
    (seen,) = router.replica.requests
    assert re.sub(r"\s", "", seen.header("x-forwarded-for") or "") == "192.0.2.9,127.0.0.1"
    assert seen.header("x-forwarded-proto") == "https"


@pytest.mark.parametrize(
    ("trusted", "forwarded", "word"),
    [
        (("127.0.0.0/8",), "10.1.2.3", "high"),
        (("127.0.0.0/8",), "::ffff:10.1.2.3", "high"),
        (("127.0.0.0/8",), "2001:db8::7", "low"),
        (("127.0.0.0/8",), "192.0.2.9", "normal"),  # no rule matches, not even the proxy's own
        (("127.0.0.0/8",), "10.1.2.3, 192.0.2.9", "normal"),
        ((), "10.1.2.3", "batch"),
    ],
)
@scenario
async def test_priority_rules_compare_the_clients_network(
    trusted: tuple[str, ...], forwarded: str, word: str
) -> None:
    rules = (
        PriorityRule(priority="high", network="10.0.0.0/8"),
        PriorityRule(priority="low", network="2001:db8::/48"),
        PriorityRule(priority="batch", network="127.0.0.0/8"),
    )
    rule = Priority(rules=rules)
    async with running(json_ok, trusted_proxies=trusted, priority=rule) as router:
        assert (await router.ask(chat(f"X-Forwarded-For: {forwarded}"), "POST")).status == 200
        (line,) = await router.log(1)
        assert line["class"] == word


@pytest.mark.parametrize("bad", ["a" * 65, "a" * 10_000, "a b", "a;b", "ü", '"', ""])
@routed(echo, trusted_proxies=("127.0.0.0/8",))
async def test_a_bad_request_id_is_replaced(router: Router, bad: str) -> None:
    answer = await router.ask(request("/plain", f"X-Request-Id: {bad}"))
    given = answer.header("x-request-id") or ""
    assert re.fullmatch(r"[A-Za-z0-9._-]{1,64}", given)
    assert given != bad
    assert router.replica.requests[0].header("x-request-id") == f"{given}-0"


@routed(echo)
async def test_a_good_request_id_goes_back_and_into_the_log_and_no_further(router: Router) -> None:
    """Engines abort, find and confuse requests by their IDs."""
    names = set()
    for _ in range(300):
        answer = await router.ask(request("/plain", "X-Request-Id: A.b_c-1"))
        assert answer.header("x-request-id") == "A.b_c-1"
        upstream = router.replica.requests[-1].header("x-request-id") or ""
        assert re.fullmatch("[0-9a-f]{24}-0", upstream)
        names.add(upstream)
    assert len(names) == 300
    line = (await router.log(300))[-1]
    assert (line["id"], f"{line['sent_as']}-0") == ("A.b_c-1", upstream)


@routed(echo)
async def test_an_id_of_ours_is_the_engines_too(router: Router) -> None:
    answer = await router.ask(request("/plain"))
    given = answer.header("x-request-id")
    assert router.replica.requests[-1].header("x-request-id") == f"{given}-0"
    (line,) = await router.log(1)
    assert line["id"] == given
    assert "sent_as" not in line


@routed(echo)
async def test_every_answer_of_ours_has_a_request_id(router: Router) -> None:
    first = await router.ask(request("/metrics"))
    second = await router.ask(b"GET / HTTP/1.1\r\n\r\n")
    ids = [first.header("x-request-id"), second.header("x-request-id")]
    assert all(ids)
    assert ids[0] != ids[1]
