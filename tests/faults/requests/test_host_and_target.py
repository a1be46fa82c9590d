"""Host and the request target must have one meaning; otherwise the request is refused."""

import pytest

from tests.harness.behaviours import echo
from tests.harness.cases import Refusal, check_refusals
from tests.harness.messages import request
from tests.harness.running import Router, routed, scenario

BAD_HOSTS = ["", "a, b", "user@a", "a/path", "a:b", "a:99999999", "a b", "http://a", "[::1", "a\\b"]
BAD_TARGETS = ["*", "/a#b", "plain", "", "http:///x", "http://u@a/x", "ftp:x"]
DOUBLED = {
    "//v1/models": "doubled slash",
    "/v1//models": "doubled slash",
    "/v1/%2Fmodels": "encoded slash",
    "/v1/models//": "doubled slash",
}


@scenario
async def test_bad_hosts_and_targets() -> None:
    hosts = [request("/plain", host=host) for host in BAD_HOSTS]
    unclear = [["Host: a", "Host: a"], ["Host: a", "Host: b"], []]
    numbers = [request("/plain", *fields, host=None) for fields in unclear]
    targets = [f"GET {target} HTTP/1.1\r\nHost: a\r\n\r\n".encode() for target in BAD_TARGETS]
    await check_refusals(
        {str(sent): Refusal(sent=sent, code=("bad_host", "bad_request")) for sent in hosts}
        | {str(sent): Refusal(sent=sent, code="bad_host") for sent in numbers}
        | {str(sent): Refusal(sent=sent, code=("bad_target", "bad_request")) for sent in targets}
        | {
            path: Refusal(sent=request(path), code="bad_target", message=what, closes=False)
            for path, what in DOUBLED.items()
        }
    )


@pytest.mark.parametrize("host", ["a", "a.b:80", "192.0.2.1:8000", "[::1]:8000", "a-b.c_d", "A"])
@routed(echo)
async def test_a_good_host(router: Router, host: str) -> None:
    assert (await router.ask(request("/plain", host=host))).status == 200


@routed(echo)
async def test_an_encoded_control_character_passes_as_it_came(router: Router) -> None:
    assert (await router.ask(request("/a%09b%7f?c=%0a"))).status == 200
    (seen,) = router.replica.requests
    assert seen.target == "/a%09b%7f?c=%0a"


@routed(echo)
async def test_options_for_the_server_is_answered_here(router: Router) -> None:
    client = await router.client()
    for _ in range(2):
        await client.send(b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n")
        answer = await client.recv_response()
        assert (answer.status, answer.body) == (200, b"")
        assert "POST" in (answer.header("allow") or "")
        assert answer.header("content-length") == "0"
    assert not router.replica.requests


@routed(echo)
async def test_options_are_forwarded_as_often_as_the_client_allows(router: Router) -> None:
    client = await router.client()
    for _ in range(2):
        await client.send(request("/a", "Max-Forwards: 0", method="OPTIONS"))
        answer = await client.recv_response()
        assert (answer.status, answer.body) == (200, b"")
        assert "POST" in (answer.header("allow") or "")
        assert not router.replica.requests
    for _ in range(2):
        await client.send(request("/a", "Max-Forwards: 3", method="OPTIONS"))
        assert (await client.recv_response()).status == 200
    first, second = router.replica.requests
    assert first.header("max-forwards") == second.header("max-forwards") == "2"


@pytest.mark.parametrize(
    ("target", "path", "host"),
    [
        ("http://b/x?y=z", "/x?y=z", "b"),
        ("http://b:81/x", "/x", "b:81"),
        ("http://b", "/", "b"),
        ("http://b?y", "/?y", "b"),
        ("HTTP://b/x", "/x", "b"),
    ],
)
@routed(echo)
async def test_absolute_form_wins_over_host(
    router: Router, target: str, path: str, host: str
) -> None:
    answer = await router.ask(request(target, host="elsewhere"))
    assert answer.status == 200
    (seen,) = router.replica.requests
    assert seen.target == path
    assert "elsewhere" not in [value for _, value in seen.headers]
    assert seen.header("host") in (host, router.replica.url.removeprefix("http://"))


@routed(echo)
async def test_absolute_form_does_not_reach_what_is_closed(router: Router) -> None:
    answer = await router.ask(request("http://a/metrics"))
    assert answer.status == 404
    assert not router.replica.requests
